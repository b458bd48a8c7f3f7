package cm

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-multierror"
)

// A DialRequest says whom to dial and how.
type DialRequest struct {
	Network Network

	// Host is a host name or a numeric address, with its zone where it needs
	// one; empty, or an unspecified address, is this host. Network IB ignores
	// it.
	Host string
	// Service is a port's number or name; in network IB an InfiniBand service
	// name or ID.
	Service string
	Names   Names

	// Local is the address to dial from, which picks the device on a host with
	// several; zero leaves the choice to the connection manager. Network IB
	// needs one, to know the port on which to ask the subnet administrator.
	Local Addr

	// PlainAdvice is what a person can do about a server that speaks no RDMA. It
	// becomes the hint where the peer seems to be one; it may be empty.
	PlainAdvice string

	// NewEndpoint makes what a connection is for; it is called once for each
	// address that comes as far as the connect stage.
	NewEndpoint func() Endpoint

	// FallbackDelay is how long one address family may take before the other is
	// tried as well, as in Race.
	FallbackDelay time.Duration

	Trace *Trace // may be nil

	addrs []netip.AddrPort // what Resolve has found
}

// Resolve looks the host and the service up, once for all the Managers that are to
// dial them. Dial does it where it has not been done. The context bounds it: a
// resolver that does not heed it is left behind. Network IB needs nothing of it.
func (r *DialRequest) Resolve(ctx context.Context) (err error) {
	if r.Network != IB && r.addrs == nil {
		r.addrs, err = r.Names.resolve(ctx, r.Network, r.Host, r.Service, r.Trace)
	}
	return err
}

// Dial connects. The context bounds all of it: when it ends, Dial returns at
// once, whatever is going on, and what was begun is cleaned up behind it.
//
// The addresses of one family are tried in order, and share the time. The two
// families race, as in package net: the one of the first address has a head start.
//
// It fails with a *StageError, or with a *DialError if several addresses were
// tried. After it has returned a connection, the context means nothing to it.
func (m *Manager) Dial(ctx context.Context, r DialRequest) (*Connection, error) {
	targets, err := m.targets(ctx, &r)
	if err != nil {
		return nil, err
	}
	d := &dial{m: m, r: &r}
	var ways []Way[*Connection]
	for _, family := range families(&r, targets) {
		ways = append(ways, func(ctx context.Context) (*Connection, error) { return d.serial(ctx, family) })
	}
	conn, winner, _ := Race(ctx, r.FallbackDelay, ways, (*Connection).Discard)
	if winner < 0 {
		return nil, d.error(ctx)
	}
	return conn, nil
}

// targets are the addresses to dial.
func (m *Manager) targets(ctx context.Context, r *DialRequest) ([]target, error) {
	if r.Network == IB {
		return m.resolveService(ctx, r)
	}
	if err := r.Resolve(ctx); err != nil {
		return nil, err
	}
	return r.reachable(r.addrs)
}

// families divides the addresses by their family, that of the first one first.
// They stay together where the network names a family, as in package net, and
// where two attempts at the same time would collide on a local port.
func families(r *DialRequest, targets []target) [][]target {
	if r.Network != AnyIP || r.Local.Port() != 0 {
		return [][]target{targets}
	}
	var first, second []target
	for _, t := range targets {
		if t.dst.Addr().Is4() == targets[0].dst.Addr().Is4() {
			first = append(first, t)
		} else {
			second = append(second, t)
		}
	}
	if len(second) == 0 {
		return [][]target{first}
	}
	return [][]target{first, second}
}

// A dial is one call of Dial, and what has come of each address.
type dial struct {
	m *Manager
	r *DialRequest

	mu    sync.Mutex
	tried []Addr  // in order
	errs  []error // of each; nil if it is under way
	last  int     // the index of the last to fail
	open  bool    // not even an identifier can be made: other addresses do not help
}

func (d *dial) begin(addr Addr) (n int, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open {
		return 0, false
	}
	d.tried = append(d.tried, addr)
	d.errs = append(d.errs, nil)
	return len(d.errs) - 1, true
}

func (d *dial) failed(ctx context.Context, n int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.errs[n], d.last = err, n
	d.open = d.open || ctx.Err() == nil && isStage(err, StageOpen)
}

// error is that of all addresses. One that is under way is so because the context
// has just ended.
func (d *dial) error(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	errs := slices.Clone(d.errs)
	last := d.last
	for n := range errs {
		if errs[n] == nil {
			errs[n], last = &StageError{Stage: StageConnect, Addr: d.tried[n], Err: newContextError(ctx)}, n
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return &DialError{all: &multierror.Error{Errors: errs, ErrorFormat: listErrors}, last: last}
}

// errAddresses is what a family fails with: dial has the errors.
var errAddresses = errors.New("no address of the family can be dialed")

// serial tries the targets one after the other, each for its share of the time
// that is left.
func (d *dial) serial(ctx context.Context, targets []target) (*Connection, error) {
	deadline, limited := ctx.Deadline()
	for i, t := range targets {
		n, ok := d.begin(t.dst)
		if !ok {
			break
		}
		d.r.Trace.addrStart(t.dst)
		a, conn, err := d.one(ctx, t, len(targets)-i)
		d.r.Trace.addrDone(t.dst, err)
		if err == nil {
			return conn, nil
		}
		d.failed(ctx, n, err)
		if ctx.Err() != nil || limited && !time.Now().Before(deadline) {
			break
		}
		if i+1 < len(targets) && d.r.Local.IB == nil && d.r.Local.Port() != 0 {
			a.awaitGone(ctx)
		}
	}
	return nil, errAddresses
}

// portTries is how often a local port that the connection manager has chosen is
// given up because it turns out to be taken. An iWARP device that is Linux's siw
// has TCP's ports, and the connection manager, which chooses, does not know
// which of them TCP uses.
const portTries = 16

// one tries one of so many targets that are left. It tries it anew when the local
// port that was chosen for it is taken, and, as long as the time lasts, when the
// peer's reject passes by itself.
func (d *dial) one(ctx context.Context, t target, left int) (*attempt, *Connection, error) {
	if deadline, ok := ctx.Deadline(); ok && left > 1 {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, partialDeadline(time.Now(), deadline, left))
		defer stop()
	}
	ports, pause := 1, firstRejectPause
	for {
		a := d.m.newAttempt(ctx, d.r, t)
		conn, err := a.dial()
		switch {
		case err == nil || ctx.Err() != nil:
			return a, conn, err
		case d.portTaken(err) && ports < portTries:
			ports++
		case passes(err) && timeFor(ctx, pause):
			if !sleep(ctx, pause) {
				return a, nil, &StageError{Stage: StageConnect, Addr: t.dst, Err: newContextError(ctx)}
			}
			pause = min(2*pause, maxRejectPause)
		default:
			return a, conn, err
		}
	}
}

// portTaken reports whether a local port that was chosen has turned out to be
// taken.
func (d *dial) portTaken(err error) bool {
	chosen := d.r.Local.IB == nil && d.r.Local.Port() == 0
	return chosen && isStage(err, StageConnect) && errors.Is(err, syscall.EADDRINUSE)
}

// timeFor reports whether there is a deadline, and it comes after a pause.
func timeFor(ctx context.Context, pause time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) > pause
}

// sleep reports false if ctx ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// portRelease is how long the next address waits for an attempt that was given
// up to let go of the local port that both want.
const portRelease = time.Second

func (a *attempt) awaitGone(ctx context.Context) {
	t := time.NewTimer(portRelease)
	defer t.Stop()
	select {
	case <-a.gone:
	case <-t.C: // the next attempt says EADDRINUSE if that is so
	case <-ctx.Done():
	}
}

func isStage(err error, stage Stage) bool {
	var e *StageError
	return errors.As(err, &e) && e.Stage == stage
}
