package cm

import (
	"context"
	"errors"
	"syscall"
	"time"
)

const (
	callAccept    = "rdma_accept"
	callAcceptTCP = "accept"

	// failureGap is how far apart the failures are that Accept returns.
	failureGap = time.Second
)

// A handshake is one connect request, and the goroutine that owns its identifier
// until Accept has it.
//
//	          slot         rdma_accept   ESTABLISHED     room          Accept
//	waiting ───────▶ preparing ───▶ accepting ───▶ established ───▶ queued ───▶ Accept's caller
//	   │ no slot in      │ the peer's     │ event,         │ endpoint      │ Close
//	   │ time, peer      │ data refused,  │ time,          │ says no,      │
//	   │ gone, Close     │ no resources,  │ evicted,       │ Close         │
//	   │                 │ Close          │ Close          │               │
//	   ▼                 ▼                ▼                ▼               ▼
//	 Reject            Reject,          Release          Release         Release
//	   │               Release            │                │               │
//	   └─────────────────┴────────────────┴────────────────┴───────────────┴──▶ Destroy, slot freed
//
// After Close nothing is rejected: destroying the identifier does that. A peer that
// speaks no RDMA is established when it has a slot, and its identifier is gone when
// its connection is queued.
type handshake struct {
	l       *Listener
	id      ID
	request Event
	peer    Addr
	full    bool // refuse at once: see admission.go
	slot    bool // has one
	begun   bool // rdma_accept has been called
	ep      Endpoint
	box     *inbox

	ctx    context.Context
	cancel context.CancelCauseFunc
}

func (l *Listener) newHandshake(request Event) *handshake {
	h := &handshake{l: l, id: request.Request, request: request, box: newInbox()}
	h.ctx, h.cancel = context.WithCancelCause(l.ctx)
	return h
}

// serve goes through the handshake, in the request's own goroutine.
func (h *handshake) serve() {
	defer h.cancel(nil)
	stop := interruptOn(h.ctx, h.id.Interrupt)
	h.peer.AddrPort = h.id.RemoteAddr()
	h.id.Handle(h.box.put)

	err := h.admit()
	if err == nil && !h.request.Plain {
		err = h.establish()
	}
	if !h.begun && err != nil && h.ctx.Err() == nil {
		_ = h.id.Reject(nil) // a peer that cannot be told finds out by its own time-out
	}
	if !stop() && err == nil {
		err = newContextError(h.ctx)
	}
	var conn *Connection
	if err == nil {
		conn, err = h.connection()
	}
	if err == nil {
		h.l.queue <- conn // has room for every slot
		return
	}
	if h.ep != nil {
		h.ep.Release()
	}
	_ = h.id.Destroy() // the handshake's own error is the one that counts
	if h.slot {
		<-h.l.slots
	}
	h.failed(err)
}

// connection is what the handshake has led to.
func (h *handshake) connection() (*Connection, error) {
	if !h.request.Plain {
		return newConnection(h.id, h.ep, h.box), nil
	}
	conn, err := newPlainConnection(h.id)
	if err != nil {
		return nil, h.callFailed(callAcceptTCP, err)
	}
	return conn, nil
}

// establish builds the connection.
func (h *handshake) establish() error {
	expiry := time.AfterFunc(h.l.r.HandshakeTimeout, func() { h.cancel(errHandshakeTimeout) })
	defer expiry.Stop()

	h.ep = h.l.r.NewEndpoint()
	param, err := h.ep.Prepare(h.id, h.request)
	if err != nil {
		return h.callFailed(callCreateQP, err)
	}
	if h.ctx.Err() != nil {
		return h.ended()
	}
	h.begun = true
	if err := h.id.Accept(param); err != nil {
		return h.callFailed(callAccept, err)
	}
	ev, err := h.established()
	if err != nil {
		return err
	}
	if err := h.ep.Established(ev); err != nil {
		return h.callFailed(callAccept, err)
	}
	return nil
}

// established waits for the event that the peer has finished the handshake.
func (h *handshake) established() (Event, error) {
	grace := time.NewTimer(h.l.r.HandshakeTimeout / graceShare)
	defer grace.Stop()
	var evict <-chan struct{}
	for {
		if ev, ok := h.box.take(); ok {
			switch {
			case ev.Type == Established && ev.Status == 0:
				return ev, nil
			case ignored(ev.Type):
				continue
			}
			return ev, h.eventFailed(ev)
		}
		select {
		case <-h.box.ready:
		case <-grace.C:
			evict = h.l.evict
		case <-evict:
			return Event{}, errHandshakeEvicted
		case <-h.ctx.Done():
			return Event{}, h.ended()
		}
	}
}

func (h *handshake) callFailed(call string, err error) error {
	if h.ctx.Err() != nil {
		return h.ended()
	}
	errno := errnoOf(err)
	return &StageError{Stage: StageAccept, Call: call, Addr: h.peer, Errno: errno, Err: err}
}

func (h *handshake) eventFailed(ev Event) error {
	e := &StageError{Stage: StageAccept, Call: callAccept, Addr: h.peer, Event: ev.Type, Status: ev.Status}
	if failing(StageAccept, ev.Type) || ev.Type == Established {
		e.Errno = eventErrno(ev)
		e.Err = eventCause(e.Errno, ev)
	} else {
		e.Errno, e.Err = syscall.EPROTO, &unexpectedEvent{got: ev.Type, want: Established}
	}
	return e
}

// ended is why the handshake's context is over: its time, or Close.
func (h *handshake) ended() error {
	if cause := context.Cause(h.ctx); cause == errHandshakeTimeout {
		return cause
	}
	return newContextError(h.ctx)
}

// failed tells of a peer that did not become a connection: the listener's owner
// if it wants to know, and Accept if it was for want of this host's resources.
func (h *handshake) failed(err error) {
	if h.l.r.Refused != nil && h.l.ctx.Err() == nil {
		h.l.r.Refused(h.peer, err)
	}
	var e *StageError
	if errors.As(err, &e) && e.Event == None && e.exhausted() {
		h.l.lacking(err)
	}
}

// lacking lets Accept tell that this host lacked the means for a peer: one at a
// time, and not often, since Accept returns connections in between.
func (l *Listener) lacking(err error) {
	now := time.Now().UnixNano()
	last := l.lastFail.Load()
	if last != 0 && now-last < int64(failureGap) || !l.lastFail.CompareAndSwap(last, now) {
		return
	}
	select {
	case l.failures <- err:
	default:
	}
}

// takingFailed tells Accept of a peer that the provider could not take, so that there
// is not even a request. Whatever it is, the provider goes on trying: it may pass.
func (l *Listener) takingFailed(ev Event) {
	if ev.Status == 0 {
		return
	}
	errno := eventErrno(ev)
	e := &StageError{Stage: StageAccept, Call: callAcceptTCP, Addr: Addr{AddrPort: l.addr}, Errno: errno, Err: eventCause(errno, ev)}
	if !e.Temporary() {
		e.Errno, e.Err = 0, &passing{e.Err}
	}
	l.lacking(e)
}

// A passing error may not come again, although its errno does not say so.
type passing struct{ error }

func (e *passing) Unwrap() error   { return e.error }
func (e *passing) Temporary() bool { return true }

// deviceRemoved ends a listener on an address of the device that has gone. The
// device cannot go before its identifiers have. It runs in the dispatcher.
func (l *Listener) deviceRemoved(ev Event) {
	for _, id := range l.ids {
		_ = id.Destroy() // the removal is the error that counts
	}
	l.ids = nil
	l.fail(&StageError{Stage: StageListen, Call: callListen, Addr: Addr{AddrPort: l.addr}, Event: ev.Type, Status: ev.Status,
		Errno: syscall.ENODEV, Err: syscall.ENODEV, Hint: "the RDMA device of the listener's address has gone: listen again when it is back"})
}

// shutdown destroys all that the listener has left. It runs in the dispatcher
// when the listener has been closed. The peers that nobody has accepted are told
// side by side.
func (l *Listener) shutdown() {
	for _, id := range l.ids {
		_ = id.Destroy() // nobody is left to tell
	}
	close(l.free)
	for _, ev := range l.inbox.drain() {
		if ev.Request != nil {
			_ = ev.Request.Destroy()
		}
	}
	l.wg.Wait()
	for {
		select {
		case conn := <-l.queue:
			go conn.Discard()
		default:
			return
		}
	}
}
