//go:build linux && cgo

package rdmacore

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// The main thread is the main goroutine's alone, so that it can look for devices first.
func init() { runtime.LockOSThread() }

// TestMain looks for the devices on the main thread, whose malloc arena is far from
// those of the threads that tests run on. A device that is added later is then, if
// nothing is done about it, far away from these in memory. That is what librdmacm up
// to 51 cannot bear: see onethread.c.
func TestMain(m *testing.M) {
	if os.Getenv("RDMANET_TEST_DEVICE") != "" {
		if _, err := Devices(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// join makes a connection to a listener, which remains.
func join(t testing.TB, p cm.Provider, l *end, to cm.Addr) (d, a *end) {
	t.Helper()
	d = resolve(t, p, to)
	d.build(t)
	postReceives(t, d)
	require.NoError(t, d.id.Connect(param()))
	a = newEnd(t, l.expect(t, cm.ConnectRequest).Request)
	a.build(t)
	postReceives(t, a)
	require.NoError(t, a.id.Accept(param()))
	d.expect(t, cm.Established)
	a.expect(t, cm.Established)
	return d, a
}

// carries sends some bytes from d to a.
func carries(t testing.TB, d, a *end) {
	t.Helper()
	copy(d.mr.Bytes()[32<<10:], "still here")
	d.send(t, verbs.SendWR{ID: 1, Opcode: verbs.OpSend, Flags: verbs.FlagSignaled, NumSGE: 1, SGE: d.sge(32<<10, 10)})
	wc := a.completions(t, 1)[0]
	require.Equal(t, verbs.WCSuccess, wc.Status)
	require.Equal(t, "still here", string(a.mr.Bytes()[int(wc.ID)*receiveSize:][:10]))
	require.Equal(t, verbs.WCSuccess, d.completions(t, 1)[0].Status)
}

// A device is removed under connections and a listener, and added again. Meanwhile
// and afterwards the connections and listeners of another device work, new ones can
// be made there, and a listener on all addresses takes what comes to the device
// that is back.
func TestDeviceRemovalSparesOthers(t *testing.T) {
	p, name := needDevice(t)
	noLeaks(t)
	other, own := addr4(t), netip.MustParseAddr(ownAddr)

	l, at := listen(t, p, other, 8)
	d, a := join(t, p, l, at)
	here, err := d.id.Device()
	require.NoError(t, err)
	all, wildcard := listen(t, p, netip.IPv4Unspecified(), 8)

	for round := range 2 {
		remove := addLink(t, name)
		if round == 1 { // an event is the first to name the device; else it is rdma_bind_addr
			od, oa := join(t, p, all, cm.Addr{AddrPort: netip.AddrPortFrom(own, wildcard.Port())})
			carries(t, od, oa)
			disconnect(t, od, oa)
			od.tear(t)
			oa.tear(t)
		}
		ol, oat := listen(t, p, own, 8)
		od, oa := join(t, p, ol, oat)
		carries(t, od, oa)
		there, err := od.id.Device()
		require.NoError(t, err)
		require.Equal(t, ownLink, there.Info().Name)
		if _, err := od.id.QueryAddrInfo(); errors.Is(err, errors.ErrUnsupported) { // an older librdmacm
			if far := apart(here, there); far >= 1<<31 {
				t.Errorf("the devices are %#x bytes apart: librdmacm may forget both when one is removed", far)
			}
		}

		done := make(chan error, 1)
		go func() { done <- remove() }()
		for _, e := range []*end{od, oa, ol} {
			for e.expectAny(t).Type != cm.DeviceRemoval {
			}
		}
		carries(t, d, a)
		for _, e := range []*end{od, oa, ol} {
			e.tear(t)
		}
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(patience):
			require.FailNow(t, "the device is not given back")
		}
		require.NoError(t, run(t, "/usr/bin/ip", "link", "del", ownNetdev))

		carries(t, d, a)
		for range 2 {
			nl, nat := listen(t, p, other, 8)
			for _, to := range []struct {
				l  *end
				at cm.Addr
			}{{nl, nat}, {l, at}, {all, cm.Addr{AddrPort: netip.AddrPortFrom(other, wildcard.Port())}}} {
				nd, na := join(t, p, to.l, to.at)
				carries(t, nd, na)
				dev, err := nd.id.Device()
				require.NoError(t, err)
				require.True(t, dev == here, "another context of the same device")
				disconnect(t, nd, na)
				nd.tear(t)
				na.tear(t)
			}
			nl.tear(t)
		}
	}
	disconnect(t, d, a)
	for _, e := range []*end{d, a, l, all} {
		e.tear(t)
	}
}

// apart is how far from each other libibverbs has put two devices.
func apart(x, y verbs.Device) uint64 {
	at := func(d verbs.Device) uint64 { return uint64(uintptr(unsafe.Pointer(d.(*device).c.device))) }
	return max(at(x), at(y)) - min(at(x), at(y))
}
