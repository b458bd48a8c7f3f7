package cm

import (
	"context"
	"sync"
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

	id       ID
	ep       Endpoint
	box      *inbox
	settling settling // how an iWARP connect that was begun is ended

	mu  sync.Mutex
	at  StageInfo // what the worker is doing, for a caller that leaves
	way way       // what carries the dial, so far
	tcp TCPID     // id, if it is one
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
		conn.Discard()
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
	if tcp, ok := id.(TCPID); ok {
		a.mu.Lock()
		a.tcp = tcp
		a.mu.Unlock()
	}
	id.Handle(a.box.put)
	stop := interruptOn(a.ctx, func() {
		a.settling.call()
		id.Interrupt()
	})
	err = a.stages()
	if !stop() && err == nil {
		err = a.ended()
	}
	if err != nil {
		a.settling.event(a.box)
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
