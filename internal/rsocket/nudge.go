package rsocket

import (
	"time"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// Linux's siw, when it accepts, sends its answer before it listens to what comes
// next: a dialer's first frame can arrive in between and lie there until another
// comes. So an iWARP dialer sends an empty Write now and then until it has heard
// from the peer, or for half a second: one is enough, and no peer notices.
const (
	nudgeEvery = 30 * time.Millisecond
	maxNudges  = 16

	// firstWord is how long a dialer that neither reads nor writes lets an
	// acceptor wait that may want to speak, where no grant is its first word.
	firstWord = 2 * time.Millisecond
)

// startNudging begins it. Called with mu held.
func (s *Stream) startNudging() {
	if s.immediate || s.cfg.Acceptor {
		return
	}
	first := nudgeEvery
	if s.callerDriven {
		first = firstWord
	}
	s.nudge = time.AfterFunc(first, s.sendNudge)
}

func (s *Stream) sendNudge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.closed {
		return
	}
	if !s.driving {
		s.poll()
	}
	s.speak()
	if s.recvs > 0 || !s.canPost() || s.nudges == maxNudges {
		return
	}
	if s.slots(1, lastReserve-1) {
		s.nudges++
		s.postEmpty(verbs.OpWrite)
	}
	s.nudge.Reset(nudgeEvery)
}
