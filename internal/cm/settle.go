package cm

import (
	"sync"
	"time"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// How an iWARP connect that nobody wants any more is ended
//
// To break off an iWARP connect is to close a TCP connection. A peer whose
// connection manager has not looked at it by then is Linux's siw at risk: up to
// 6.1 at least, a connection that closes before siw's worker has taken it from
// the queue of its listening socket ends the listener in its place, and later
// corrupts a list in the kernel. So when the context of an attempt ends while
// its connect is under way, the worker, which the caller has left, lets the
// connect come to its end for settleTime before it interrupts the identifier and
// destroys the queue pair: a peer that is there answers within that time, and
// one that is not has no TCP connection to lose.
//
//	idle ──Connect begins──▶ calling ──returns──▶ awaiting ──its event──▶ idle
//	                            └──────fails──────────────────────────────▶┘
//
// On InfiniBand and RoCE nothing of this is needed, and nothing waits.
type settling struct {
	mu       sync.Mutex
	called   chan struct{} // closed when the call has returned; nil if none was made
	awaiting bool          // the worker's: the call's event has not come
}

// settleTime is a few round trips across a continent, and short enough that
// many abandoned attempts do not pile up: siw has few queue pairs.
const settleTime = 250 * time.Millisecond

// begin notes that Connect is about to be called on an iWARP device. The worker
// calls returned when it has been.
func (s *settling) begin() (returned func(error)) {
	called := make(chan struct{})
	s.mu.Lock()
	s.called = called
	s.mu.Unlock()
	return func(err error) {
		s.awaiting = err == nil
		close(called)
	}
}

// call waits until a Connect that is under way has returned, for settleTime at
// the most.
func (s *settling) call() {
	s.mu.Lock()
	called := s.called
	s.mu.Unlock()
	if called == nil {
		return
	}
	t := time.NewTimer(settleTime)
	defer t.Stop()
	select {
	case <-called:
	case <-t.C:
	}
}

// event waits for the event that answers a Connect which has returned, for
// settleTime at the most.
func (s *settling) event(box *inbox) {
	if !s.awaiting {
		return
	}
	over := make(chan struct{})
	t := time.AfterFunc(settleTime, func() { close(over) })
	defer t.Stop()
	for {
		if ev, ok := box.next(over); !ok || !ignored(ev.Type) {
			return
		}
	}
}

// isIWARP reports whether an identifier's device speaks iWARP.
func isIWARP(id ID) bool {
	dev, err := id.Device()
	return err == nil && dev.Info().Transport == verbs.IWARP
}
