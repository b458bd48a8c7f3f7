//go:build linux && cgo

package rdmacore

import (
	"bytes"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// prompt is the bound for what must not wait for the network; devices are
// emulated at times.
const prompt = time.Second

// promptly runs what must be over soon.
func promptly(t testing.TB, what string, fn func()) {
	t.Helper()
	begin := time.Now()
	fn()
	took := time.Since(begin)
	t.Logf("%s took %v", what, took)
	require.Less(t, took, prompt, what)
}

func transportOf(t testing.TB, e *end) verbs.Transport {
	t.Helper()
	dev, err := e.id.Device()
	require.NoError(t, err)
	return dev.Info().Transport
}

func isIWARP(t testing.TB, p cm.Provider) bool {
	t.Helper()
	e := resolve(t, p, nobody(t))
	defer e.tear(t)
	return transportOf(t, e) == verbs.IWARP
}

// nobody is an address of the device's network that nobody has.
func nobody(t testing.TB) cm.Addr {
	t.Helper()
	a := addr4(t).As4()
	a[3] = 77
	return cm.Addr{AddrPort: netip.AddrPortFrom(netip.AddrFrom4(a), 7471)}
}

func TestDeviceAddresses(t *testing.T) {
	p, _ := needDevice(t)
	for _, variable := range []string{"RDMANET_TEST_ADDR4", "RDMANET_TEST_ADDR6"} {
		t.Run(variable, func(t *testing.T) {
			ip := testAddr(t, variable)
			noLeaks(t)
			l, at := listen(t, p, ip, 1)
			d := resolve(t, p, at)
			require.Equal(t, at.AddrPort, d.id.RemoteAddr())
			require.Equal(t, ip, d.id.LocalAddr().Addr())
			require.NotZero(t, d.id.LocalAddr().Port())
			require.EqualValues(t, 1, d.id.Port().Port)
			require.Equal(t, transportOf(t, d) != verbs.IWARP, d.id.Port().GID.IsValid())
			d.build(t)
			require.NoError(t, d.id.Connect(param()))
			a := newEnd(t, l.expect(t, cm.ConnectRequest).Request)
			require.Equal(t, d.id.LocalAddr(), a.id.RemoteAddr())
			require.Equal(t, at.AddrPort, a.id.LocalAddr())
			// both are on the device, and it is one
			dev, err := d.id.Device()
			require.NoError(t, err)
			other, err := a.id.Device()
			require.NoError(t, err)
			require.True(t, dev == other)
			a.tear(t)
			d.tear(t)
			l.tear(t)
		})
	}
}

// A source address picks the device and shows in the other end.
func TestDeviceSourceAddress(t *testing.T) {
	p, _ := needDevice(t)
	noLeaks(t)
	ip := addr4(t)
	l, at := listen(t, p, ip, 1)
	id, err := p.NewID()
	require.NoError(t, err)
	e := newEnd(t, id)
	require.NoError(t, id.ResolveAddr(cm.Addr{AddrPort: netip.AddrPortFrom(ip, 0)}, at, 2000))
	e.expect(t, cm.AddrResolved)
	require.Equal(t, ip, id.LocalAddr().Addr())
	e.tear(t)
	l.tear(t)
}

func TestDeviceListenWildcard(t *testing.T) {
	p, _ := needDevice(t)
	noLeaks(t)
	iwarp := isIWARP(t, p)
	for _, test := range []struct {
		wildcard string
		v6only   bool
		dials    string
		taken    bool
	}{
		{"0.0.0.0", false, "RDMANET_TEST_ADDR4", true},
		{"::", false, "RDMANET_TEST_ADDR4", true},
		{"::", false, "RDMANET_TEST_ADDR6", true},
		{"::", true, "RDMANET_TEST_ADDR6", true},
		{"::", true, "RDMANET_TEST_ADDR4", false},
	} {
		t.Run(test.wildcard+" "+test.dials, func(t *testing.T) {
			ip := testAddr(t, test.dials)
			if iwarp && test.wildcard == "::" && !test.v6only && ip.Is4() {
				test.taken = false // siw does not show such a request to its listener
			}
			id, err := p.NewID()
			require.NoError(t, err)
			l := newEnd(t, id)
			require.NoError(t, id.Bind(cm.Addr{AddrPort: netip.AddrPortFrom(netip.MustParseAddr(test.wildcard), 0)}, test.v6only))
			require.NoError(t, id.Listen(4))
			_, err = id.Device()
			require.ErrorIs(t, err, syscall.ENODEV)
			require.Zero(t, id.Port())

			d := resolve(t, p, cm.Addr{AddrPort: netip.AddrPortFrom(ip, id.LocalAddr().Port())})
			d.build(t)
			err = d.id.Connect(param())
			if test.taken {
				require.NoError(t, err)
				a := newEnd(t, l.expect(t, cm.ConnectRequest).Request)
				require.NoError(t, a.id.Reject(nil))
				d.expect(t, cm.Rejected)
				a.tear(t)
			} else if err == nil {
				d.expect(t, cm.Rejected)
			} else {
				require.ErrorIs(t, err, syscall.ECONNREFUSED)
			}
			d.tear(t)
			l.tear(t)
		})
	}
}

func TestDevicePrivateData(t *testing.T) {
	p, _ := needDevice(t)
	noLeaks(t)
	ip := addr4(t)
	l, at := listen(t, p, ip, 16)
	defer l.tear(t)
	iwarp := isIWARP(t, p)

	// How much each call takes, and what the other side is shown of n bytes.
	most := map[string]int{"connect": 56, "accept": 196, "reject": 148}
	if iwarp {
		most = map[string]int{"connect": 251, "accept": 251, "reject": 251}
	}
	data := func(n int) []byte { return bytes.Repeat([]byte{0xa5}, n) }
	check := func(t *testing.T, call string, n int, got []byte) {
		t.Helper()
		want := data(n)
		if !iwarp {
			want = append(want, make([]byte, most[call]-n)...)
		}
		require.True(t, bytes.Equal(want, got), "%s with %d bytes showed %x", call, n, got)
	}
	for _, n := range []int{0, 1, 40, 56, 148, 196, 251} {
		d := resolve(t, p, at)
		d.build(t)
		asked := min(n, most["connect"])
		require.NoError(t, d.id.Connect(cm.ConnParam{PrivateData: data(asked), RetryCount: 6, RNRRetryCount: 7}))
		request := l.expect(t, cm.ConnectRequest)
		check(t, "connect", asked, request.Param.PrivateData)
		a := newEnd(t, request.Request)
		if n%2 == 0 {
			a.build(t)
			answered := min(n, most["accept"])
			require.NoError(t, a.id.Accept(cm.ConnParam{PrivateData: data(answered), RetryCount: 6, RNRRetryCount: 7}))
			check(t, "accept", answered, d.expect(t, cm.Established).Param.PrivateData)
			a.expect(t, cm.Established)
			disconnect(t, d, a)
		} else {
			answered := min(n, most["reject"])
			require.NoError(t, a.id.Reject(data(answered)))
			check(t, "reject", answered, d.expect(t, cm.Rejected).Param.PrivateData)
		}
		a.tear(t)
		d.tear(t)
	}

	// One byte more is an error of the call, and of the call only: the
	// identifier is good for another.
	d := resolve(t, p, at)
	d.build(t)
	require.ErrorIs(t, d.id.Connect(cm.ConnParam{PrivateData: data(256)}), syscall.EINVAL)
	require.ErrorIs(t, d.id.Connect(cm.ConnParam{PrivateData: data(most["connect"] + 1)}), syscall.EINVAL)
	d.tear(t)
	d = resolve(t, p, at)
	d.build(t)
	require.NoError(t, d.id.Connect(param()))
	a := newEnd(t, l.expect(t, cm.ConnectRequest).Request)
	require.ErrorIs(t, a.id.Reject(data(256)), syscall.EINVAL)
	require.ErrorIs(t, a.id.Reject(data(most["reject"]+1)), syscall.EINVAL)
	require.NoError(t, a.id.Reject(nil))
	d.expect(t, cm.Rejected)
	a.tear(t)
	d.tear(t)
}

// More than the device has is cut down to what it has.
func TestDeviceDepthsAreCapped(t *testing.T) {
	p, _ := needDevice(t)
	noLeaks(t)
	l, at := listen(t, p, addr4(t), 16)
	d := resolve(t, p, at)
	d.build(t)
	dev, err := d.id.Device()
	require.NoError(t, err)
	want := uint8(min(dev.Info().MaxInitiatorRead, 255))
	greedy := cm.ConnParam{ResponderResources: 255, InitiatorDepth: 255, RetryCount: 6, RNRRetryCount: 7}
	require.NoError(t, d.id.Connect(greedy))
	request := l.expect(t, cm.ConnectRequest)
	if transportOf(t, d) != verbs.IWARP { // which tells the responder later, in its own frames
		require.Equal(t, want, request.Param.ResponderResources)
		require.Equal(t, want, request.Param.InitiatorDepth)
	}
	a := newEnd(t, request.Request)
	a.build(t)
	require.NoError(t, a.id.Accept(greedy))
	d.expect(t, cm.Established)
	a.expect(t, cm.Established)
	disconnect(t, d, a)
	a.tear(t)
	d.tear(t)
	l.tear(t)
}

func TestDeviceReject(t *testing.T) {
	p, _ := needDevice(t)
	noLeaks(t)
	l, at := listen(t, p, addr4(t), 16)
	d := resolve(t, p, at)
	d.build(t)
	require.NoError(t, d.id.Connect(param()))
	a := newEnd(t, l.expect(t, cm.ConnectRequest).Request)
	require.NoError(t, a.id.Reject([]byte("no")))
	ev := d.expect(t, cm.Rejected)
	if transportOf(t, d) == verbs.IWARP {
		require.Equal(t, -int(syscall.ECONNRESET), ev.Status)
	} else {
		require.Equal(t, 28, ev.Status) // rejected by the consumer
	}
	require.Equal(t, "no", string(ev.Param.PrivateData[:2]))
	a.tear(t)
	d.tear(t)
	l.tear(t)
}

func TestDeviceNobodyListens(t *testing.T) {
	p, _ := needDevice(t)
	noLeaks(t)
	l, at := listen(t, p, addr4(t), 16)
	l.tear(t) // the port is free again
	d := resolve(t, p, at)
	d.build(t)
	promptly(t, "the refusal", func() {
		if err := d.id.Connect(param()); err != nil {
			require.ErrorIs(t, err, syscall.ECONNREFUSED) // siw
			require.ErrorContains(t, err, "rdma_connect: connection refused")
		} else {
			require.Equal(t, 8, d.expect(t, cm.Rejected).Status) // invalid service ID
		}
	})
	d.tear(t)
}

func TestDeviceNoRoute(t *testing.T) {
	p, _ := needDevice(t)
	noLeaks(t)
	id, err := p.NewID()
	require.NoError(t, err)
	e := newEnd(t, id)
	err = id.ResolveAddr(cm.Addr{}, ipAddr("203.0.113.99:1"), 1000)
	require.ErrorIs(t, err, syscall.ENETUNREACH)
	require.EqualError(t, err, "rdma_resolve_addr: network is unreachable")
	// without an address there is neither route nor device
	require.ErrorIs(t, id.ResolveRoute(1000), syscall.EINVAL)
	require.ErrorIs(t, id.Connect(param()), syscall.ENODEV)
	require.ErrorIs(t, id.Accept(param()), syscall.ENODEV)
	e.tear(t)
}

func TestDeviceAddrInfo(t *testing.T) {
	p, _ := needDevice(t)
	noLeaks(t)
	ip := addr4(t)
	id, err := p.NewID()
	require.NoError(t, err)
	e := newEnd(t, id)
	q := cm.AddrInfoQuery{Node: ip.String(), Service: "7471"}
	want := cm.Addr{AddrPort: netip.AddrPortFrom(ip, 7471)}

	infos, err := id.GetAddrInfo(q)
	require.NoError(t, err)
	require.Len(t, infos, 1)
	require.Equal(t, want, infos[0].Dst)

	_, err = id.GetAddrInfo(cm.AddrInfoQuery{Node: "a-name.invalid", Service: "7471"})
	var ce *Error
	require.ErrorAs(t, err, &ce)
	require.Equal(t, -2, ce.Code) // EAI_NONAME: names are not its business

	switch err := id.ResolveAddrInfo(q); {
	case err == nil:
		t.Log("rdma_resolve_addrinfo works")
		e.expect(t, cm.AddrInfoResolved)
		infos, err := id.QueryAddrInfo()
		require.NoError(t, err)
		require.Len(t, infos, 1)
		require.Equal(t, want, infos[0].Dst)
		_, err = id.QueryAddrInfo()
		require.ErrorIs(t, err, syscall.ENOENT)
	default:
		t.Log(err)
	}
	// the port is not of InfiniBand
	require.Error(t, id.ResolveAddrInfo(cm.AddrInfoQuery{Service: "42", SA: true}))
	// it is good for more after all that
	l, at := listen(t, p, ip, 1)
	require.NoError(t, id.ResolveAddr(cm.Addr{}, at, 2000))
	e.expect(t, cm.AddrResolved)
	e.tear(t)
	l.tear(t)
}

func TestDeviceDestroyInEveryState(t *testing.T) {
	p, _ := needDevice(t)
	ip := addr4(t)
	iwarp := isIWARP(t, p)
	newID := func(t *testing.T) *end {
		id, err := p.NewID()
		require.NoError(t, err)
		return newEnd(t, id)
	}
	connecting := func(t *testing.T) (l, d *end) {
		l, at := listen(t, p, ip, 16)
		d = resolve(t, p, at)
		d.build(t)
		require.NoError(t, d.id.Connect(param()))
		return l, d
	}
	for _, test := range []struct {
		name  string
		reach func(t *testing.T) []*end
	}{
		{"new", func(t *testing.T) []*end { return []*end{newID(t)} }},
		{"bound", func(t *testing.T) []*end {
			e := newID(t)
			require.NoError(t, e.id.Bind(cm.Addr{AddrPort: netip.AddrPortFrom(ip, 0)}, false))
			return []*end{e}
		}},
		{"listening", func(t *testing.T) []*end {
			l, _ := listen(t, p, ip, 1)
			return []*end{l}
		}},
		{"resolving the address", func(t *testing.T) []*end {
			e := newID(t)
			require.NoError(t, e.id.ResolveAddr(cm.Addr{}, nobody(t), 2000))
			return []*end{e}
		}},
		{"resolving the route", func(t *testing.T) []*end {
			e := newID(t)
			require.NoError(t, e.id.ResolveAddr(cm.Addr{}, cm.Addr{AddrPort: netip.AddrPortFrom(ip, 1)}, 2000))
			e.expect(t, cm.AddrResolved)
			require.NoError(t, e.id.ResolveRoute(2000))
			return []*end{e}
		}},
		{"resolved", func(t *testing.T) []*end {
			return []*end{resolve(t, p, cm.Addr{AddrPort: netip.AddrPortFrom(ip, 1)})}
		}},
		{"with a queue pair", func(t *testing.T) []*end {
			e := resolve(t, p, cm.Addr{AddrPort: netip.AddrPortFrom(ip, 1)})
			e.build(t)
			return []*end{e}
		}},
		{"connecting, the dialer first", func(t *testing.T) []*end {
			l, d := connecting(t)
			return []*end{d, l}
		}},
		{"connecting, the listener first", func(t *testing.T) []*end {
			l, d := connecting(t)
			return []*end{l, d}
		}},
		{"connecting, the request in the mailbox", func(t *testing.T) []*end {
			l, d := connecting(t)
			ev := l.expect(t, cm.ConnectRequest)
			a := newEnd(t, ev.Request)
			return []*end{l, a, d}
		}},
		{"accepting", func(t *testing.T) []*end {
			l, d := connecting(t)
			a := newEnd(t, l.expect(t, cm.ConnectRequest).Request)
			a.build(t)
			require.NoError(t, a.id.Accept(param()))
			return []*end{a, d, l}
		}},
		{"established", func(t *testing.T) []*end {
			d, a := connect(t, p, ip)
			return []*end{d, a}
		}},
		{"disconnecting", func(t *testing.T) []*end {
			d, a := connect(t, p, ip)
			require.NoError(t, d.id.Disconnect())
			return []*end{d, a}
		}},
		{"disconnected", func(t *testing.T) []*end {
			d, a := connect(t, p, ip)
			disconnect(t, d, a)
			return []*end{d, a}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			noLeaks(t)
			ends := test.reach(t)
			for _, e := range ends {
				if iwarp && strings.HasPrefix(test.name, "connecting") {
					// It may have to wait for the other side, which is not
					// told when siw's listener goes in the wrong moment: see
					// TestDeviceDestroyWhileThePeerIsSilent.
					e.tear(t)
					continue
				}
				promptly(t, "destroying", func() { e.tear(t) })
			}
		})
	}
}

// A request that nobody has taken dies with its listener, and its dialer hears of
// it.
func TestDeviceListenerTakesRequestsWithIt(t *testing.T) {
	p, _ := needDevice(t)
	noLeaks(t)
	id, err := p.NewID()
	require.NoError(t, err)
	require.NoError(t, id.Bind(cm.Addr{AddrPort: netip.AddrPortFrom(addr4(t), 0)}, false))
	require.NoError(t, id.Listen(4))
	d := resolve(t, p, cm.Addr{AddrPort: id.LocalAddr()})
	d.build(t)
	require.NoError(t, d.id.Connect(param()))
	require.Eventually(t, func() bool {
		shared.provider.mu.Lock()
		defer shared.provider.mu.Unlock()
		return len(shared.ids) == 3 // listener, dialer, request
	}, patience, time.Millisecond)
	require.NoError(t, id.Destroy())
	d.expect(t, cm.Rejected)
	d.tear(t)
}

func TestDeviceDestroyWithQueuePair(t *testing.T) {
	p, _ := needDevice(t)
	noLeaks(t)
	e := resolve(t, p, cm.Addr{AddrPort: netip.AddrPortFrom(addr4(t), 1)})
	e.build(t)
	require.ErrorIs(t, e.id.Destroy(), syscall.EBUSY)
	e.tear(t)
}

// Towards an address that nobody has: on siw the call blocks, on RoCE it does not;
// either way it is over at once when it is interrupted, and what follows is too.
func TestDeviceInterruptConnect(t *testing.T) {
	p, _ := needDevice(t)
	noLeaks(t)
	for _, after := range []time.Duration{0, time.Millisecond, 50 * time.Millisecond} {
		d := resolve(t, p, nobody(t))
		d.build(t)
		iwarp := transportOf(t, d) == verbs.IWARP
		done := make(chan error, 1)
		go func() { done <- d.id.Connect(param()) }()
		time.Sleep(after)
		if iwarp && after > 0 {
			require.Empty(t, done, "the call was expected to block")
		}
		promptly(t, "interrupting", func() {
			d.id.Interrupt()
			err := <-done
			if iwarp || err != nil {
				require.ErrorIs(t, err, syscall.EINTR)
			}
		})
		require.ErrorIs(t, d.id.Connect(param()), syscall.EINTR)
		promptly(t, "destroying", func() { d.tear(t) })
	}
}

// A peer that takes iWARP's TCP connection and then says nothing: the kernel waits
// for it for 10 s, and so does whoever destroys what connects to it. Nobody else
// does.
func TestDeviceDestroyWhileThePeerIsSilent(t *testing.T) {
	p, _ := needDevice(t)
	noLeaks(t)
	if !isIWARP(t, p) {
		t.Skip("only iWARP has TCP below it")
	}
	tcp, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(addr4(t), 0)))
	require.NoError(t, err)
	defer tcp.Close()
	d := resolve(t, p, cm.Addr{AddrPort: tcp.Addr().(*net.TCPAddr).AddrPort()})
	d.build(t)
	require.NoError(t, d.id.Connect(param()))
	c, err := tcp.Accept()
	require.NoError(t, err)
	defer c.Close()
	done := make(chan error, 1)
	begin := time.Now()
	go func() { done <- d.qp.Destroy() }()

	promptly(t, "another connection", func() {
		other, a := connect(t, p, addr4(t))
		disconnect(t, other, a)
		other.tear(t)
		a.tear(t)
	})
	require.Empty(t, done)
	select {
	case err := <-done:
		require.NoError(t, err)
		t.Logf("the queue pair was gone after %v", time.Since(begin))
	case <-time.After(patience):
		require.FailNow(t, "the queue pair is not destroyed")
	}
	d.qp = nil
	promptly(t, "destroying the identifier", func() { d.tear(t) })
}
