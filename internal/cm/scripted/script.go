package scripted

import (
	"syscall"
	"time"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// The names of the calls that a script can mention.
const (
	NewID           = "NewID"
	ResolveAddrInfo = "ResolveAddrInfo"
	QueryAddrInfo   = "QueryAddrInfo"
	GetAddrInfo     = "GetAddrInfo"
	Bind            = "Bind"
	ResolveAddr     = "ResolveAddr"
	ResolveRoute    = "ResolveRoute"
	SetRoute        = "SetRoute"
	Connect         = "Connect"
	Listen          = "Listen"
	ListenPlain     = "ListenPlain"
	Accept          = "Accept"
	AcceptPlain     = "AcceptPlain"
	Reject          = "Reject"
	Disconnect      = "Disconnect"
	Device          = "Device"
	CreateQP        = "CreateQP"
	Interrupt       = "Interrupt"
	Destroy         = "Destroy"
)

// A Step is what a call does: it may block, and it may see to it that events
// are delivered to the identifier. NewID's steps get nil.
type Step func(id *ID) error

// A Script says for each call what its first use does, its second, and so on;
// the last step stands for all further ones.
type Script map[string][]Step

// Event answers with an event, now, from another goroutine.
func Event(t cm.EventType, status int) Step {
	return After(0, cm.Event{Type: t, Status: status})
}

// After answers with an event after a while, from another goroutine.
//
// At once is not a timer of 0: under synctest such timers run in the goroutine
// that sets them, and two at the same time crash the race detector
// (golang/go#78156).
func After(d time.Duration, ev cm.Event) Step {
	return func(id *ID) error {
		if d <= 0 {
			go id.Deliver(ev)
		} else {
			time.AfterFunc(d, func() { id.Deliver(ev) })
		}
		return nil
	}
}

// Before answers with an event that is delivered before the call returns.
func Before(ev cm.Event) Step {
	return func(id *ID) error {
		id.Deliver(ev)
		return nil
	}
}

// Silent begins what never ends: no event comes.
func Silent() Step { return func(*ID) error { return nil } }

// Fail fails.
func Fail(err error) Step { return func(*ID) error { return err } }

// Block blocks for a while, and then does the step. Interrupt ends it with
// EINTR.
func Block(d time.Duration, then Step) Step {
	return func(id *ID) error {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return then(id)
		case <-id.interrupted:
			return syscall.EINTR
		}
	}
}

// Stuck blocks until the channel is closed, whatever Interrupt says, and then
// does the step.
func Stuck(until <-chan struct{}, then Step) Step {
	return func(id *ID) error {
		<-until
		return then(id)
	}
}

// Do runs a function, and then does the step.
func Do(fn func(), then Step) Step {
	return func(id *ID) error {
		fn()
		return then(id)
	}
}

// Both does one step and, if that succeeds, another.
func Both(first, then Step) Step {
	return func(id *ID) error {
		if err := first(id); err != nil {
			return err
		}
		return then(id)
	}
}
