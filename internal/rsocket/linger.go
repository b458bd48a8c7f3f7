package rsocket

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// How a wait begins, where the completion queue can wait on the caller's thread
// (verbs.Lingerer): with a spin, then asleep in the kernel for a moment, and only
// then in Go's poller. To be woken there costs several times as much, since Go
// wakes a second thread with each one that has found work. Each step is taken
// only while it mostly finds something, so that a stream that waits for long goes
// to the poller at once.
const (
	// longSpin is for machines that take long to wake a thread: see patience.
	longSpin = 500 * time.Microsecond

	// lingerTime is how long a wait sleeps on its thread. For so long it may
	// hold up a goroutine that was to run on the same processor, and a Wake.
	lingerTime = time.Millisecond

	// After so long a driver that never went to sleep in Go's poller lets
	// other goroutines run. Go's scheduler takes one that has not for a while
	// for one that is busy, and looks after it every 20 µs.
	yieldEvery = 5 * time.Millisecond
)

// A patience decides how the waits of a stream begin.
//
// A short spin costs less than to sleep and be woken. A long one costs a
// processor, and is worth it only where it makes waits much shorter: where a
// woken thread takes long to run. Whether it does is tried: some waits of a kind
// that a short spin does not end, but a sleep on the thread does, are made the
// other way, ever more seldom while that does not change the verdict.
type patience struct {
	spin, block gauge
	long        bool          // spins are long
	usual       time.Duration // what a wait takes, on average; 0: not known
	yielded     time.Time

	waits    int // since the last trial
	interval int // how many lie between two trials
	trial    int // how many are left of the trial under way
	votes    int // how many of it were for a change
}

const (
	firstTrial = 16
	lastTrial  = 4096
	trialWaits = 10
	majority   = 6
)

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

// plan is how the next wait begins: how long it spins, and how long it then
// sleeps on its thread. short is the length of a short spin.
func (p *patience) plan(short time.Duration) (spin, block time.Duration) {
	long := p.long
	if p.trial > 0 {
		long = !long
	}
	switch {
	case long && p.block.score+p.spin.score > 0:
		spin = max(longSpin, short)
	case p.spin.try():
		spin = short
	}
	if p.block.try() {
		block = lingerTime
	}
	return spin, block
}

// note learns from a wait that began with a spin, unless that is 0, and went
// beyond it if slept.
func (p *patience) note(spin time.Duration, slept, found bool, took time.Duration) {
	if spin > 0 {
		p.spin.note(found && !slept)
	}
	if slept {
		p.block.note(found)
	}
	if !found {
		p.long = p.long && p.spin.score > 0
		return
	}
	if p.trial > 0 {
		p.judge(took)
		return
	}
	if p.usual == 0 {
		p.usual = took
	}
	p.usual += (min(took, 2*p.usual) - p.usual) / 8
	if p.waits++; p.waits >= max(p.interval, firstTrial) && (p.long || p.spin.score == 0) {
		p.trial, p.votes = trialWaits, 0
	}
}

// judge counts a wait of a trial: is it as it would have to be for a change?
func (p *patience) judge(took time.Duration) {
	if p.long && 7*took < 8*p.usual || !p.long && 8*took < 7*p.usual {
		p.votes++
	}
	if p.trial--; p.trial > 0 {
		return
	}
	p.waits = 0
	if p.votes < majority {
		p.interval = min(2*max(p.interval, firstTrial), lastTrial)
		return
	}
	p.long = !p.long
	p.usual, p.interval = 0, firstTrial
}

// bulkMean is from which mean size of messages on a stream is bulk.
const bulkMean = 16 << 10

// noteSize takes a data message into the mean.
func (s *Stream) noteSize(n int) { s.mean += (n - s.mean) / 4 }

// beforeSleep is how a wait begins. It reports whether anything came. Bulk traffic
// is better off with the wait that is slower to wake: more comes with each event,
// and the processors are left to the device, where it is software.
func (s *Stream) beforeSleep(w *waiter) bool {
	if s.lingerer != nil && s.mean < bulkMean {
		return s.linger()
	}
	return s.spin.run(s, w)
}

// lingerers is how many threads of this process linger. Half of Go's processors
// at the most: others are left to run goroutines.
var lingerers atomic.Int32

// linger waits for a short time on the thread. It reports whether anything came.
// Called with mu held.
func (s *Stream) linger() bool {
	p := &s.patience
	spin, block := p.plan(s.cfg.Spin)
	if spin == 0 && block == 0 {
		return false
	}
	defer lingerers.Add(-1)
	if lingerers.Add(1) > int32(max(runtime.GOMAXPROCS(0)/2, 1)) {
		return false
	}
	s.lingering = true
	s.mu.Unlock()
	start := time.Now()
	if start.Sub(p.yielded) > yieldEvery {
		p.yielded = start
		runtime.Gosched()
	}
	n, slept, err := s.lingerer.Linger(s.wc[:], spin, block)
	took := time.Since(start)
	s.mu.Lock()
	s.lingering = false
	if err != nil {
		s.fail(&ConnError{syscall.EIO, "wait for completions", err})
	}
	p.note(spin, slept, n > 0, took)
	if n > 0 {
		s.act(n)
	}
	return n > 0
}
