package cm

import (
	"context"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// DefaultBacklog is the Backlog of a ListenRequest that says none.
	DefaultBacklog = 128

	// maxBacklog is the most that a Backlog counts for.
	maxBacklog = 1 << 16

	// DefaultHandshakeTimeout is how long a peer gets when a ListenRequest
	// does not say. An iWARP dialer of Linux gives up after the same time.
	DefaultHandshakeTimeout = 10 * time.Second

	// kernelBacklog is the backlog of the identifier itself: requests that
	// have arrived and whose event has not been read. Events are read at
	// once, so it costs nothing; too small a number loses requests, and on
	// InfiniBand and RoCE such a dialer waits for more than a minute. 1024 is
	// the most that Linux takes by default.
	kernelBacklog = 1024

	// closeWait is how long Close waits for the port to be free.
	closeWait = time.Second
)

// A ListenRequest says where to listen and for what.
type ListenRequest struct {
	Network Network // not IB

	// Host is a host name or a numeric address; empty, or an unspecified
	// address, is all addresses of the network. Of a name's addresses the
	// first IPv4 one is taken, or the first, as in package net.
	Host string
	// Service is a port's number or name; 0 or empty lets the connection
	// manager choose.
	Service string
	Names   Names

	// Backlog is how many connections there may be at once that Accept has
	// not returned: handshakes in progress and established connections. Each
	// has its queue pair and memory. 0 is DefaultBacklog. As many peers again,
	// and more, wait their turn without either; see admission.go.
	Backlog int
	// HandshakeTimeout bounds a peer's handshake from when it is begun, and
	// before that the wait for its turn. 0 is DefaultHandshakeTimeout.
	HandshakeTimeout time.Duration

	// Plain asks for the connections of peers that speak no RDMA too, where the
	// provider can hand them over (PlainID): see Connection.Plain. They count
	// as the others do.
	Plain bool

	// NewEndpoint makes what a connection is for, once for each handshake
	// that is begun. It is called by several goroutines.
	NewEndpoint func() Endpoint

	// Refused, if not nil, is told of each peer that did not become a
	// connection, and why. It is called by several goroutines.
	Refused func(peer Addr, err error)
}

// A Listener accepts connections. Its methods may be called concurrently.
//
// Who runs what: the provider's event goroutine gives each connect request a
// goroutine of its own, bounded in number (admission.go), which goes through the
// handshake (accept.go) and puts the connection into queue; Accept takes it from
// there. Requests beyond that number, and all other events, go into inbox, to the
// dispatcher goroutine, which owns the listening identifiers.
type Listener struct {
	m        *Manager
	r        ListenRequest
	addr     netip.AddrPort
	wildcard bool
	ids      []ID // the dispatcher's

	inbox *inbox

	// ctx ends when the listener is closed, and with it everything below.
	ctx    context.Context
	cancel context.CancelFunc
	closed atomic.Bool
	free   chan struct{} // closed when the identifiers that listened are destroyed
	wg     sync.WaitGroup

	slots   chan struct{} // a token for each connection that Accept has not returned
	waiting atomic.Int32  // requests that wait for a slot, or are refused for want of one
	evict   chan struct{} // a waiting request takes the place of a slow handshake
	queue   chan *Connection

	failures chan error // exhaustion, for Accept; holds one
	lastFail atomic.Int64

	breakOnce sync.Once
	broken    chan struct{} // closed when the listener has failed for good
	brokenErr error         // why; set before broken is closed

	deadline Deadline
}

// Listen listens. The context bounds Listen only, not the listener.
func (m *Manager) Listen(ctx context.Context, r ListenRequest) (*Listener, error) {
	if r.Network == IB {
		return nil, &StageError{Stage: StageBind, Call: callBindAddr, Errno: syscall.EAFNOSUPPORT, Err: syscall.EAFNOSUPPORT,
			Hint: "only dialing knows the network ib"}
	}
	if r.Backlog <= 0 {
		r.Backlog = DefaultBacklog
	}
	r.Backlog = min(r.Backlog, maxBacklog)
	if r.HandshakeTimeout <= 0 {
		r.HandshakeTimeout = DefaultHandshakeTimeout
	}
	addrs, err := r.Names.resolve(ctx, r.Network, r.Host, r.Service, nil)
	if err != nil {
		return nil, err
	}
	addr := firstIPv4(addrs)

	box := newInbox()
	bound, err, left := await(ctx, func() (*boundIDs, error) {
		return m.bind(ctx, &r, addr, box)
	}, (*boundIDs).destroy)
	if left {
		err = &StageError{Stage: StageListen, Call: callListen, Addr: Addr{AddrPort: addr}, Err: newContextError(ctx)}
	}
	if err != nil {
		return nil, err
	}
	return m.newListener(r, bound, box), nil
}

func (m *Manager) newListener(r ListenRequest, bound *boundIDs, box *inbox) *Listener {
	l := &Listener{
		m: m, r: r, ids: bound.ids, addr: bound.addr, wildcard: bound.addr.Addr().IsUnspecified(), inbox: box,
		free:     make(chan struct{}),
		slots:    make(chan struct{}, r.Backlog),
		evict:    make(chan struct{}),
		queue:    make(chan *Connection, r.Backlog),
		failures: make(chan error, 1),
		broken:   make(chan struct{}),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	for _, id := range l.ids {
		id.Handle(l.event)
	}
	go l.dispatch()
	return l
}

// firstIPv4 is the address to listen on among those of a name.
func firstIPv4(addrs []netip.AddrPort) netip.AddrPort {
	for _, a := range addrs {
		if a.Addr().Is4() {
			return a
		}
	}
	return addrs[0]
}

// Addr is the address that the listener is bound to, with its real port. It is
// the IPv6 wildcard for all addresses of both families.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// SetDeadline is when Accept gives up, also one that is waiting; zero is never.
// It returns net.ErrClosed once the listener is closed.
func (l *Listener) SetDeadline(t time.Time) error {
	if l.closed.Load() {
		return net.ErrClosed
	}
	l.deadline.Set(t)
	return nil
}

// Accept returns the next established connection. It fails with net.ErrClosed
// once the listener is closed, with os.ErrDeadlineExceeded when its deadline is
// over, with a *StageError that is Temporary when this host lacked the means to
// accept a peer, and with one that is not when the listener's device has gone.
// It does not fail because of what a peer does.
func (l *Listener) Accept() (*Connection, error) {
	expired := l.deadline.Wait()
	if l.ctx.Err() != nil {
		return nil, net.ErrClosed
	}
	select {
	case <-expired:
		return nil, os.ErrDeadlineExceeded
	default:
	}
	select {
	case conn := <-l.queue:
		<-l.slots
		return conn, nil
	case err := <-l.failures:
		return nil, err
	case <-l.broken:
		return nil, l.brokenErr
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	case <-expired:
		return nil, os.ErrDeadlineExceeded
	}
}

// Close ends the listener: Accept returns, the identifiers that listen are
// destroyed, and so is every connection that Accept has not returned. It waits
// until nothing listens any more, for a bounded time; the rest is finished behind
// it. The second Close returns net.ErrClosed.
func (l *Listener) Close() error {
	if !l.closed.CompareAndSwap(false, true) {
		return net.ErrClosed
	}
	l.cancel()
	l.deadline.Set(time.Time{})
	t := time.NewTimer(closeWait)
	defer t.Stop()
	select {
	case <-l.free:
	case <-t.C:
	}
	return nil
}

// fail ends the listener for Accept, for good.
func (l *Listener) fail(err error) {
	l.breakOnce.Do(func() {
		l.brokenErr = err
		close(l.broken)
	})
}

// Provider is the name of what the connections come from.
func (l *Listener) Provider() string { return l.m.provider.Name() }
