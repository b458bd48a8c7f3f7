package iwarp

import (
	"sync"
	"time"
)

// A sweeper looks at the connections that nobody drives, so that a peer's Reads
// are answered, its signs of life are taken, and its end is noticed. A
// connection that was driven lately is looked at soon, since a peer may be
// waiting for an answer (to the Read, say, that tells it that all has arrived);
// one that has long been idle twice a second.
//
//	driven ──sweepSoon──▶ look ──2·sweepSoon──▶ look ── … ──sweepLate──▶ look ─┐
//	  ▲                                                          ▲            │
//	  └── warm, when somebody drives it again ──── cold ─────────┴────────────┘
//
// It is a timer, set to the next time that something is due: there is no
// goroutine between two sweeps, and no timer without connections.
type sweeper struct {
	soon, late time.Duration

	mu      sync.Mutex
	entries []sweepEntry
	timer   *time.Timer
	due     time.Time // when the timer is
}

const (
	sweepSoon = 20 * time.Millisecond
	sweepLate = 500 * time.Millisecond
)

// A sweepEntry is a connection and when to look at it. q.swept is its index,
// plus one.
type sweepEntry struct {
	q     *queuePair
	due   time.Time
	pause time.Duration
}

func (s *sweeper) add(q *queuePair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = append(s.entries, sweepEntry{q: q})
	q.swept = len(s.entries)
	s.schedule(q.swept - 1)
}

// schedule makes an entry due soon. Called with mu held.
func (s *sweeper) schedule(i int) {
	e := &s.entries[i]
	e.pause = s.soon
	e.due = time.Now().Add(e.pause)
	e.q.cold.Store(false)
	if s.timer == nil {
		s.due = e.due
		s.timer = time.AfterFunc(e.pause, s.sweep)
	} else if e.due.Before(s.due) {
		s.due = e.due
		s.timer.Reset(e.pause)
	}
}

func (s *sweeper) remove(q *queuePair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.swept == 0 {
		return
	}
	last := len(s.entries) - 1
	s.entries[q.swept-1] = s.entries[last]
	s.entries[q.swept-1].q.swept = q.swept
	s.entries[last] = sweepEntry{}
	s.entries = s.entries[:last]
	q.swept = 0
	if last == 0 && s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// warm is called when a connection that has long been idle is driven again.
func (s *sweeper) warm(q *queuePair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.swept > 0 && q.cold.Load() {
		s.schedule(q.swept - 1)
	}
}

// sweep is the timer's.
func (s *sweeper) sweep() {
	now := time.Now()
	var due, idle []*queuePair
	s.mu.Lock()
	for i := range s.entries {
		if e := &s.entries[i]; !e.due.After(now) {
			due = append(due, e.q)
		}
	}
	s.mu.Unlock()

	// Not under the lock: what comes may end a connection, which removes it.
	for _, q := range due {
		if !q.sweep() {
			idle = append(idle, q)
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range idle {
		if q.swept > 0 {
			e := &s.entries[q.swept-1]
			e.due = now.Add(e.pause)
			e.pause = min(2*e.pause, s.late)
			q.cold.Store(e.pause == s.late)
		}
	}
	next := now.Add(s.late)
	for i := range s.entries {
		e := &s.entries[i]
		if !e.due.After(now) { // it is being driven
			e.pause = s.soon
			e.due = now.Add(e.pause)
			e.q.cold.Store(false)
		}
		if e.due.Before(next) {
			next = e.due
		}
	}
	if s.timer != nil {
		s.due = next
		s.timer.Reset(time.Until(next))
	}
}
