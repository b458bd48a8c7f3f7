package rsocket

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// How a wait begins, where the completion queue can wait on the caller's thread
// (verbs.Lingerer): with a spin, then asleep in the kernel for a while, and only
// then in Go's poller. To be woken there costs several times as much, since Go
// wakes a second thread with each one that has found work. Each step is taken
// only while it mostly finds something, so that a stream that waits for long goes
// to the poller at once.
const (
	// A spin is as long as a thread takes to be woken, this many times: until
	// then who spins is ahead of who sleeps, and both ends of a connection
	// are, which wait in turns.
	wakesPerSpin = 4
	longestSpin  = 500 * time.Microsecond

	// lingerTime is how long a wait sleeps on its thread. After so long Go
	// takes the processor away from the thread in any case.
	lingerTime = 10 * time.Millisecond

	// After so long a driver that never went to sleep in Go's poller lets
	// other goroutines run. Go's scheduler takes one that has not for a while
	// for one that is busy, and looks after it every 20 µs.
	yieldEvery = 5 * time.Millisecond
)

// A patience decides how the waits of a stream begin.
type patience struct {
	spin, block gauge
	yielded     time.Time
}

// A gauge says whether a step is worth it: while the last ones mostly were, and
// otherwise now and then, to see.
type gauge struct {
	score int // of the last steps, 0 to maxScore
	waits int
}

func (g *gauge) try() bool {
	if g.score > 0 {
		return true
	}
	g.waits++
	return g.waits%spinTry == 1
}

func (g *gauge) note(found bool) {
	if found {
		g.score = min(g.score+2, maxScore)
	} else {
		g.score = max(g.score-1, 0)
	}
}

// plan is how the next wait begins: how long it spins, for at least short, and how
// long it then sleeps on its thread, where a thread that sleeps takes wake to be
// woken.
func (p *patience) plan(short, wake time.Duration) (spin, block time.Duration) {
	if p.spin.try() {
		spin = max(short, min(wakesPerSpin*wake, longestSpin))
	}
	if p.block.try() {
		block = lingerTime
	}
	return spin, block
}

// note learns from a wait that began with a spin, unless that is 0, and went
// beyond it if slept.
func (p *patience) note(spin time.Duration, slept, found bool) {
	if spin > 0 {
		p.spin.note(found && !slept)
	}
	if slept {
		p.block.note(found)
	}
}

// beforeSleep is how a wait begins. It reports whether anything came.
func (s *Stream) beforeSleep(w *waiter) bool {
	if s.lingerer != nil {
		return s.linger()
	}
	return s.spin.run(s, w)
}

// lingerers is how many threads of this process linger. Half of Go's processors
// at the most: others are left to run goroutines. How many there are is looked up
// as seldom as drivers yield.
var lingerers, mostLingerers atomic.Int32

func countProcessors() { mostLingerers.Store(int32(max(runtime.GOMAXPROCS(0)/2, 1))) }

func init() { countProcessors() }

// linger waits for a short time on the thread. It reports whether anything came.
// Called with mu held.
func (s *Stream) linger() bool {
	p := &s.patience
	spin, block := p.plan(s.cfg.Spin, s.lingerer.WakeTime())
	if spin == 0 && block == 0 {
		return false
	}
	defer lingerers.Add(-1)
	if lingerers.Add(1) > mostLingerers.Load() {
		return false
	}
	s.lingering, s.asleep = true, true
	s.mu.Unlock()
	if now := time.Now(); now.Sub(p.yielded) > yieldEvery {
		p.yielded = now
		countProcessors()
		runtime.Gosched()
	}
	n, slept, err := s.lingerer.Linger(s.wc[:], spin, block)
	s.mu.Lock()
	s.lingering, s.asleep = false, false
	if err != nil {
		s.fail(&ConnError{syscall.EIO, "wait for completions", err})
	}
	p.note(spin, slept, n > 0)
	if n > 0 {
		s.act(n)
	}
	return n > 0
}
