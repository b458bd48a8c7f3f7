package cm

import (
	"errors"
	"time"
)

// How many peers a listener deals with at once
//
// A connect request costs nothing but its identifier until its handshake
// begins, which costs a queue pair and registered memory. So there are two
// bounds. Slots, Backlog of them, are for what is expensive: a handshake in
// progress or an established connection that Accept has not returned. Up to
// maxWaiting more requests wait for a slot as bare identifiers, no longer than
// HandshakeTimeout, in the order of their arrival. What comes beyond that is
// refused at once.
//
// Peers that begin a handshake and never finish it can fill the slots. While
// somebody waits, a handshake that is older than its grace gives its slot to
// the one that has waited longest; while nobody waits it keeps it for the whole
// HandshakeTimeout. So such peers slow the others down to Backlog connections
// in a grace, not in a HandshakeTimeout, and a peer that is merely slow
// suffers only when the listener is full. An established connection is never
// given up for a waiting one.

const (
	// maxWaiting is how many requests may wait for a slot.
	maxWaiting = 1024

	// maxRefusing is how many requests beyond that are being refused in
	// goroutines of their own, since a provider may take milliseconds for
	// each.
	maxRefusing = 16

	// graceShare of the HandshakeTimeout is how long a handshake keeps its
	// slot when others wait.
	graceShare = 5
)

var (
	errBacklogFull      = errors.New("the listener's backlog is full")
	errHandshakeTimeout = errors.New("the peer did not finish its handshake in time")
	errHandshakeEvicted = errors.New("the peer did not finish its handshake in time, with others waiting")
)

// dispatch is the listener's goroutine: it takes what event has put into the inbox,
// and cleans up in the end.
func (l *Listener) dispatch() {
	for {
		ev, ok := l.inbox.next(l.ctx.Done())
		if !ok {
			break
		}
		switch ev.Type {
		case ConnectRequest:
			if !l.begin(ev) {
				// The dispatcher itself refuses: the requests behind
				// this one wait in the inbox as bare identifiers.
				h := l.newHandshake(ev)
				h.full = true
				h.serve()
			}
		case DeviceRemoval:
			// A listener on all addresses serves the devices that are
			// left, and those that come.
			if !l.wildcard {
				l.deviceRemoved(ev)
			}
		case UnknownEvent:
			l.takingFailed(ev)
		}
	}
	l.shutdown()
}

// event is the handler of the listener's identifiers. A request is begun where it comes
// in; what else there is, is the dispatcher's.
func (l *Listener) event(ev Event) {
	if ev.Type != ConnectRequest || !l.begin(ev) {
		l.inbox.put(ev)
	}
}

// begin has a goroutine serve a request, or refuse it; it reports false if there are
// too many even for that. A request counts until it has its slot or has stopped waiting
// for one, before its identifier is told: the software NIC then delivers the next, which
// must find room.
func (l *Listener) begin(request Event) bool {
	waiting := l.waiting.Add(1)
	if waiting > maxWaiting+maxRefusing {
		l.waiting.Add(-1)
		return false
	}
	h := l.newHandshake(request)
	h.full = waiting > maxWaiting
	l.wg.Go(func() {
		if h.full {
			defer l.waiting.Add(-1)
		}
		h.serve()
	})
	return true
}

// admit waits for a slot.
func (h *handshake) admit() error {
	if h.full {
		return errBacklogFull
	}
	defer h.l.waiting.Add(-1)
	select { // nobody is evicted while there are slots
	case h.l.slots <- struct{}{}:
		h.slot = true
		return nil
	default:
	}
	t := time.NewTimer(h.l.r.HandshakeTimeout)
	defer t.Stop()
	evict := h.l.evict
	for {
		select {
		case h.l.slots <- struct{}{}: // in order of arrival
			h.slot = true
			return nil
		case evict <- struct{}{}:
			evict = nil // one slot is enough
		case <-h.box.ready:
			if err := h.lost(); err != nil {
				return err
			}
		case <-t.C:
			return errBacklogFull
		case <-h.ctx.Done():
			return newContextError(h.ctx)
		}
	}
}

// lost looks at events that have come while the request waited: the peer may
// have gone.
func (h *handshake) lost() error {
	for {
		ev, ok := h.box.take()
		if !ok {
			return nil
		}
		if !ignored(ev.Type) {
			return h.eventFailed(ev)
		}
	}
}
