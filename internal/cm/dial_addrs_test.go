package cm_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/cm/scripted"
)

// dialed are the destinations of all identifiers, in order.
func dialed(p *scripted.Provider) []string {
	var dst []string
	for _, id := range p.IDs() {
		for _, c := range id.Called(scripted.ResolveAddr) {
			dst = append(dst, c.Dst.String())
		}
	}
	return dst
}

// several dials a name with the addresses; the n-th has the n-th script.
func several(p *scripted.Provider, addrs ...string) cm.DialRequest {
	r := request(p)
	r.Host, r.Names = "several", names(addrs...)
	return r
}

func TestSecondAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider(scripted.Script{scripted.ResolveAddr: {scripted.Fail(syscall.ENETUNREACH)}}, nil)
		conn, err := cm.NewManager(p).Dial(t.Context(), several(p, "192.0.2.1", "192.0.2.2", "192.0.2.3"))
		require.NoError(t, err)
		require.Equal(t, "192.0.2.2:9000", conn.Remote.String())
		require.Equal(t, []string{"192.0.2.1:9000", "192.0.2.2:9000"}, dialed(p))
		require.Equal(t, 1, p.ID(0).Destroyed())
		finish(conn)
		requireClean(t, p)
	})
}

func TestAllAddressesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider(
			scripted.Script{scripted.ResolveAddr: {scripted.Fail(syscall.ENETUNREACH)}},
			scripted.Script{scripted.Connect: {scripted.Event(cm.Rejected, 8)}},
			scripted.Script{scripted.Connect: {scripted.Event(cm.Unreachable, status(syscall.ETIMEDOUT))}})
		_, err := cm.NewManager(p).Dial(t.Context(), several(p, "192.0.2.1", "192.0.2.2", "192.0.2.3"))
		var all *cm.DialError
		require.ErrorAs(t, err, &all)
		require.Len(t, all.WrappedErrors(), 3)
		for _, errno := range []syscall.Errno{syscall.ENETUNREACH, syscall.ECONNREFUSED, syscall.ETIMEDOUT} {
			require.ErrorIs(t, err, errno)
		}
		require.NotErrorIs(t, err, syscall.ENODEV)
		require.True(t, timeout(err), "the last one timed out")
		require.True(t, temporary(err))
		require.EqualError(t, err, fmt.Sprintf("all 3 addresses failed: "+
			"192.0.2.1:9000: resolve address: %v (there is no IP route to 192.0.2.1); "+
			"192.0.2.2:9000: connect: %v (REJECTED, reason 8: nobody listens there); "+
			"192.0.2.3:9000: connect: %v (UNREACHABLE, status %d; does 192.0.2.3 have an RDMA device?)",
			syscall.ENETUNREACH, syscall.ECONNREFUSED, syscall.ETIMEDOUT, status(syscall.ETIMEDOUT)))
		requireClean(t, p)

		// The attempt that ended the dial decides whether it timed out.
		p = scripted.NewProvider(
			scripted.Script{scripted.Connect: {scripted.Event(cm.Unreachable, status(syscall.ETIMEDOUT))}},
			scripted.Script{scripted.Connect: {scripted.Event(cm.Rejected, 8)}})
		_, err = cm.NewManager(p).Dial(t.Context(), several(p, "192.0.2.1", "192.0.2.2"))
		require.ErrorAs(t, err, &all)
		require.False(t, timeout(err))
		require.False(t, temporary(err))
		requireClean(t, p)
	})
}

// The time is divided as package net does: equal shares of what is left, at
// least two seconds each while there are any.
func TestTimeIsDivided(t *testing.T) {
	silent := scripted.Script{scripted.Connect: {scripted.Silent()}}
	for _, c := range []struct {
		limit time.Duration
		addrs int
		ends  []time.Duration // when each attempt is given up
	}{
		{9 * time.Second, 3, []time.Duration{3 * time.Second, 6 * time.Second, 9 * time.Second}},
		{5 * time.Second, 3, []time.Duration{2 * time.Second, 4 * time.Second, 5 * time.Second}},
		{3 * time.Second, 3, []time.Duration{2 * time.Second, 3 * time.Second}},
		{time.Second, 3, []time.Duration{time.Second}},
		{10 * time.Second, 1, []time.Duration{10 * time.Second}},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := scripted.NewProvider(silent)
			ctx, cancel := context.WithTimeout(t.Context(), c.limit)
			defer cancel()
			began := time.Now()
			_, err := cm.NewManager(p).Dial(ctx, several(p, []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}[:c.addrs]...))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.True(t, timeout(err))
			require.Equal(t, c.limit, time.Since(began))
			synctest.Wait()
			var ends []time.Duration
			for _, id := range p.IDs() {
				ends = append(ends, id.Called(scripted.Interrupt)[0].At.Sub(began))
			}
			require.Equal(t, c.ends, ends)
			requireClean(t, p)
		})
	}
}

// An address whose time is over is left behind while its call still blocks.
func TestNextAddressWhileCallBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := scripted.NewProvider(scripted.Script{scripted.Connect: {scripted.Stuck(release, scripted.Silent())}}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		conn, err := cm.NewManager(p).Dial(ctx, several(p, "192.0.2.1", "192.0.2.2"))
		require.NoError(t, err)
		require.Equal(t, 5*time.Second, time.Since(began))
		require.Zero(t, p.ID(0).Destroyed())
		close(release)
		finish(conn)
		requireClean(t, p)
	})
}

func TestCancelInSecondAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider(
			scripted.Script{scripted.Connect: {scripted.Event(cm.Rejected, 8)}},
			scripted.Script{scripted.Connect: {scripted.Block(time.Hour, scripted.Silent())}})
		ctx, cancel := context.WithCancel(t.Context())
		done := dialAsync(ctx, cm.NewManager(p), several(p, "192.0.2.1", "192.0.2.2", "192.0.2.3"))
		time.Sleep(time.Second)
		cancel()
		r := <-done
		require.Equal(t, time.Second, r.took)
		require.ErrorIs(t, r.err, context.Canceled)
		require.ErrorIs(t, r.err, syscall.ECONNREFUSED)
		require.False(t, timeout(r.err))
		require.Len(t, p.IDs(), 2)
		var all *cm.DialError
		require.ErrorAs(t, r.err, &all)
		require.Len(t, all.WrappedErrors(), 2, "one error for each address that was tried")
		requireClean(t, p)
	})
}

// A local port can be used by one attempt at a time: the next address waits,
// for a while, until the one before has let go of it.
func TestLocalPortAndSeveralAddresses(t *testing.T) {
	silent := scripted.Both(scripted.Silent(), scripted.Silent())
	for _, c := range []struct {
		name   string
		slow   time.Duration // what destroying takes
		port   string
		second time.Duration // when the second identifier is made
	}{
		{"quick", 0, "192.0.2.100:5000", 2 * time.Second},
		{"slow", 300 * time.Millisecond, "192.0.2.100:5000", 2300 * time.Millisecond},
		{"slower than we wait", time.Minute, "192.0.2.100:5000", 3 * time.Second},
		{"no port", time.Minute, "192.0.2.100:0", 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := scripted.NewProvider(scripted.Script{
					scripted.Connect: {silent},
					scripted.Destroy: {func(*scripted.ID) error { time.Sleep(c.slow); return nil }},
				}, nil)
				r := several(p, "192.0.2.1", "192.0.2.2")
				r.Local.AddrPort = netip.MustParseAddrPort(c.port)
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
				defer cancel()
				began := time.Now()
				conn, err := cm.NewManager(p).Dial(ctx, r)
				require.NoError(t, err)
				require.Equal(t, c.second, p.ID(1).Calls()[0].At.Sub(began))
				require.Equal(t, c.port, p.ID(1).Called(scripted.ResolveAddr)[0].Src.String())
				finish(conn)
				time.Sleep(time.Hour)
				requireClean(t, p)
			})
		})
	}
}

func TestAddressesOfTheNetworkAndTheLocalAddress(t *testing.T) {
	all := []string{"2001:db8::7", "::ffff:192.0.2.7", "fe80::7%eth0", "192.0.2.8"}
	for _, c := range []struct {
		network cm.Network
		host    string
		local   string
		dst     []string
		src     string // of the first
	}{
		// As in package net: the family of the first, then the other one.
		{cm.AnyIP, "name", "", []string{"[2001:db8::7]:9000", "[fe80::7%eth0]:9000", "192.0.2.7:9000", "192.0.2.8:9000"}, ""},
		{cm.IPv4, "name", "", []string{"192.0.2.7:9000", "192.0.2.8:9000"}, ""},
		{cm.IPv6, "name", "", []string{"[2001:db8::7]:9000", "[fe80::7%eth0]:9000"}, ""},
		{cm.AnyIP, "name", "192.0.2.1:0", []string{"192.0.2.7:9000", "192.0.2.8:9000"}, "192.0.2.1:0"},
		{cm.AnyIP, "name", "[2001:db8::1]:77", []string{"[2001:db8::7]:9000", "[fe80::7%eth0]:9000"}, "[2001:db8::1]:77"},
		{cm.AnyIP, "name", "[::ffff:192.0.2.1]:0", []string{"192.0.2.7:9000", "192.0.2.8:9000"}, "192.0.2.1:0"},
		// A wildcard is of both families, and says nothing without a port.
		{cm.IPv4, "name", "[::]:77", []string{"192.0.2.7:9000", "192.0.2.8:9000"}, "0.0.0.0:77"},
		{cm.IPv6, "name", "0.0.0.0:77", []string{"[2001:db8::7]:9000", "[fe80::7%eth0]:9000"}, "[::]:77"},
		{cm.IPv4, "name", "0.0.0.0:0", []string{"192.0.2.7:9000", "192.0.2.8:9000"}, ""},
		{cm.AnyIP, "192.0.2.5", "", []string{"192.0.2.5:9000"}, ""},
		{cm.AnyIP, "fe80::5%ib0", "", []string{"[fe80::5%ib0]:9000"}, ""},
		// This host, as in package net.
		{cm.AnyIP, "", "", []string{"127.0.0.1:9000"}, ""},
		{cm.IPv6, "", "", []string{"[::1]:9000"}, ""},
		{cm.AnyIP, "0.0.0.0", "", []string{"127.0.0.1:9000"}, ""},
		{cm.AnyIP, "::", "", []string{"[::1]:9000", "127.0.0.1:9000"}, ""}, // which the host may not have
		{cm.IPv4, "::", "", []string{"127.0.0.1:9000"}, ""},
		{cm.IPv6, "::", "", []string{"[::1]:9000"}, ""},
		{cm.IPv6, "0.0.0.0", "", nil, ""},
		{cm.AnyIP, "", "[2001:db8::1]:0", []string{"[::1]:9000"}, "[2001:db8::1]:0"},
		{cm.AnyIP, "0.0.0.0", "[2001:db8::1]:0", []string{"[::1]:9000"}, "[2001:db8::1]:0"},
		{cm.AnyIP, "::", "192.0.2.1:0", []string{"127.0.0.1:9000"}, "192.0.2.1:0"},
		{cm.IPv4, "", "[2001:db8::1]:0", nil, ""},
		{cm.IPv4, "192.0.2.5", "[2001:db8::1]:0", nil, ""},
		{cm.IPv6, "192.0.2.5", "", nil, ""},
		{cm.IPv4, "::1", "", nil, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := scripted.NewProvider(scripted.Script{scripted.Connect: {scripted.Event(cm.Rejected, 8)}})
			r := request(p)
			r.Network, r.Host, r.Names = c.network, c.host, names(all...)
			if c.local != "" {
				r.Local.AddrPort = netip.MustParseAddrPort(c.local)
			}
			_, err := cm.NewManager(p).Dial(t.Context(), r)
			require.Error(t, err)
			require.Equal(t, c.dst, dialed(p), "%+v", c)
			if c.dst == nil {
				var ae *net.AddrError
				require.ErrorAs(t, err, &ae)
				require.Equal(t, cm.StageAddrInfo, stageError(t, err).Stage)
			} else {
				require.Equal(t, c.src, p.ID(0).Called(scripted.ResolveAddr)[0].Src.String())
			}
			requireClean(t, p)
		})
	}
}

func TestLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		p := scripted.NewProvider()
		r := request(p)
		r.Network, r.Host, r.Service = cm.IPv6, "peer.example", "echo-rdma"
		r.Names.LookupHost = func(_ context.Context, network, host string) ([]netip.Addr, error) {
			asked = append(asked, network, host)
			return []netip.Addr{netip.MustParseAddr("2001:db8::7")}, nil
		}
		r.Names.LookupPort = func(_ context.Context, network, service string) (int, error) {
			asked = append(asked, network, service)
			return 7, nil
		}
		conn, err := cm.NewManager(p).Dial(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, []string{"tcp6", "echo-rdma", "ip6", "peer.example"}, asked)
		require.Equal(t, "[2001:db8::7]:7", conn.Remote.String())
		finish(conn)
		requireClean(t, p)
	})
}

func TestLookupFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		r := request(p)
		r.Host = "nowhere.example"
		cause := &net.DNSError{Err: "no such host", Name: r.Host, IsNotFound: true}
		r.Names.LookupHost = func(context.Context, string, string) ([]netip.Addr, error) { return nil, cause }
		_, err := cm.NewManager(p).Dial(t.Context(), r)
		var dns *net.DNSError
		require.ErrorAs(t, err, &dns)
		require.Same(t, cause, dns)
		require.Equal(t, "lookup nowhere.example: no such host", err.Error())
		require.Equal(t, cm.StageAddrInfo, stageError(t, err).Stage)
		require.False(t, timeout(err))

		cause.IsTimeout, cause.IsTemporary = true, true
		_, err = cm.NewManager(p).Dial(t.Context(), r)
		require.True(t, timeout(err))
		require.True(t, temporary(err))

		r.Names.LookupHost = func(context.Context, string, string) ([]netip.Addr, error) { return nil, nil }
		_, err = cm.NewManager(p).Dial(t.Context(), r)
		require.ErrorContains(t, err, "no suitable address found")

		r = request(p)
		r.Service = "no-such-service"
		r.Names.LookupPort = func(context.Context, string, string) (int, error) { return 0, cause }
		_, err = cm.NewManager(p).Dial(t.Context(), r)
		require.ErrorIs(t, err, cause)

		r.Names.LookupPort = func(context.Context, string, string) (int, error) { return 70000, nil }
		_, err = cm.NewManager(p).Dial(t.Context(), r)
		require.ErrorContains(t, err, "invalid port")
		require.Empty(t, p.IDs())
	})
}

// A resolver that does not heed its context is left behind, too.
func TestCancelDuringLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, heeds := range []bool{true, false} {
			release := make(chan struct{})
			p := scripted.NewProvider()
			var rec recorder
			r := request(p)
			r.Host, r.Trace = "slow.example", rec.trace()
			r.Names.LookupHost = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
				if heeds {
					<-ctx.Done()
					return nil, &net.DNSError{Err: "operation was canceled", Name: r.Host}
				}
				<-release
				return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
			}
			cause := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			done := dialAsync(ctx, cm.NewManager(p), r)
			time.Sleep(time.Second)
			cancel(cause)
			res := <-done
			require.Equal(t, time.Second, res.took)
			requireCanceled(t, res.err, cm.StageAddrInfo)
			require.ErrorIs(t, res.err, cause)
			close(release)
			synctest.Wait()
			require.Empty(t, p.IDs())
			require.Len(t, rec.results(), 1)
			require.Equal(t, "lookup", rec.results()[0].Call)
		}
	})
}

// Without functions of the caller's, names go to Go's own resolver. The two here
// are answered from files.
func TestDefaultResolver(t *testing.T) {
	p := scripted.NewProvider()
	r := request(p)
	r.Network, r.Host, r.Service = cm.IPv4, "localhost", "http"
	conn, err := cm.NewManager(p).Dial(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:80", conn.Remote.String())
	require.Same(t, p, cm.NewManager(p).Provider())
	finish(conn)
	require.Empty(t, p.Verify())
}

// A local port that was chosen, and turns out to be taken when the connection is
// made, is given up for another; one that was asked for is not.
func TestChosenPortTaken(t *testing.T) {
	taken := scripted.Script{scripted.Connect: {scripted.Fail(syscall.EADDRINUSE)}}
	for name, c := range map[string]struct {
		local   string
		scripts []scripted.Script
		ids     int
		ok      bool
	}{
		"twice":     {"", []scripted.Script{taken, taken, nil}, 3, true},
		"always":    {"", []scripted.Script{taken}, 16, false},
		"asked for": {"192.0.2.9:4000", []scripted.Script{taken, nil}, 1, false},
		"address":   {"192.0.2.9:0", []scripted.Script{taken, nil}, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := scripted.NewProvider(c.scripts...)
				r := request(p)
				if c.local != "" {
					r.Local.AddrPort = netip.MustParseAddrPort(c.local)
				}
				conn, err := cm.NewManager(p).Dial(t.Context(), r)
				if c.ok {
					require.NoError(t, err)
					finish(conn)
				} else {
					require.ErrorIs(t, err, syscall.EADDRINUSE)
				}
				require.Len(t, p.IDs(), c.ids)
				requireClean(t, p)
			})
		})
	}
}
