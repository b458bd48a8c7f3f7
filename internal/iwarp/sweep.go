package iwarp

import (
	"sync"
	"time"
)

// A sweeper looks now and then at the connections that nobody drives, so that a
// peer's Reads are answered, its signs of life are taken, and its end is
// noticed. It is a timer: there is no goroutine between two sweeps, and no timer
// without connections.
type sweeper struct {
	interval time.Duration

	mu    sync.Mutex
	conns map[*queuePair]struct{}
	timer *time.Timer
}

func (s *sweeper) add(q *queuePair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		s.conns = make(map[*queuePair]struct{})
	}
	s.conns[q] = struct{}{}
	if s.timer == nil {
		s.timer = time.AfterFunc(s.interval, s.sweep)
	}
}

func (s *sweeper) remove(q *queuePair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, q)
	if len(s.conns) == 0 && s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

func (s *sweeper) sweep() {
	s.mu.Lock()
	conns := make([]*queuePair, 0, len(s.conns))
	for q := range s.conns {
		conns = append(conns, q)
	}
	s.mu.Unlock()
	for _, q := range conns {
		q.sweep()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Reset(s.interval)
	}
}
