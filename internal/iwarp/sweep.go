package iwarp

import (
	"container/heap"
	"sync"
	"time"
)

// A sweeper looks at the connections that nobody drives, so that a peer's Reads
// are answered, its signs of life are taken, and its end is noticed. A
// connection that was driven lately is looked at soon, since a peer may be
// waiting for an answer (to the Read, say, that tells it that all has arrived);
// one that has long been idle, or that a goroutine waits for, twice a second.
//
//	driven ──sweepSoon──▶ look ──2·sweepSoon──▶ look ── … ──sweepLate──▶ look ─┐
//	  ▲                                                          ▲            │
//	  └── warm, when somebody drives it again ──── cold ─────────┴────────────┘
//
// It is a timer, set to the next time that something is due: there is no
// goroutine between two sweeps, and no timer without connections. A sweep costs
// what is due, however many connections there are.
type sweeper struct {
	soon, late time.Duration

	mu      sync.Mutex
	entries sweepHeap
	timer   *time.Timer
	due     time.Time // when the timer is
	scratch []*queuePair
}

const (
	sweepSoon = 20 * time.Millisecond
	sweepLate = 500 * time.Millisecond
)

// A sweepEntry is a connection and when to look at it.
type sweepEntry struct {
	q     *queuePair
	due   time.Time
	pause time.Duration
}

// A sweepHeap has what is due first at its front (container/heap). q.swept is a
// connection's index, plus one.
type sweepHeap []sweepEntry

func (h sweepHeap) Len() int           { return len(h) }
func (h sweepHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }

func (h sweepHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].q.swept, h[j].q.swept = i+1, j+1
}

// Push is heap.Push's. To spare an allocation, add appends by itself.
func (h *sweepHeap) Push(any) { panic("unused") }

func (h *sweepHeap) Pop() any {
	last := len(*h) - 1
	(*h)[last].q.swept = 0
	(*h)[last] = sweepEntry{}
	*h = (*h)[:last]
	return nil
}

func (s *sweeper) add(q *queuePair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = append(s.entries, sweepEntry{q: q, due: time.Now().Add(s.late)})
	q.swept = len(s.entries)
	heap.Fix(&s.entries, q.swept-1)
	s.schedule(q)
}

// schedule makes a connection due soon. Called with mu held.
func (s *sweeper) schedule(q *queuePair) {
	s.next(q, time.Now(), s.soon)
	s.wind()
}

// next makes a connection due after a pause. Called with mu held.
func (s *sweeper) next(q *queuePair, now time.Time, pause time.Duration) {
	e := &s.entries[q.swept-1]
	e.pause, e.due = pause, now.Add(pause)
	q.cold.Store(pause == s.late)
	heap.Fix(&s.entries, q.swept-1)
}

// wind sets the timer to what is due first. Called with mu held.
func (s *sweeper) wind() {
	switch {
	case len(s.entries) == 0:
		if s.timer != nil {
			s.timer.Stop()
			s.timer = nil
		}
	case s.timer == nil:
		s.due = s.entries[0].due
		s.timer = time.AfterFunc(time.Until(s.due), s.sweep)
	case s.entries[0].due.Before(s.due):
		s.due = s.entries[0].due
		s.timer.Reset(time.Until(s.due))
	}
}

func (s *sweeper) remove(q *queuePair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.swept > 0 {
		heap.Remove(&s.entries, q.swept-1)
		if len(s.entries) == 0 {
			s.wind()
		}
	}
}

// warm is called when a connection that has long been idle is driven again.
func (s *sweeper) warm(q *queuePair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.swept > 0 && q.cold.Load() {
		s.schedule(q)
	}
}

// sweep is the timer's.
func (s *sweeper) sweep() {
	now := time.Now()
	s.mu.Lock()
	due := s.scratch[:0]
	s.scratch = nil
	for len(s.entries) > 0 && !s.entries[0].due.After(now) {
		e := &s.entries[0]
		due = append(due, e.q)
		e.due = now.Add(s.late) // until it has been looked at
		heap.Fix(&s.entries, 0)
	}
	s.mu.Unlock()

	// Not under the lock: what comes may end a connection, which removes it.
	for i, q := range due {
		looked := q.sweep()
		s.mu.Lock()
		if q.swept > 0 {
			pause := s.soon
			switch looked {
			case sweptIdle:
				pause = min(2*s.entries[q.swept-1].pause, s.late)
			case sweptAwaited:
				pause = s.late
			}
			s.next(q, now, pause)
		}
		s.mu.Unlock()
		due[i] = nil
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.scratch = due[:0]
	if s.timer != nil && len(s.entries) > 0 {
		s.due = s.entries[0].due
		s.timer.Reset(time.Until(s.due))
	}
}
