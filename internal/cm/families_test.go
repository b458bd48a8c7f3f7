package cm_test

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/cm/scripted"
)

const (
	six, six2   = "2001:db8::1", "2001:db8::2"
	four, four2 = "192.0.2.1", "192.0.2.2"
)

// byAddress gives each connect the step of its destination.
func byAddress(steps map[string]scripted.Step) scripted.Script {
	return scripted.Script{scripted.Connect: {func(id *scripted.ID) error {
		return steps[id.Called(scripted.ResolveAddr)[0].Dst.Addr().String()](id)
	}}}
}

// madeAt are the destinations in order, each with the time at which it was tried.
func madeAt(p *scripted.Provider, began time.Time) map[string]time.Duration {
	at := map[string]time.Duration{}
	for _, id := range p.IDs() {
		for _, c := range id.Called(scripted.ResolveAddr) {
			at[c.Dst.Addr().String()] = c.At.Sub(began)
		}
	}
	return at
}

// The families of a name race: who wins, after how long, and what was tried when.
func TestFamiliesRace(t *testing.T) {
	const ms = time.Millisecond
	hangs, connects := scripted.Silent(), scripted.Event(cm.Established, 0)
	connectsAfter := func(d time.Duration) scripted.Step { return scripted.After(d, cm.Event{Type: cm.Established}) }
	refuses := scripted.After(10*ms, cm.Event{Type: cm.Rejected, Status: 8})
	for name, c := range map[string]struct {
		addrs   []string
		steps   map[string]scripted.Step
		network cm.Network
		local   string
		delay   time.Duration
		limit   time.Duration // 0: no deadline
		winner  string
		took    time.Duration
		tried   map[string]time.Duration
	}{
		"IPv6 hangs": {addrs: []string{six, four}, steps: map[string]scripted.Step{six: hangs, four: connects},
			winner: four, took: 300 * ms, tried: map[string]time.Duration{six: 0, four: 300 * ms}},
		"IPv4 hangs": {addrs: []string{four, six}, steps: map[string]scripted.Step{six: connects, four: hangs},
			winner: six, took: 300 * ms, tried: map[string]time.Duration{four: 0, six: 300 * ms}},
		"another delay": {addrs: []string{six, four}, steps: map[string]scripted.Step{six: hangs, four: connects}, delay: 50 * ms,
			winner: four, took: 50 * ms, tried: map[string]time.Duration{six: 0, four: 50 * ms}},
		"refused": {addrs: []string{six, four}, steps: map[string]scripted.Step{six: refuses, four: connects},
			winner: four, took: 10 * ms, tried: map[string]time.Duration{six: 0, four: 10 * ms}},
		"the first is slow and wins": {addrs: []string{six, four}, steps: map[string]scripted.Step{six: connectsAfter(350 * ms), four: connectsAfter(100 * ms)},
			winner: six, took: 350 * ms, tried: map[string]time.Duration{six: 0, four: 300 * ms}},
		"both connect at once": {addrs: []string{six, four}, steps: map[string]scripted.Step{six: connectsAfter(350 * ms), four: connectsAfter(50 * ms)},
			took: 350 * ms, tried: map[string]time.Duration{six: 0, four: 300 * ms}},
		"the first family is serial": {addrs: []string{six, four, six2, four2}, limit: 10 * time.Second,
			steps:  map[string]scripted.Step{six: refuses, six2: hangs, four: hangs, four2: connects},
			winner: four2, took: 300*ms + (10*time.Second-300*ms)/2,
			tried: map[string]time.Duration{six: 0, six2: 10 * ms, four: 300 * ms, four2: 300*ms + (10*time.Second-300*ms)/2}},
		"no race": {addrs: []string{six, four}, steps: map[string]scripted.Step{six: hangs, four: connects}, delay: -1, limit: 10 * time.Second,
			winner: "", took: 10 * time.Second, tried: map[string]time.Duration{six: 0}},
		"no race, refused": {addrs: []string{six, four}, steps: map[string]scripted.Step{six: refuses, four: connects}, delay: -1,
			winner: four, took: 10 * ms, tried: map[string]time.Duration{six: 0, four: 10 * ms}},
		"one family": {addrs: []string{four, four2}, steps: map[string]scripted.Step{four: hangs, four2: connects}, limit: 10 * time.Second,
			winner: four2, took: 5 * time.Second, tried: map[string]time.Duration{four: 0, four2: 5 * time.Second}},
		"one by the network": {addrs: []string{six, four}, steps: map[string]scripted.Step{four: connects}, network: cm.IPv4,
			winner: four, tried: map[string]time.Duration{four: 0}},
		"one by the local address": {addrs: []string{six, four}, steps: map[string]scripted.Step{four: connects}, local: "192.0.2.9:0",
			winner: four, tried: map[string]time.Duration{four: 0}},
		"a local port is used by one at a time": {addrs: []string{six, four}, steps: map[string]scripted.Step{six: hangs, four: connects}, local: "[::]:5000", limit: 10 * time.Second,
			winner: four, took: 5 * time.Second, tried: map[string]time.Duration{six: 0, four: 5 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := scripted.NewProvider(byAddress(c.steps))
				r := several(p, c.addrs...)
				r.Network, r.FallbackDelay = c.network, c.delay
				if c.local != "" {
					r.Local.AddrPort = netip.MustParseAddrPort(c.local)
				}
				ctx := t.Context()
				if c.limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.limit)
					defer cancel()
				}
				began := time.Now()
				conn, err := cm.NewManager(p).Dial(ctx, r)
				require.Equal(t, c.took, time.Since(began))
				switch {
				case err != nil:
					require.Empty(t, c.winner, "%v", err)
					require.ErrorIs(t, err, context.DeadlineExceeded)
				default:
					if name != "both connect at once" {
						require.Equal(t, c.winner, conn.Remote.Addr().String())
					}
					finish(conn)
				}
				require.Equal(t, c.tried, madeAt(p, began))
				requireClean(t, p) // the loser's, too
			})
		})
	}
}

// The error is that of all addresses, in the order in which they were tried, and
// times out if the last to fail did.
func TestFamiliesFail(t *testing.T) {
	const ms = time.Millisecond
	reject := func(d time.Duration) scripted.Step {
		return scripted.After(d, cm.Event{Type: cm.Rejected, Status: 8})
	}
	timesOut := func(d time.Duration) scripted.Step {
		return scripted.After(d, cm.Event{Type: cm.Unreachable, Status: status(syscall.ETIMEDOUT)})
	}
	for name, c := range map[string]struct {
		steps   map[string]scripted.Step
		timeout bool
	}{
		"the first times out last":   {map[string]scripted.Step{six: reject(400 * ms), six2: timesOut(400 * ms), four: reject(10 * ms)}, true},
		"the second is refused last": {map[string]scripted.Step{six: timesOut(350 * ms), six2: timesOut(ms), four: reject(time.Second)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := scripted.NewProvider(byAddress(c.steps))
				_, err := cm.NewManager(p).Dial(t.Context(), several(p, six, six2, four))
				var all *cm.DialError
				require.ErrorAs(t, err, &all)
				var order []string
				for _, err := range all.WrappedErrors() {
					order = append(order, stageError(t, err).Addr.Addr().String())
				}
				require.Equal(t, []string{six, four, six2}, order)
				require.Equal(t, c.timeout, timeout(err))
				requireClean(t, p)
			})
		})
	}
}

// Both families end with the context.
func TestFamiliesCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider(scripted.Script{scripted.Connect: {scripted.Silent()}})
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := dialAsync(ctx, cm.NewManager(p), several(p, six, four))
		time.Sleep(time.Second)
		cancel(cause)
		r := <-done
		require.Equal(t, time.Second, r.took)
		require.ErrorIs(t, r.err, context.Canceled)
		require.ErrorIs(t, r.err, cause)
		require.False(t, timeout(r.err))
		require.Len(t, p.IDs(), 2)
		requireClean(t, p)
	})
}

// Without a provider the other family does not help either.
func TestFamiliesWithoutIdentifier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		p := scripted.NewProvider(scripted.Script{scripted.NewID: {func(*scripted.ID) error { made++; return syscall.ENODEV }}})
		_, err := cm.NewManager(p).Dial(t.Context(), several(p, six, four))
		require.Equal(t, cm.StageOpen, stageError(t, err).Stage)
		require.Equal(t, 1, made)
	})
}

// A name is looked up once for all managers that dial it.
func TestResolveOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		r := request(p)
		asked := 0
		r.Host = "once.example"
		r.Names.LookupHost = func(context.Context, string, string) ([]netip.Addr, error) {
			asked++
			return []netip.Addr{netip.MustParseAddr(four)}, nil
		}
		require.NoError(t, r.Resolve(t.Context()))
		for range 2 {
			conn, err := cm.NewManager(p).Dial(t.Context(), r)
			require.NoError(t, err)
			finish(conn)
		}
		require.Equal(t, 1, asked)
		requireClean(t, p)
	})
}

// AddrStart and AddrDone come once for each address, however often it is tried.
func TestTraceAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider(
			scripted.Script{scripted.Connect: {scripted.Fail(syscall.EADDRINUSE)}},
			scripted.Script{scripted.Connect: {scripted.Event(cm.Rejected, 8)}},
			nil)
		r := several(p, four, four2)
		var seen []string
		r.Trace = &cm.Trace{
			AddrStart: func(a cm.Addr) { seen = append(seen, "start "+a.String()) },
			AddrDone: func(a cm.Addr, err error) {
				seen = append(seen, "done "+a.String()+map[bool]string{true: " ok"}[err == nil])
			},
		}
		conn, err := cm.NewManager(p).Dial(t.Context(), r)
		require.NoError(t, err)
		finish(conn)
		require.Equal(t, []string{"start 192.0.2.1:9000", "done 192.0.2.1:9000", "start 192.0.2.2:9000", "done 192.0.2.2:9000 ok"}, seen)
		requireClean(t, p)
	})
}

// A context that never ends leaves the race as it is.
func TestFamiliesWithoutContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider(byAddress(map[string]scripted.Step{six: scripted.Silent(), four: scripted.Event(cm.Established, 0)}))
		conn, err := cm.NewManager(p).Dial(context.Background(), several(p, six, four))
		require.NoError(t, err)
		finish(conn)
		requireClean(t, p)
	})
}
