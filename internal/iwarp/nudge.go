package iwarp

import "time"

// An initiator sends zero-length RDMA Writes until the peer's first frame. They
// let an acceptor speak, which is silent until the initiator has spoken: so the
// first goes out soon, unless the user has sent something before, and the peer
// answered. And siw as an acceptor sends its reply before it listens for frames:
// one that comes in between lies unread until another comes behind it.
//
// A nudger is guarded by the transmit lock.
type nudger struct {
	timer *time.Timer // nil when it is over
	count int
}

const (
	firstNudge = 2 * time.Millisecond
	nextNudge  = 20 * time.Millisecond
	lastNudge  = 50 * time.Millisecond
	maxNudges  = 40 // two seconds of them
)

// beginNudging sends at once what was agreed to let the peer speak, and
// otherwise sets the timer for the first.
func (q *queuePair) beginNudging(rtr RTR) {
	q.tx.mu.Lock()
	defer q.tx.mu.Unlock()
	if q.ended.Load() {
		return
	}
	if rtr == WriteRTR {
		q.tx.signs++
	}
	if rtr != NoRTR {
		q.transmit()
	}
	if !q.tx.heard {
		q.nudge.timer = time.AfterFunc(firstNudge, q.nudgeAgain)
	}
}

// nudgeAgain is the timer's. It looks first whether there is a frame, since
// perhaps nobody reads.
func (q *queuePair) nudgeAgain() {
	q.readOn()
	q.tx.mu.Lock()
	defer q.tx.mu.Unlock()
	n := &q.nudge
	if n.timer == nil {
		return
	}
	if n.count++; n.count > maxNudges {
		n.timer = nil
		return
	}
	q.tx.signs++
	q.transmit()
	n.timer.Reset(min(nextNudge*time.Duration(n.count), lastNudge))
}

// stopNudging is called when the first frame has come, and when the connection
// ends, with the transmit lock held.
func (q *queuePair) stopNudging() {
	if q.nudge.timer != nil {
		q.nudge.timer.Stop()
		q.nudge.timer = nil
	}
}
