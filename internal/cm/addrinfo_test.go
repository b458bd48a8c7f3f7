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
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// errLost is what librdmacm leaves of an error it has lost: an error without an
// errno.
var errLost = errors.New("rdma_resolve_addrinfo: error -1")

// Whether rdma_resolve_addrinfo works is learnt by trying, and remembered only
// when rdma_getaddrinfo has succeeded with the same arguments.
func TestAddrInfoIsLearnt(t *testing.T) {
	for name, c := range map[string]struct {
		async, sync error
		learnt      bool
	}{
		"works":                    {nil, nil, false},
		"library without it":       {errors.ErrUnsupported, nil, true},
		"kernel without it":        {errLost, nil, true},
		"errno -1":                 {syscall.Errno(^uintptr(0)), nil, true},
		"not permitted":            {syscall.EPERM, nil, true},
		"arguments that both hate": {errLost, syscall.EINVAL, false},
		"exhausted":                {syscall.ENOMEM, nil, false},
		"busy":                     {syscall.EBUSY, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				script := scripted.Script{}
				if c.async != nil {
					script[scripted.ResolveAddrInfo] = []scripted.Step{scripted.Fail(c.async)}
				}
				if c.sync != nil {
					script[scripted.GetAddrInfo] = []scripted.Step{scripted.Fail(c.sync)}
				}
				p := scripted.NewProvider(script)
				m := cm.NewManager(p)
				for range 2 {
					conn, err := m.Dial(t.Context(), request(p))
					if err == nil {
						finish(conn)
						continue
					}
					want := c.sync
					if want == nil {
						want = c.async
					}
					require.ErrorIs(t, err, want)
				}
				second := p.ID(1)
				require.Equal(t, c.learnt, len(second.Called(scripted.ResolveAddrInfo)) == 0)
				if c.learnt {
					require.Len(t, p.ID(0).Called(scripted.GetAddrInfo), 1)
					require.Len(t, second.Called(scripted.GetAddrInfo), 1)
					require.Equal(t, p.ID(0).Called(scripted.ResolveAddrInfo)[0].Query, second.Called(scripted.GetAddrInfo)[0].Query)
				}
				if c.async == nil {
					require.Empty(t, second.Called(scripted.GetAddrInfo))
				}
				requireClean(t, p)
			})
		})
	}
}

func TestAddrInfoQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		r := request(p)
		r.Host = "fe80::7%eth0"
		conn, err := cm.NewManager(p).Dial(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, cm.AddrInfoQuery{Node: "fe80::7%eth0", Service: "9000"}, p.ID(0).Called(scripted.ResolveAddrInfo)[0].Query)
		require.Equal(t, "[fe80::7%eth0]:9000", p.ID(0).Called(scripted.ResolveAddr)[0].Dst.String())
		finish(conn)
		requireClean(t, p)
	})
}

func TestAddrInfoFailsToBeTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider(scripted.Script{scripted.QueryAddrInfo: {scripted.Fail(syscall.ENOENT)}})
		_, err := cm.NewManager(p).Dial(t.Context(), request(p))
		require.ErrorIs(t, err, syscall.ENOENT)
		require.Equal(t, "rdma_query_addrinfo", stageError(t, err).Call)
		require.Empty(t, p.ID(0).Called(scripted.GetAddrInfo), "the call has worked, only its result is lost")
		requireClean(t, p)
	})
}

// What the stage has brought is used by the later ones.
func TestAddrInfoIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		info := cm.AddrInfo{Route: []byte("path"), ConnectData: []byte("lead,")}
		info.Src.AddrPort = netip.MustParseAddrPort("192.0.2.50:0")
		info.Dst.AddrPort = netip.MustParseAddrPort("192.0.2.99:1") // not what was asked for
		p := scripted.NewProvider()
		p.Answers = []cm.AddrInfo{info, {}}
		r := request(p)
		conn, err := cm.NewManager(p).Dial(t.Context(), r)
		require.NoError(t, err)
		id := p.ID(0)
		require.Equal(t, "192.0.2.50:0", id.Called(scripted.ResolveAddr)[0].Src.String())
		require.Equal(t, "192.0.2.7:9000", id.Called(scripted.ResolveAddr)[0].Dst.String())
		require.Equal(t, "path", string(id.Called(scripted.SetRoute)[0].Data))
		require.Empty(t, id.Called(scripted.ResolveRoute))
		require.Equal(t, "lead,hello", string(id.Called(scripted.Connect)[0].Param.PrivateData))
		finish(conn)

		// The caller's address counts more.
		r.Local.AddrPort = netip.MustParseAddrPort("192.0.2.1:0")
		conn, err = cm.NewManager(p).Dial(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, "192.0.2.1:0", p.ID(1).Called(scripted.ResolveAddr)[0].Src.String())
		finish(conn)
		requireClean(t, p)
	})
}

// In network ib one identifier asks the subnet administrator, and each of its
// answers is dialed by another.
func ibRequest(p *scripted.Provider) cm.DialRequest {
	r := cm.DialRequest{Network: cm.IB, Service: "storage", NewEndpoint: func() cm.Endpoint { return p.NewEndpoint() }}
	r.Local.AddrPort = netip.MustParseAddrPort("192.0.2.1:0")
	return r
}

func ibProvider(scripts ...scripted.Script) *scripted.Provider {
	p := scripted.NewProvider(scripts...)
	p.Dev = scripted.NewDevice("mlx5_0", verbs.InfiniBand)
	return p
}

func TestIBService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := ibProvider(nil, scripted.Script{scripted.ResolveAddr: {scripted.Fail(syscall.ENETUNREACH)}}, nil)
		p.Answers = []cm.AddrInfo{
			{Dst: cm.Addr{IB: []byte("first")}},
			{}, // an answer without an address
			{Dst: cm.Addr{IB: []byte("second")}, Src: cm.Addr{IB: []byte("source")}, Route: []byte("path"), ConnectData: []byte("lead,")},
		}
		conn, err := cm.NewManager(p).Dial(t.Context(), ibRequest(p))
		require.NoError(t, err)
		require.Len(t, p.IDs(), 3)

		ask := p.ID(0)
		require.Equal(t, "192.0.2.1:0", ask.Called(scripted.Bind)[0].Src.String())
		require.Equal(t, cm.AddrInfoQuery{Service: "storage", SA: true}, ask.Called(scripted.ResolveAddrInfo)[0].Query)
		require.Equal(t, 1, ask.Destroyed())

		first := p.ID(1).Called(scripted.ResolveAddr)[0]
		require.Equal(t, "first", string(first.Dst.IB))
		require.True(t, first.Src.IsZero())
		second := p.ID(2).Called(scripted.ResolveAddr)[0]
		require.Equal(t, "second", string(second.Dst.IB))
		require.Equal(t, "source", string(second.Src.IB))
		require.Equal(t, "path", string(p.ID(2).Called(scripted.SetRoute)[0].Data))
		require.Equal(t, "lead,hello", string(p.ID(2).Called(scripted.Connect)[0].Param.PrivateData))
		require.Equal(t, "second", string(conn.Remote.IB))
		finish(conn)
		requireClean(t, p)
	})
}

// Between InfiniBand addresses a header leads the private data, which the
// kernel does not write.
func TestIBHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := ibProvider()
		p.Answers = []cm.AddrInfo{{Dst: cm.Addr{IB: []byte("dst")}}}
		conn, err := cm.NewManager(p).Dial(t.Context(), ibRequest(p))
		require.NoError(t, err)
		require.Equal(t, append(make([]byte, 36), "hello"...), p.ID(1).Called(scripted.Connect)[0].Param.PrivateData)
		require.Len(t, p.ID(1).Called(scripted.ResolveRoute), 1)
		finish(conn)
		requireClean(t, p)
	})
}

func TestIBFails(t *testing.T) {
	for name, c := range map[string]struct {
		script    scripted.Script
		transport verbs.Transport
		change    func(r *cm.DialRequest)
		errno     syscall.Errno
		text      string
	}{
		"no local address": {change: func(r *cm.DialRequest) { r.Local = cm.Addr{} }, errno: syscall.EDESTADDRREQ, text: "needs a local address"},
		"wildcard": {change: func(r *cm.DialRequest) { r.Local.AddrPort = netip.MustParseAddrPort("0.0.0.0:0") },
			errno: syscall.EDESTADDRREQ, text: "needs a local address"},
		"not ours":     {script: scripted.Script{scripted.Bind: {scripted.Fail(syscall.EADDRNOTAVAIL)}}, errno: syscall.EADDRNOTAVAIL},
		"no device":    {script: scripted.Script{scripted.Device: {scripted.Fail(syscall.ENODEV)}}, errno: syscall.ENODEV},
		"RoCE":         {transport: verbs.RoCE, errno: syscall.EOPNOTSUPP, text: "is not InfiniBand but RoCE"},
		"iWARP":        {transport: verbs.IWARP, errno: syscall.EOPNOTSUPP, text: "is not InfiniBand but iWARP"},
		"no such call": {script: scripted.Script{scripted.ResolveAddrInfo: {scripted.Fail(errors.ErrUnsupported)}}, text: "librdmacm 59"},
		"refused": {script: scripted.Script{scripted.ResolveAddrInfo: {scripted.Event(cm.AddrInfoError, status(syscall.EINVAL))}},
			errno: syscall.EINVAL, text: "ADDRINFO_ERROR"},
		"nothing found": {errno: syscall.EADDRNOTAVAIL, text: `knows no service "storage"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := ibProvider(c.script)
				if c.transport != 0 {
					p.Dev = scripted.NewDevice("dev0", c.transport)
				}
				r := ibRequest(p)
				if c.change != nil {
					c.change(&r)
				}
				_, err := cm.NewManager(p).Dial(t.Context(), r)
				require.Equal(t, cm.StageAddrInfo, stageError(t, err).Stage)
				if c.errno != 0 {
					require.ErrorIs(t, err, c.errno)
				}
				require.ErrorContains(t, err, c.text)
				require.Empty(t, p.ID(0).Called(scripted.GetAddrInfo), "rdma_getaddrinfo cannot ask the subnet administrator")
				requireClean(t, p)
			})
		})
	}
}

// Asking the subnet administrator can be cancelled like everything else.
func TestCancelIB(t *testing.T) {
	for name, c := range map[string]struct {
		call  string
		step  func(release <-chan struct{}) scripted.Step
		stage cm.Stage
	}{
		"opening":   {scripted.NewID, func(r <-chan struct{}) scripted.Step { return scripted.Stuck(r, scripted.Silent()) }, cm.StageOpen},
		"no answer": {scripted.ResolveAddrInfo, func(<-chan struct{}) scripted.Step { return scripted.Silent() }, cm.StageAddrInfo},
		"blocks":    {scripted.ResolveAddrInfo, func(<-chan struct{}) scripted.Step { return scripted.Block(time.Hour, scripted.Silent()) }, cm.StageAddrInfo},
		"stuck": {scripted.ResolveAddrInfo, func(r <-chan struct{}) scripted.Step {
			return scripted.Stuck(r, scripted.Event(cm.AddrInfoResolved, 0))
		}, cm.StageAddrInfo},
		"binding": {scripted.Bind, func(r <-chan struct{}) scripted.Step { return scripted.Stuck(r, scripted.Silent()) }, cm.StageAddrInfo},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				p := ibProvider(scripted.Script{c.call: {c.step(release)}})
				p.Answers = []cm.AddrInfo{{Dst: cm.Addr{IB: []byte("dst")}}}
				ctx, cancel := context.WithCancel(t.Context())
				done := dialAsync(ctx, cm.NewManager(p), ibRequest(p))
				time.Sleep(time.Second)
				cancel()
				r := <-done
				require.Equal(t, time.Second, r.took)
				requireCanceled(t, r.err, c.stage)
				close(release)
				requireClean(t, p)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		p := ibProvider()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := cm.NewManager(p).Dial(ctx, ibRequest(p))
		requireCanceled(t, err, cm.StageOpen)
		require.Empty(t, p.IDs())
	})
	synctest.Test(t, func(t *testing.T) {
		p := ibProvider(scripted.Script{scripted.ResolveAddrInfo: {scripted.Silent()}})
		began := time.Now()
		_, err := cm.NewManager(p).Dial(t.Context(), ibRequest(p))
		require.Equal(t, 3*time.Minute, time.Since(began), "the guard")
		require.ErrorIs(t, err, syscall.ETIMEDOUT)
		requireClean(t, p)
	})
}

// The answers share the time.
func TestIBTimeIsDivided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := ibProvider(nil, scripted.Script{scripted.Connect: {scripted.Silent()}}, nil)
		p.Answers = []cm.AddrInfo{{Dst: cm.Addr{IB: []byte("first")}}, {Dst: cm.Addr{IB: []byte("second")}}}
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		began := time.Now()
		conn, err := cm.NewManager(p).Dial(ctx, ibRequest(p))
		require.NoError(t, err)
		require.Equal(t, 4*time.Second, time.Since(began))
		finish(conn)
		requireClean(t, p)
	})
}

// A local InfiniBand address is used for the question and for the connection; it
// leads to no IP address.
func TestIBLocalAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := ibProvider()
		p.Answers = []cm.AddrInfo{{Dst: cm.Addr{IB: []byte("dst")}}}
		r := ibRequest(p)
		r.Local = cm.Addr{IB: []byte("port")}
		conn, err := cm.NewManager(p).Dial(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, "port", string(p.ID(0).Called(scripted.Bind)[0].Src.IB))
		require.Equal(t, "port", string(p.ID(1).Called(scripted.ResolveAddr)[0].Src.IB))
		finish(conn)
		requireClean(t, p)

		r.Network, r.Host, r.Service = cm.AnyIP, peerHost, peerPort
		_, err = cm.NewManager(p).Dial(t.Context(), r)
		require.ErrorContains(t, err, "no suitable address")
	})
}
