package rdmanet

import (
	"context"
	"errors"
	"net"
	"net/netip"
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

	// CloseTimeout is how long Close of the connection waits at the most until
	// the peer's device is known to have what Write has accepted. 0 means 1 s.
	// With a negative value Close does not wait: it returns an error at once if
	// that is not known, and delivery goes on behind it.
	CloseTimeout time.Duration

	// Provider is what to dial with.
	Provider Provider

	// FallbackDelay governs two races, as that of net.Dialer governs one. In
	// the networks "rdma" and "tcp" the other address family of a name is
	// tried as well when the first has not connected after this delay, or has
	// failed. And Auto tries the software NIC when the device has not
	// connected after it, or has failed, and after that Fallback. 0 means
	// 300 ms. With a negative value nothing races: the next family, and the
	// next provider, is tried only when the one before has failed.
	//
	// A LocalAddr with a port leaves no race between families, because two
	// attempts would collide on the port.
	//
	// What was not the first choice and has connected all the same is
	// remembered for two minutes, for the network and address, the Provider
	// and the LocalAddr: dials meanwhile begin with it, and try the others
	// after this delay or its failure. So a peer without RDMA costs the delay
	// once in two minutes. Behind a dial that Fallback has carried RDMA is tried
	// again, every five seconds at the most and for two seconds, and is preferred
	// again when that has connected.
	FallbackDelay time.Duration

	// Fallback, if not nil, is tried last: a function like
	// (&net.Dialer{}).DialContext, for peers that speak no RDMA at all. It
	// gets the address as it was given, also if its name has not been found,
	// and the network as package net calls it ("tcp" for "rdma"). A connection
	// that it makes is returned as it is. It may run in a goroutine of its own,
	// where a panic of its ends the program.
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
// connection. A name's addresses of one family are tried one by one, with the time
// that is left divided among them; the families race, see FallbackDelay.
//
// The hooks of net/http/httptrace are called as net.Dialer calls them: DNSStart and
// DNSDone for a name, ConnectStart and ConnectDone once for each address, however
// many providers and Fallback try it, with the network as package net calls it.
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
		return nil, d.opError(errorAddr(err, address), err)
	}
	return c, nil
}

// opError is the error of a dial; it has addresses if the dial came as far as those.
func (d *Dialer) opError(addr net.Addr, err error) error {
	oe := &net.OpError{Op: opDial, Net: netName, Err: publicError(err)}
	if !unresolved(err) {
		oe.Source, oe.Addr = d.LocalAddr, addr
	}
	return oe
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
	r := cm.DialRequest{
		Network:       fam,
		Service:       address,
		Names:         names(d.Resolver),
		FallbackDelay: d.FallbackDelay,
		Trace:         stageTrace(ctx),
	}
	if fam != cm.IB {
		if r.Host, r.Service, err = splitDial(address); err != nil {
			return nil, err
		}
	}
	if r.Local, err = localAddr(d.LocalAddr); err != nil {
		return nil, err
	}
	cfg := endpointConfig{
		readBuffer: d.ReadBuffer, writeBuffer: d.WriteBuffer,
		keepAlive: keepAlive(d.KeepAlive, d.KeepAliveConfig), closeTimeout: d.CloseTimeout,
	}
	r.NewEndpoint = func() cm.Endpoint { return newEndpoint(cfg) }
	if d.Fallback == nil {
		r.PlainAdvice = "for servers that speak plain TCP there is Dialer.Fallback"
	}

	if ctx.Err() != nil {
		return nil, cm.Ended(ctx, cm.StageOpen)
	}
	// Once, and before the race, whose delays are about connections.
	lookupErr := r.Resolve(netTraceOf(ctx).quiet(ctx))
	if lookupErr != nil && (d.Fallback == nil || ctx.Err() != nil) {
		return nil, lookupErr
	}
	preferred, hooks := d.runners(ctx, network, address, r, lookupErr)
	key := carrierKey{plainNetwork(network), address, addrText(d.LocalAddr), d.Provider}
	order := carriers.order(key, preferred)
	conn, winner, failed := cm.Race(ctx, d.FallbackDelay, ways(order), discardConn)
	if winner < 0 {
		err := raceError(order, failed)
		hooks.close(d.opError(errorAddr(err, address), err))
		return nil, err
	}
	hooks.close(d.opError(nil, errLost))
	if lookupErr == nil {
		carriers.won(key, preferred, order, winner, failed)
		if last := len(preferred) - 1; d.Fallback != nil && order[winner].name == preferred[last].name {
			carriers.recheck(key, preferred[:last])
		}
	}
	return conn, nil
}

// runners are the ways to connect, in the order of preference.
func (d *Dialer) runners(ctx context.Context, network, address string, r cm.DialRequest, lookupErr error) ([]runner, *connects) {
	var runners []runner
	choices := d.Provider.choices(r.Network)
	if lookupErr != nil {
		runners = append(runners, runner{"lookup", func(context.Context) (net.Conn, error) { return nil, lookupErr }})
		choices = nil
	}
	hooks := newConnects(netTraceOf(ctx), plainNetwork(network), len(choices)+len(runners)+1)
	wrap := func(a netip.AddrPort, err error) error { return d.opError(addrOf(a), err) }
	for _, p := range choices {
		way := len(runners)
		own := r
		own.Trace = hooks.provider(r.Trace, way, wrap)
		runners = append(runners, runner{p.String(), func(ctx context.Context) (net.Conn, error) {
			c, err := dialProvider(ctx, p, own)
			if err != nil {
				hooks.wayOver(way)
			}
			return c, err
		}})
	}
	if d.Fallback == nil {
		hooks.wayOver(len(runners))
		return runners, hooks
	}
	way := len(runners)
	_, literal := netip.ParseAddr(r.Host)
	lookedUp := r.Host != "" && literal != nil
	return append(runners, runner{"fallback", func(ctx context.Context) (net.Conn, error) {
		c, err := d.Fallback(hooks.fallback(ctx, way, lookedUp), plainNetwork(network), address)
		if c == nil && err == nil {
			err = errNoFallbackConn
		}
		if err != nil {
			hooks.wayOver(way)
		}
		return c, err
	}}), hooks
}

// errLost is what the hooks of net/http/httptrace are told of an address that was
// given up because another one has connected.
var errLost = func() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return cm.Ended(ctx, cm.StageConnect)
}()

// errNoFallbackConn is the error of a Fallback that forgets to have one.
var errNoFallbackConn = errors.New("Dialer.Fallback returned neither a connection nor an error")

// dialProvider dials with one provider.
func dialProvider(ctx context.Context, p Provider, r cm.DialRequest) (net.Conn, error) {
	m, err := manager(ctx, p)
	if err != nil {
		return nil, err
	}
	c, err := m.Dial(ctx, r)
	if err != nil {
		return nil, err
	}
	return newConn(c), nil
}

// addrText is an address as text, "" for none.
func addrText(a net.Addr) string {
	if a == nil {
		return ""
	}
	return a.String()
}
