package cm_test

import (
	"context"
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

// listenRequest listens on a specific address with endpoints of the provider.
func listenRequest(p *scripted.Provider) cm.ListenRequest {
	return cm.ListenRequest{Host: "192.0.2.1", Service: "9000", NewEndpoint: func() cm.Endpoint { return p.NewEndpoint() }}
}

// listen makes a listener; its identifier is the provider's first.
func listen(t *testing.T, p *scripted.Provider, r cm.ListenRequest) *cm.Listener {
	t.Helper()
	l, err := cm.NewManager(p).Listen(t.Context(), r)
	require.NoError(t, err)
	return l
}

// bindings are the addresses that all identifiers were bound to, in order.
func bindings(p *scripted.Provider) []string {
	var b []string
	for _, id := range p.IDs() {
		for _, c := range id.Called(scripted.Bind) {
			s := c.Src.String()
			if c.V6Only {
				s += " only"
			}
			b = append(b, s)
		}
	}
	return b
}

var (
	noFamily = scripted.Script{scripted.Bind: {scripted.Fail(syscall.EAFNOSUPPORT)}}
	inUse    = scripted.Script{scripted.Bind: {scripted.Fail(syscall.EADDRINUSE)}}
	noListen = scripted.Script{scripted.Listen: {scripted.Fail(syscall.EINVAL)}}
)

func TestListenBinds(t *testing.T) {
	for name, c := range map[string]struct {
		network cm.Network
		host    string
		port    string
		scripts []scripted.Script
		bound   []string
		addr    string
		errno   syscall.Errno
	}{
		"specific":             {host: "192.0.2.1", port: "9000", bound: []string{"192.0.2.1:9000"}, addr: "192.0.2.1:9000"},
		"specific, port 0":     {host: "192.0.2.1", port: "0", bound: []string{"192.0.2.1:0"}, addr: "192.0.2.1:49153"},
		"specific, 0, taken":   {host: "192.0.2.1", port: "0", scripts: []scripted.Script{inUse, inUse, nil}, bound: []string{"192.0.2.1:0", "192.0.2.1:0", "192.0.2.1:0"}, addr: "192.0.2.1:49153"},
		"specific, no port":    {host: "192.0.2.1", bound: []string{"192.0.2.1:0"}, addr: "192.0.2.1:49153"},
		"specific IPv6":        {host: "fe80::1%eth0", port: "9000", bound: []string{"[fe80::1%eth0]:9000 only"}, addr: "[fe80::1%eth0]:9000"},
		"specific, not ours":   {host: "192.0.2.1", port: "9000", scripts: []scripted.Script{noFamily}, bound: []string{"192.0.2.1:9000"}, errno: syscall.EAFNOSUPPORT},
		"specific, in use":     {host: "192.0.2.1", port: "9000", scripts: []scripted.Script{inUse}, bound: []string{"192.0.2.1:9000"}, errno: syscall.EADDRINUSE},
		"specific, no listen":  {host: "192.0.2.1", port: "9000", scripts: []scripted.Script{noListen}, bound: []string{"192.0.2.1:9000"}, errno: syscall.EINVAL},
		"name":                 {host: "several", port: "9000", bound: []string{"192.0.2.5:9000"}, addr: "192.0.2.5:9000"},
		"name, IPv6":           {network: cm.IPv6, host: "several", port: "9000", bound: []string{"[2001:db8::5]:9000 only"}, addr: "[2001:db8::5]:9000"},
		"wrong family":         {network: cm.IPv6, host: "192.0.2.1", port: "9000"},
		"IPv4 wildcard":        {network: cm.IPv4, port: "9000", bound: []string{"0.0.0.0:9000"}, addr: "0.0.0.0:9000"},
		"IPv6 wildcard":        {network: cm.IPv6, port: "9000", bound: []string{"[::]:9000 only"}, addr: "[::]:9000"},
		"all":                  {port: "9000", bound: []string{"0.0.0.0:9000", "[::]:9000 only"}, addr: "[::]:9000"},
		"all, port 0":          {port: "0", bound: []string{"0.0.0.0:0", "[::]:49153 only"}, addr: "[::]:49153"},
		"all, by IPv4's":       {host: "0.0.0.0", port: "9000", bound: []string{"0.0.0.0:9000", "[::]:9000 only"}, addr: "[::]:9000"},
		"all, by IPv6's":       {host: "::", port: "9000", bound: []string{"0.0.0.0:9000", "[::]:9000 only"}, addr: "[::]:9000"},
		"all, in use":          {port: "9000", scripts: []scripted.Script{inUse}, bound: []string{"0.0.0.0:9000"}, errno: syscall.EADDRINUSE},
		"not two":              {port: "9000", scripts: []scripted.Script{nil, noListen, nil}, bound: []string{"0.0.0.0:9000", "[::]:9000 only", "[::]:9000"}, addr: "[::]:9000"},
		"not two, port 0":      {port: "0", scripts: []scripted.Script{nil, noFamily, nil}, bound: []string{"0.0.0.0:0", "[::]:49153 only", "[::]:0"}, addr: "[::]:49154"},
		"the other's in use":   {port: "9000", scripts: []scripted.Script{nil, inUse}, bound: []string{"0.0.0.0:9000", "[::]:9000 only"}, errno: syscall.EADDRINUSE},
		"the other's, port 0":  {port: "0", scripts: []scripted.Script{nil, inUse, nil}, bound: []string{"0.0.0.0:0", "[::]:49153 only", "0.0.0.0:0", "[::]:49154 only"}, addr: "[::]:49154"},
		"no IPv6":              {port: "9000", scripts: []scripted.Script{nil, noFamily, noFamily, nil}, bound: []string{"0.0.0.0:9000", "[::]:9000 only", "[::]:9000", "0.0.0.0:9000"}, addr: "0.0.0.0:9000"},
		"no IPv4":              {port: "9000", scripts: []scripted.Script{noFamily, noListen, noFamily, nil}, bound: []string{"0.0.0.0:9000", "[::]:9000", "0.0.0.0:9000", "[::]:9000 only"}, addr: "[::]:9000"},
		"nothing":              {port: "9000", scripts: []scripted.Script{noFamily}, bound: []string{"0.0.0.0:9000", "[::]:9000", "0.0.0.0:9000", "[::]:9000 only"}, errno: syscall.EAFNOSUPPORT},
		"no IPv6, no listener": {port: "9000", scripts: []scripted.Script{noListen, noFamily, noListen, noFamily}, bound: []string{"0.0.0.0:9000", "[::]:9000", "0.0.0.0:9000", "[::]:9000 only"}, errno: syscall.EINVAL},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := scripted.NewProvider(c.scripts...)
				r := listenRequest(p)
				r.Network, r.Host, r.Service, r.Names = c.network, c.host, c.port, names("2001:db8::5", "192.0.2.5")
				l, err := cm.NewManager(p).Listen(t.Context(), r)
				require.Equal(t, c.bound, bindings(p))
				if c.addr == "" {
					require.Error(t, err)
					if c.errno != 0 {
						require.ErrorIs(t, err, c.errno)
						require.False(t, timeout(err))
					}
					requireClean(t, p)
					return
				}
				require.NoError(t, err)
				require.Equal(t, c.addr, l.Addr().String())
				for _, id := range p.IDs() {
					for _, call := range id.Called(scripted.Listen) {
						require.Equal(t, 1024, call.Backlog)
					}
				}
				require.NoError(t, l.Close())
				requireClean(t, p)
			})
		})
	}
}

// A port that is always taken in the other family ends in an error.
func TestListenPortNeverFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		p.ScriptFor = func(n int) scripted.Script {
			if n%2 == 1 {
				return inUse
			}
			return nil
		}
		r := listenRequest(p)
		r.Host, r.Service = "", "0"
		_, err := cm.NewManager(p).Listen(t.Context(), r)
		require.ErrorIs(t, err, syscall.EADDRINUSE)
		require.Len(t, p.IDs(), 2*16)
		requireClean(t, p)
	})
}

func TestListenFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider(scripted.Script{scripted.NewID: {scripted.Fail(syscall.ENODEV)}})
		r := listenRequest(p)
		r.Host = ""
		_, err := cm.NewManager(p).Listen(t.Context(), r)
		require.ErrorIs(t, err, syscall.ENODEV)
		require.Equal(t, cm.StageOpen, stageError(t, err).Stage)

		r.Network = cm.IB
		_, err = cm.NewManager(p).Listen(t.Context(), r)
		require.ErrorIs(t, err, syscall.EAFNOSUPPORT)

		p = scripted.NewProvider(scripted.Script{scripted.Bind: {scripted.Fail(syscall.ENODEV)}})
		_, err = cm.NewManager(p).Listen(t.Context(), listenRequest(p))
		require.EqualError(t, err, fmt.Sprintf("bind: %v (is 192.0.2.1 an address of one of this host's RDMA devices?)", syscall.ENODEV))
		requireClean(t, p)

		r = listenRequest(p)
		r.Host = "nowhere.example"
		cause := &net.DNSError{Err: "no such host", Name: r.Host, IsNotFound: true}
		r.Names.LookupHost = func(context.Context, string, string) ([]netip.Addr, error) { return nil, cause }
		_, err = cm.NewManager(p).Listen(t.Context(), r)
		require.ErrorIs(t, err, cause)
		requireClean(t, p)
	})
}

// Listen returns when its context ends, and cleans up behind its caller.
func TestCancelListen(t *testing.T) {
	for _, call := range []string{scripted.Bind, scripted.Listen} {
		for name, blocks := range map[string]func(<-chan struct{}) scripted.Step{
			"blocks": func(<-chan struct{}) scripted.Step { return scripted.Block(time.Hour, scripted.Silent()) },
			"stuck":  func(release <-chan struct{}) scripted.Step { return scripted.Stuck(release, scripted.Silent()) },
		} {
			t.Run(call+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					release := make(chan struct{})
					p := scripted.NewProvider(scripted.Script{call: {blocks(release)}})
					r := listenRequest(p)
					r.Host = ""
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					began := time.Now()
					_, err := cm.NewManager(p).Listen(ctx, r)
					require.Equal(t, time.Second, time.Since(began))
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.True(t, timeout(err))
					close(release)
					requireClean(t, p)
					require.Len(t, p.IDs(), 1, "the other plans are not tried any more")
				})
			})
		}
	}
}

// The context of Listen means nothing to the listener.
func TestListenNeedsNoContextAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		ctx, cancel := context.WithCancel(t.Context())
		l, err := cm.NewManager(p).Listen(ctx, listenRequest(p))
		require.NoError(t, err)
		cancel()
		synctest.Wait()
		require.Empty(t, p.ID(0).Called(scripted.Interrupt))
		p.ID(0).Request(cm.ConnParam{}, nil)
		conn, err := l.Accept()
		require.NoError(t, err)
		finish(conn)
		require.NoError(t, l.Close())
		requireClean(t, p)
	})
}
