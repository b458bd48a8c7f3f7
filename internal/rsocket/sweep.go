package rsocket

import (
	"sync"
	"syscall"
	"time"
)

// A sweep looks after the streams that nobody drives: once a second it polls all of
// them without waiting, so that grants and control messages go out, and sees to
// keepalives. Those where that found something to do it polls again soon, and those
// alone: a peer that keeps one stream busy must not have all others looked at.
// Both passes are timers and not goroutines, and run only while there are streams.
type sweep struct {
	mu      sync.Mutex
	streams []*Stream
	timer   *time.Timer
	scratch []*Stream // those of the pass under way, used by run alone

	busy      []*Stream // whose hurry is not 0
	busyTimer *time.Timer
}

// sweeper is shared by all streams.
var sweeper sweep

const (
	sweepEvery = time.Second
	sweepSoon  = 10 * time.Millisecond

	// busyPasses is how many passes that find nothing make a busy stream one of
	// many again.
	busyPasses = 8
)

func (sw *sweep) add(s *Stream) {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	s.swept = len(sw.streams) + 1
	sw.streams = append(sw.streams, s)
	if sw.timer == nil {
		sw.timer = time.AfterFunc(sweepEvery, sw.run)
	}
}

func (sw *sweep) remove(s *Stream) {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	if s.swept == 0 {
		return
	}
	last := len(sw.streams) - 1
	moved := sw.streams[last]
	sw.streams[s.swept-1], sw.streams[last] = moved, nil
	moved.swept = s.swept
	sw.streams = sw.streams[:last]
	s.swept = 0
	if last > 0 {
		return
	}
	for _, b := range sw.busy {
		b.hurry = 0
	}
	sw.busy = nil
	for _, t := range []**time.Timer{&sw.timer, &sw.busyTimer} {
		if *t != nil {
			(*t).Stop()
			*t = nil
		}
	}
}

// soon has a stream looked at soon: nobody will drive it from now on, or it has
// written something whose arrival is to be confirmed.
func (sw *sweep) soon(s *Stream) {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	sw.hasten(s)
}

// hasten makes a stream one of the busy ones. Called with mu held.
func (sw *sweep) hasten(s *Stream) {
	if s.swept == 0 {
		return
	}
	if s.hurry == 0 {
		sw.busy = append(sw.busy, s)
	}
	s.hurry = busyPasses
	if sw.busyTimer == nil {
		sw.busyTimer = time.AfterFunc(sweepSoon, sw.runBusy)
	}
}

// run makes a pass over all. Only one is under way at a time: the timer is set again
// at the end; a timer that was stopped too late finds another in its place.
func (sw *sweep) run() {
	sw.mu.Lock()
	timer := sw.timer
	streams := append(sw.scratch[:0], sw.streams...)
	sw.scratch = nil
	sw.mu.Unlock()

	now := time.Now()
	for i, s := range streams {
		if s.sweep(now) {
			sw.soon(s)
		}
		streams[i] = nil
	}

	sw.mu.Lock()
	defer sw.mu.Unlock()
	sw.scratch = streams[:0]
	if sw.timer != nil && sw.timer == timer {
		sw.timer = time.AfterFunc(sweepEvery, sw.run)
	}
}

// runBusy makes a pass over the busy ones, as run does over all.
func (sw *sweep) runBusy() {
	sw.mu.Lock()
	timer, streams := sw.busyTimer, sw.busy
	sw.busy = nil
	sw.mu.Unlock()

	now := time.Now()
	kept := streams[:0]
	for _, s := range streams {
		busy := s.sweep(now)
		sw.mu.Lock()
		if busy {
			s.hurry = busyPasses
		} else {
			s.hurry--
		}
		if s.swept == 0 {
			s.hurry = 0
		}
		if s.hurry > 0 {
			kept = append(kept, s)
		}
		sw.mu.Unlock()
	}
	clear(streams[len(kept):])

	sw.mu.Lock()
	defer sw.mu.Unlock()
	sw.busy = append(kept, sw.busy...)
	switch {
	case sw.busyTimer != timer:
		return // its pass has them, too
	case len(sw.busy) == 0:
		sw.busyTimer = nil
		return
	}
	sw.busyTimer = time.AfterFunc(sweepSoon, sw.runBusy)
}

// A probe asks the peer's device for a sign of life, for keepalive or for confirm:
// see sendProbe.
type probe struct {
	outstanding bool
	id          uint64
	at          time.Time

	seen  uint64    // heardFrom at the last sweep
	since time.Time // when it last changed, as far as sweeps can tell
}

// flushGrace is how long the connection manager has to say why the queue pair
// was flushed.
const flushGrace = 2 * time.Second

// sweep looks after a stream, and reports whether there was anything to do.
func (s *Stream) sweep(now time.Time) (busy bool) {
	if !s.mu.TryLock() {
		return false // somebody is at it
	}
	defer s.mu.Unlock()
	st := &s.state
	if st.closed {
		return false
	}
	if !s.driving {
		before := s.recvs
		for range 8 {
			if !s.poll() {
				s.settle()
				break
			}
		}
		busy = s.recvs != before
		s.flush()
		s.wakeReady()
	}
	s.attend()
	if st.failed != nil || st.lost != nil || s.over() {
		return busy
	}
	if st.flushed {
		if st.flushedAt.IsZero() {
			st.flushedAt = now
		}
		if now.Sub(st.flushedAt) >= flushGrace {
			s.fail(&ConnError{syscall.ECONNRESET, "the queue pair was flushed", st.postErr})
		}
		return busy
	}
	s.confirm(now)
	s.keepAlive(now)
	return busy || s.confirmDue()
}

// keepAlive probes a peer that has been silent for long, and gives it up when it
// does not answer.
func (s *Stream) keepAlive(now time.Time) {
	ka, p := &s.cfg.KeepAlive, &s.probe
	if s.heardFrom != p.seen || p.since.IsZero() {
		p.seen, p.since = s.heardFrom, now
	}
	if !ka.Enable {
		return
	}
	patience := ka.Interval * time.Duration(ka.Count)
	switch {
	case !s.immediate && s.cfg.Acceptor && s.recvs == 0 && s.peerReads > 0:
		// An iWARP acceptor must not speak before the dialer's first
		// message, so it cannot probe; a dialer that serves Reads is one of
		// ours, and sends that message at once.
		if now.Sub(p.since) >= ka.Idle+patience {
			s.fail(&ConnError{syscall.ETIMEDOUT, "the peer has never said anything", nil})
		}
	case p.outstanding:
		if now.Sub(p.at) >= patience && now.Sub(p.since) >= ka.Idle+patience && !s.hostAnswers(ka.Idle+patience) {
			s.fail(&ConnError{syscall.ETIMEDOUT, "the peer has not answered keepalives for " + patience.String(), nil})
		}
	case now.Sub(p.since) >= ka.Idle:
		// Where the peer serves no Reads, TCP's own time-out is all there is.
		s.sendProbe(now)
	}
}

// hostAnswers reports whether the peer's host has been heard lately: its process may
// stand still, and with it a device that works in its caller.
func (s *Stream) hostAnswers(lately time.Duration) bool {
	if s.teller == nil {
		return false
	}
	silence, known := s.teller.Silence()
	return known && silence < lately
}
