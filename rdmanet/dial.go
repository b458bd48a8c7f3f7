package rdmanet

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// Dialer holds the options of a dial. The zero value is ready.
type Dialer struct {
	// Timeout and Deadline bound a dial, as in net.Dialer; the earliest of
	// them and the context's deadline counts. What is left of it becomes the
	// timeout of each stage. Without any, the connection manager's own
	// limits hold, of up to some minutes.
	Timeout  time.Duration
	Deadline time.Time

	// LocalAddr is the address to dial from, a *net.TCPAddr. It picks the
	// device on a host with several. nil leaves the choice to the connection
	// manager, and so does an address without IP, but for its port. In the
	// network "ib" it must name the InfiniBand port to ask, by an IP address
	// of its interface.
	LocalAddr net.Addr

	// Resolver resolves names, under the dial's context. nil means
	// net.DefaultResolver.
	Resolver *net.Resolver

	// KeepAlive and KeepAliveConfig are as in net.Dialer: how a connection
	// finds out that its peer has vanished. By default it is on, with 9 probes
	// 15 s apart after 15 s of silence. KeepAlive sets only the time of
	// silence. Negative fields of KeepAliveConfig mean the defaults.
	KeepAlive       time.Duration
	KeepAliveConfig net.KeepAliveConfig

	// CloseTimeout is how long Close of the connection waits for what Write
	// has accepted. 0 means 1 s.
	CloseTimeout time.Duration

	// Provider is what to dial with.
	Provider Provider

	// FallbackDelay is how long Auto waits for a device to connect before it
	// tries the software NIC as well, and after that Fallback. 0 means
	// 300 ms; with a negative value the next is tried only when the one
	// before has failed.
	FallbackDelay time.Duration

	// Fallback, if not nil, is tried last: a function like
	// (&net.Dialer{}).DialContext, for peers that speak no RDMA at all. It
	// gets the address as it was given, and the network as package net calls
	// it ("tcp" for "rdma"). A connection that it makes is returned as it is.
	// It may run in a goroutine of its own, where a panic of its ends the
	// program.
	Fallback func(ctx context.Context, network, address string) (net.Conn, error)

	// ReadBuffer and WriteBuffer are the bytes of registered memory of the
	// connection, for what the peer sends and for what Write accepts. 0 means
	// a default of 512 KiB, on the software NIC 1 MiB for ReadBuffer; other
	// values are rounded up to multiples of
	// 16 KiB, and are 1 GiB at the most.
	ReadBuffer, WriteBuffer int
}

// Dial connects to an address. It is Dialer.Dial with the zero Dialer.
func Dial(network, address string) (net.Conn, error) {
	var d Dialer
	return d.Dial(network, address)
}

// DialTimeout is Dial with a Dialer.Timeout.
func DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	d := Dialer{Timeout: timeout}
	return d.Dial(network, address)
}

// Dial is DialContext without a context.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext connects to an address, a host and port as net.Dial takes them;
// the connection is a *Conn, unless Fallback made it. See the package's documentation for the networks,
// and for the errors.
//
// When the context ends before the connection is established, DialContext
// returns at once, whatever it is waiting for; what it had begun is cleaned up
// behind the caller. Once established, the context has no effect on the
// connection. A name with several addresses is tried address by address, with
// the time that is left divided among them.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if ctx == nil {
		panic("nil context")
	}
	if deadline, ok := d.deadline(time.Now()); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	c, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, &net.OpError{Op: opDial, Net: netName, Source: d.LocalAddr, Addr: errorAddr(err, address), Err: publicError(err)}
	}
	return c, nil
}

// deadline is the earlier of the Dialer's own limits.
func (d *Dialer) deadline(now time.Time) (time.Time, bool) {
	deadline := d.Deadline
	if d.Timeout != 0 {
		if t := now.Add(d.Timeout); deadline.IsZero() || t.Before(deadline) {
			deadline = t
		}
	}
	return deadline, !deadline.IsZero()
}

// dial lets what may carry the connection race for it.
func (d *Dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	fam, err := parseNetwork(network)
	if err != nil {
		return nil, err
	}
	local, err := localAddr(d.LocalAddr)
	if err != nil {
		return nil, err
	}
	r := cm.DialRequest{
		Network: fam,
		Service: address,
		Names:   names(d.Resolver),
		Local:   local,
		Trace:   stageTrace(ctx),
	}
	if fam != cm.IB {
		if r.Host, r.Service, err = net.SplitHostPort(address); err != nil {
			return nil, err
		}
	}
	cfg := endpointConfig{
		readBuffer: d.ReadBuffer, writeBuffer: d.WriteBuffer,
		keepAlive: keepAlive(d.KeepAlive, d.KeepAliveConfig), closeTimeout: d.CloseTimeout,
	}
	r.NewEndpoint = func() cm.Endpoint { return newEndpoint(cfg) }

	var runners []runner
	for _, p := range d.Provider.choices(fam) {
		runners = append(runners, runner{p.String(), func(ctx context.Context) (net.Conn, error) {
			return dialProvider(ctx, p, r)
		}})
	}
	if d.Fallback != nil {
		runners = append(runners, runner{"fallback", func(ctx context.Context) (net.Conn, error) {
			c, err := d.Fallback(ctx, plainNetwork(network), address)
			if c == nil && err == nil {
				err = errNoFallbackConn
			}
			return c, err
		}})
	}
	return race(ctx, d.FallbackDelay, runners)
}

// errNoFallbackConn is the error of a Fallback that forgets to have one.
var errNoFallbackConn = errors.New("Dialer.Fallback returned neither a connection nor an error")

// dialProvider dials with one provider.
func dialProvider(ctx context.Context, p Provider, r cm.DialRequest) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m, err := manager(p)
	if err != nil {
		return nil, err
	}
	c, err := m.Dial(ctx, r)
	if err != nil {
		return nil, err
	}
	return newConn(c), nil
}
