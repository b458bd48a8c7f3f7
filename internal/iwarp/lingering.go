package iwarp

import (
	"fmt"
	"sync"
	"syscall"
)

// maxLingering is how many connections of a NIC may be in shutdown, each of which
// holds a descriptor for up to Config.CloseTimeout. How long is its peer's choice.
const maxLingering = 1024

// A lingering lists the connections in shutdown, oldest first. One too many ends the
// oldest: its peer has had more time than any other.
type lingering struct {
	most int

	mu             sync.Mutex
	oldest, newest *queuePair
	n              int
}

var errCrowded = fmt.Errorf("too many connections wait for their peers to close: %w", syscall.ECONNABORTED)

func (l *lingering) enter(q *queuePair) {
	l.mu.Lock()
	q.older = l.newest
	if l.newest != nil {
		l.newest.newer = q
	} else {
		l.oldest = q
	}
	l.newest = q
	l.n++
	var extra *queuePair
	if l.n > l.most {
		extra = l.oldest
		l.unlink(extra)
	}
	l.mu.Unlock()
	if extra != nil {
		extra.hurry()
	}
}

func (l *lingering) leave(q *queuePair) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlink(q)
}

// unlink takes a connection off the list, if it is there. Called with mu held.
func (l *lingering) unlink(q *queuePair) {
	if q.older == nil && q.newer == nil && l.oldest != q {
		return
	}
	if q.older != nil {
		q.older.newer = q.newer
	} else {
		l.oldest = q.newer
	}
	if q.newer != nil {
		q.newer.older = q.older
	} else {
		l.newest = q.older
	}
	q.older, q.newer = nil, nil
	l.n--
}

// hurry has shutdown take the connection for over. It looks at eof in each turn, and
// first of all when it waits.
func (q *queuePair) hurry() {
	q.rx.mu.Lock()
	if q.rx.eof == nil {
		q.rx.eof = errCrowded
	}
	q.rx.mu.Unlock()
	_ = q.wire.setReadDeadline(longAgo) // a closed socket is over already
}
