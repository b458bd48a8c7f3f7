package rsocket

import (
	"runtime"
	"syscall"
	"time"
)

// A waiter is one of the three parties that may wait on a stream: the Read at
// work, the Write at work, and Close. Guarded by Stream.mu.
type waiter struct {
	done    func(*Stream) bool // the wait is over, well or badly
	awaits  bool               // it is in await
	waiting bool               // it sleeps on token, because another drives
	token   chan struct{}      // capacity 1

	expired  bool // the deadline has passed
	deadline time.Time
	timer    *time.Timer
}

func (s *Stream) waiters() [3]*waiter {
	return [...]*waiter{&s.reader, &s.writer, &s.closer}
}

// wake gives the waiter a token if it sleeps on one.
func (w *waiter) wake() {
	if !w.waiting {
		return
	}
	select {
	case w.token <- struct{}{}:
	default:
	}
}

// wakeReady wakes those whose wait is over. Who drives sees for itself: the
// completion that ended its wait also ended its sleep.
func (s *Stream) wakeReady() {
	for _, w := range s.waiters() {
		if w.waiting && w.done(s) {
			w.wake()
		}
	}
}

// wakeAll wakes everybody, also who drives, after a change that no completion
// brought: a deadline, Close, an event of the connection manager, an error.
func (s *Stream) wakeAll() {
	for _, w := range s.waiters() {
		w.wake()
	}
	if s.driving {
		s.cq.Wake()
	}
}

// handOver wakes one waiter, if nobody drives, so that it does. It is called by
// whoever stops driving, for whatever reason, before it leaves mu.
func (s *Stream) handOver() {
	if s.driving {
		return
	}
	for _, w := range s.waiters() {
		if w.waiting {
			w.wake()
			return
		}
	}
}

// await waits until w's wait is over: until w.done reports true. It is called,
// and returns, with mu held, inside an operation (enter, leave).
func (s *Stream) await(w *waiter) {
	w.awaits = true
	for !w.done(s) {
		if s.poll() || s.settle() {
			continue
		}
		s.speak()
		if !s.driving {
			s.drive(w)
			continue
		}
		s.attend()
		w.waiting = true
		s.mu.Unlock()
		<-w.token
		s.mu.Lock()
		w.waiting = false
	}
	w.awaits = false
	s.handOver()
}

// drive waits for the completion queue, for everybody. Called with mu held.
func (s *Stream) drive(w *waiter) {
	s.driving = true
	s.mute()
	if !s.beforeSleep(w) {
		s.sleep(w)
	}
	s.driving = false
}

// sleep arms the queue and sleeps until an event or a Wake.
func (s *Stream) sleep(w *waiter) {
	s.mute()
	if err := s.cq.Arm(); err != nil {
		s.fail(&ConnError{syscall.EIO, "arm the completion queue", err})
		return
	}
	// What came before the queue was armed makes no event.
	if s.poll() || w.done(s) {
		return
	}
	s.asleep = true
	s.mu.Unlock()
	err := s.cq.Wait()
	s.mu.Lock()
	s.asleep = false
	if err != nil {
		s.fail(&ConnError{syscall.EIO, "wait for completions", err})
	}
}

// settle draws the conclusion from DISCONNECTED, once the completion queue has
// been polled empty: nothing more will come. It reports whether it did.
func (s *Stream) settle() bool {
	st := &s.state
	if s.lingering || !st.disconnected || st.lost != nil {
		return false
	}
	st.lost = lostError(st.cause)
	return true
}

// A spinner decides whether a wait begins with a spin: it does while spins
// mostly find something, and otherwise tries again now and then.
type spinner struct {
	score int // of the last spins, 0 to maxScore
	waits int
}

const (
	maxPolls = 1000 // where the clock stands still
	maxScore = 8
	spinTry  = 32 // of so many waits that begin without a spin, one does
)

// run spins without mu, but polls with it, yielding to other goroutines. It
// reports whether anything came.
func (sp *spinner) run(s *Stream, w *waiter) bool {
	if s.cfg.Spin == 0 {
		return false
	}
	if sp.score == 0 {
		if sp.waits++; sp.waits%spinTry != 1 {
			return false
		}
	}
	start := time.Now()
	for i := 1; ; i++ {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
		if s.poll() || w.done(s) {
			sp.score = min(sp.score+2, maxScore)
			return true
		}
		if i == maxPolls || i%4 == 0 && time.Since(start) > s.cfg.Spin {
			sp.score = max(sp.score-1, 0)
			return false
		}
	}
}
