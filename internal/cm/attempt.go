package cm

import (
	"context"
	"sync"
	"syscall"
	"time"
)

// An attempt is one address being dialed: one identifier, one endpoint, and the
// worker goroutine that owns both from their creation to the hand-over.
//
//	                open ──▶ addrinfo ──▶ addr ──▶ route ──▶ connect ──▶ established
//	                  │          │       ┌─▶│─┐   ┌─▶│─┐        │             │
//	                  │          │       └──┼─┘   └──┼─┘        │             │ stop the interrupt,
//	                  │          │   ETIMEDOUT, time │ left     │             │ then hand over
//	call fails,       │          │          │        │          │             ▼
//	failing event,    └──────────┴──────────┴────────┴──────────┤        ┌─────────┐ the caller is there
//	wrong event,                                                │        │delivered├──────▶ the caller owns
//	device removed,                                             ▼        └────┬────┘        the Connection
//	guard, context  ────▶ Interrupt ───────────────────────▶ failed           │ the caller has left
//	                                                            │             ▼
//	                                                            └──▶ Release, Destroy ──▶ gone
//
// The caller waits for the result or for the attempt's context, whichever is
// first (see await), so it can leave in every state; the end of the context
// also interrupts the identifier (see interruptOn), which makes the worker come
// to "failed" from any call that blocks. The context ends by the caller's, by
// the address's share of the time, or by the guard of a call that never ends.
type attempt struct {
	m      *Manager
	r      *DialRequest
	target target

	ctx    context.Context
	cancel context.CancelCauseFunc
	gone   chan struct{} // closed when the worker has failed and cleaned up

	id  ID
	ep  Endpoint
	box *inbox

	mu sync.Mutex
	at StageInfo // what the worker is doing, for a caller that leaves
}

// A target is where an attempt goes.
type target struct {
	dst   Addr
	known *AddrInfo // the subnet administrator's answer, in network ib
}

// newAttempt prepares an attempt whose context must be cancelled in the end.
func (m *Manager) newAttempt(ctx context.Context, r *DialRequest, t target) *attempt {
	a := &attempt{m: m, r: r, target: t, gone: make(chan struct{}), box: newInbox()}
	a.at = StageInfo{Stage: StageOpen, Call: callCreateID, Addr: t.dst}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	return a
}

// dial runs the worker and returns its result, or leaves it behind.
func (a *attempt) dial() (*Connection, error) {
	defer a.cancel(nil)
	if a.ctx.Err() != nil {
		return nil, a.ended()
	}
	conn, err, left := await(a.ctx, func() (*Connection, error) {
		conn, err := a.run()
		if err != nil {
			close(a.gone)
		}
		return conn, err
	}, func(conn *Connection) {
		conn.discard()
		close(a.gone)
	})
	if left {
		return nil, a.ended()
	}
	return conn, err
}

// run is the worker.
func (a *attempt) run() (*Connection, error) {
	id, err := a.open()
	if err != nil {
		return nil, err
	}
	a.id = id
	id.Handle(a.box.put)
	stop := interruptOn(a.ctx, id)
	err = a.stages()
	if !stop() && err == nil {
		err = a.ended()
	}
	if err != nil {
		if a.ep != nil {
			a.ep.Release()
		}
		_ = id.Destroy() // the attempt's own error is the one that counts
		return nil, err
	}
	conn := newConnection(id, a.ep, a.box)
	if !conn.Remote.AddrPort.IsValid() {
		conn.Remote = a.target.dst
	}
	return conn, nil
}

// stages takes the identifier from nothing to established.
func (a *attempt) stages() error {
	info, err := a.resolveAddrInfo()
	if err != nil {
		return err
	}
	if err := a.resolveAddr(info); err != nil {
		return err
	}
	if err := a.resolveRoute(info); err != nil {
		return err
	}
	return a.connect(info)
}

const callCreateID = "rdma_create_id"

// open makes the identifier. It may open libraries and devices.
func (a *attempt) open() (ID, error) {
	info := StageInfo{Stage: StageOpen, Call: callCreateID, Addr: a.target.dst}
	began := a.begin(info)
	id, err := a.m.provider.NewID()
	if err != nil {
		err = a.callFailed(info, err)
	}
	a.r.Trace.done(info, began, Event{}, err)
	return id, err
}

// begin records and announces what is done next.
func (a *attempt) begin(info StageInfo) time.Time {
	a.mu.Lock()
	a.at = info
	a.mu.Unlock()
	a.r.Trace.start(info)
	return time.Now()
}

// step makes one call and waits for the event that answers it. Nothing is done
// when the attempt's context has ended, and the wait ends with it. guard bounds
// the two together where nothing else does; 0 is none.
func (a *attempt) step(info StageInfo, guard time.Duration, call func() error, want EventType) (Event, error) {
	info.Addr = a.target.dst
	if a.ctx.Err() != nil {
		return Event{}, a.endedAt(info)
	}
	began := a.begin(info)
	if guard > 0 {
		watchdog := time.AfterFunc(guard, func() { a.cancel(&guardError{guard}) })
		defer watchdog.Stop()
	}
	ev, err := a.answer(info, call, want)
	if err == nil && a.ctx.Err() != nil {
		err = a.endedAt(info)
	}
	a.r.Trace.done(info, began, ev, err)
	return ev, err
}

func (a *attempt) answer(info StageInfo, call func() error, want EventType) (Event, error) {
	if err := call(); err != nil {
		return Event{}, a.callFailed(info, err)
	}
	if want == None {
		return Event{}, nil
	}
	for {
		ev, ok := a.box.next(a.ctx.Done())
		switch {
		case !ok:
			return Event{}, a.endedAt(info)
		case ev.Type == want && ev.Status == 0:
			return ev, nil
		case ignored(ev.Type):
			continue
		}
		return ev, a.eventFailed(info, ev, want)
	}
}

// ignored says which events mean nothing to a sequence: they concern a
// connection that was, or may become, something else.
func ignored(t EventType) bool { return t == TimewaitExit || t == AddrChange }

// failing says which events end which stage.
func failing(stage Stage, t EventType) bool {
	switch t {
	case DeviceRemoval:
		return true
	case AddrInfoError:
		return stage == StageAddrInfo
	case AddrError:
		return stage == StageAddr
	case RouteError:
		return stage == StageRoute
	case Rejected, Unreachable, ConnectError, Disconnected:
		return stage == StageConnect || stage == StageAccept
	}
	return false
}

// callFailed is the error of a call that could not begin, unless it was the end
// of the context that made it fail.
func (a *attempt) callFailed(info StageInfo, err error) error {
	if a.ctx.Err() != nil {
		return a.endedAt(info)
	}
	errno := errnoOf(err)
	return &StageError{Stage: info.Stage, Call: info.Call, Addr: info.Addr, Attempt: info.Attempt,
		Errno: errno, Err: err, Hint: hint(info.Stage, errno, 0, info.Addr, a.r.Local)}
}

// eventFailed is the error of an event that is not the wanted one.
func (a *attempt) eventFailed(info StageInfo, ev Event, want EventType) error {
	e := &StageError{Stage: info.Stage, Call: info.Call, Addr: info.Addr, Attempt: info.Attempt,
		Event: ev.Type, Status: ev.Status}
	if failing(info.Stage, ev.Type) || ev.Type == want {
		e.Errno = eventErrno(ev)
		e.Err = eventCause(e.Errno, ev)
		e.Hint = hint(info.Stage, e.Errno, ev.Status, info.Addr, a.r.Local)
	} else {
		e.Errno = syscall.EPROTO
		e.Err = &unexpectedEvent{got: ev.Type, want: want}
	}
	return e
}

// ended is the error of an attempt whose context is over, at the place where
// its worker is.
func (a *attempt) ended() error {
	a.mu.Lock()
	at := a.at
	a.mu.Unlock()
	return a.endedAt(at)
}

func (a *attempt) endedAt(at StageInfo) error {
	e := &StageError{Stage: at.Stage, Call: at.Call, Addr: at.Addr, Attempt: at.Attempt}
	if guard, ok := context.Cause(a.ctx).(*guardError); ok {
		e.Errno, e.Err = syscall.ETIMEDOUT, guard
	} else {
		e.Err = newContextError(a.ctx)
		if e.Timeout() {
			e.Hint = hint(at.Stage, syscall.ETIMEDOUT, 0, at.Addr, a.r.Local)
		}
	}
	return e
}

// guard is how long a call without a timeout_ms may take: as long as it likes
// when the context has a deadline.
func (a *attempt) guard() time.Duration {
	if _, ok := a.ctx.Deadline(); ok {
		return 0
	}
	return untimedGuard
}

// timed runs a stage whose call takes a timeout_ms, again after a time-out while
// time is left.
func (a *attempt) timed(stage Stage, name string, call func(timeoutMS int) error, want EventType) error {
	deadline, limited := a.ctx.Deadline()
	for n := 0; ; n++ {
		began := time.Now()
		ms := attemptTimeout(n, began, deadline)
		guard := time.Duration(ms)*time.Millisecond + eventSlack
		info := StageInfo{Stage: stage, Call: name, Attempt: n, TimeoutMS: ms}
		_, err := a.step(info, guard, func() error { return call(ms) }, want)
		e, failed := err.(*StageError)
		if !failed || e.Errno != syscall.ETIMEDOUT || !limited && n+1 == maxAttempts {
			return err
		}
		if !a.pause(minAttemptGap - time.Since(began)) {
			info.Addr = a.target.dst
			return a.endedAt(info)
		}
	}
}

// pause waits, and reports false if the attempt's context ended meanwhile or
// its time is up.
func (a *attempt) pause(d time.Duration) bool {
	if deadline, ok := a.ctx.Deadline(); ok && time.Until(deadline) <= max(d, 0) {
		<-a.ctx.Done() // the context's own timer is due
		return false
	}
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-a.ctx.Done():
		}
	}
	return a.ctx.Err() == nil
}
