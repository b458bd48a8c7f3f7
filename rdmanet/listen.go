package rdmanet

import (
	"context"
	"net"
	"time"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// ListenConfig holds the options of a listener. The zero value is ready.
type ListenConfig struct {
	// Provider is what connections are accepted on. With Auto these are RDMA
	// devices and the software NIC, on one port. Where the address is that
	// of an iWARP device, the device takes it alone: software NICs and
	// devices speak the same there. See also AcceptPlain.
	Provider Provider

	// ReadBuffer and WriteBuffer are the bytes of registered memory of each
	// accepted connection, as in Dialer.
	ReadBuffer, WriteBuffer int

	// KeepAlive and KeepAliveConfig are as in Dialer.
	KeepAlive       time.Duration
	KeepAliveConfig net.KeepAliveConfig

	// CloseTimeout is as in Dialer.
	CloseTimeout time.Duration

	// Backlog is how many connections may wait to be accepted or to finish
	// their handshake. 0 means a default of 128. Peers beyond it wait their
	// turn, up to 1,024 of them and for HandshakeTimeout; then they are
	// refused. More than 65,536 counts as that.
	Backlog int

	// HandshakeTimeout is how long a peer may take to finish connecting once
	// it has begun, with its connect request; then it is dropped. 0 means a
	// default of 10 s. On the software NIC a TCP connection may take as long
	// for its connect request.
	HandshakeTimeout time.Duration

	// AcceptPlain lets the software NIC's port, which is one of TCP's, serve
	// peers that speak no RDMA as well: Accept returns the connection of a peer
	// whose first bytes are no beginning of an MPA connect request (RFC 5044) as
	// the *net.TCPConn that it is, with all of these bytes still to be read.
	// This is for protocols in which the client speaks first, such as HTTP and
	// TLS: a peer that says nothing, or a part of an MPA key and nothing more, is
	// closed after HandshakeTimeout, or sooner
	// when there are more than 1,024 of them. A peer that ends before it has said
	// anything is nothing that Accept returns.
	//
	// With Auto the software NIC then also takes the address of an iWARP device,
	// in place of the device, since they cannot share it; peers with iWARP
	// devices are served all the same. With Verbs there is no software NIC, and
	// AcceptPlain changes nothing.
	AcceptPlain bool

	// Refused, if not nil, is told of each peer whose connect request did not
	// become a connection, and why; on the software NIC also of each TCP
	// connection that brought no connect request. It must not block, and may
	// be called by several goroutines at once.
	Refused func(peer net.Addr, err error)
}

// Listen listens on a local address. It is ListenConfig.Listen with the zero
// ListenConfig.
func Listen(network, address string) (net.Listener, error) {
	var lc ListenConfig
	return lc.Listen(context.Background(), network, address)
}

// Listen listens on a local address; the listener is a *Listener. The address's
// host must be an IP address of an interface that has an RDMA device, or a name
// of one; an empty or unspecified one stands for all devices. Port 0 chooses a
// port: see Listener.Addr. The context bounds the look-up of names; it does not
// affect the listener. The network is one of "rdma", "rdma4", "rdma6", or the
// same with "tcp".
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	if ctx == nil {
		panic("nil context")
	}
	l, err := lc.listen(ctx, network, address)
	if err != nil {
		return nil, &net.OpError{Op: opListen, Net: netName, Addr: errorAddr(err, address), Err: publicError(err)}
	}
	return l, nil
}

func (lc *ListenConfig) listen(ctx context.Context, network, address string) (*Listener, error) {
	fam, err := parseNetwork(network)
	if err == nil && fam == cm.IB {
		err = net.UnknownNetworkError(network)
	}
	if err != nil {
		return nil, err
	}
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	cfg := endpointConfig{
		readBuffer: lc.ReadBuffer, writeBuffer: lc.WriteBuffer,
		keepAlive: keepAlive(lc.KeepAlive, lc.KeepAliveConfig), closeTimeout: lc.CloseTimeout,
	}
	var refused func(cm.Addr, error)
	if lc.Refused != nil {
		refused = func(peer cm.Addr, err error) { lc.Refused(addrOf(peer.AddrPort), publicError(err)) }
	}
	inner, err := listenProviders(ctx, lc.Provider.choices(fam), cm.ListenRequest{
		Network:          fam,
		Host:             host,
		Service:          service,
		Names:            names(nil),
		Backlog:          lc.Backlog,
		HandshakeTimeout: lc.HandshakeTimeout,
		Plain:            lc.AcceptPlain,
		NewEndpoint:      func() cm.Endpoint { return newEndpoint(cfg) },
		Refused:          refused,
	})
	if err != nil {
		return nil, err
	}
	return &Listener{inner: inner, addr: addrOf(inner.Addr()), keepAlive: cfg.keepAlive, refused: refused}, nil
}

// Listener accepts connections. All its methods may be called concurrently.
type Listener struct {
	inner     acceptor
	addr      net.Addr
	keepAlive net.KeepAliveConfig
	refused   func(cm.Addr, error) // may be nil
}

var _ net.Listener = (*Listener)(nil)

// Accept waits for the next connection: a *Conn, or with ListenConfig.AcceptPlain
// perhaps a *net.TCPConn. A peer that fails to connect is not its business: it
// returns an error only if the listener is closed (net.ErrClosed), its deadline has
// passed (os.ErrDeadlineExceeded), its device is gone, or if connections have to be
// refused because descriptors, memory or queue pairs are exhausted; that last error
// is Temporary.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.accept()
	if err != nil {
		return nil, err
	}
	if c.Plain != nil {
		return plainConn(c.Plain, l.keepAlive), nil
	}
	return newConn(c), nil
}

// AcceptRDMA is Accept for RDMA connections. Others that come, with
// ListenConfig.AcceptPlain, are closed, and ListenConfig.Refused is told.
func (l *Listener) AcceptRDMA() (*Conn, error) {
	for {
		c, err := l.accept()
		if err != nil {
			return nil, err
		}
		if c.Plain == nil {
			return newConn(c), nil
		}
		c.Discard()
		if l.refused != nil {
			l.refused(c.Remote, errNotRDMA)
		}
	}
}

func (l *Listener) accept() (*cm.Connection, error) {
	c, err := l.inner.Accept()
	if err != nil {
		return nil, &net.OpError{Op: opAccept, Net: netName, Addr: l.addr, Err: publicError(err)}
	}
	return c, nil
}

// Close stops listening. Accept calls under way return net.ErrClosed, and
// connections that nobody has accepted are ended.
func (l *Listener) Close() error {
	if err := l.inner.Close(); err != nil {
		return &net.OpError{Op: opClose, Net: netName, Addr: l.addr, Err: publicError(err)}
	}
	return nil
}

// Addr returns the address that is listened on, a *net.TCPAddr, with the real port.
func (l *Listener) Addr() net.Addr { return l.addr }

// SetDeadline sets the deadline of Accept. The zero time means none.
func (l *Listener) SetDeadline(t time.Time) error {
	if err := l.inner.SetDeadline(t); err != nil {
		return &net.OpError{Op: opSet, Net: netName, Addr: l.addr, Err: err}
	}
	return nil
}
