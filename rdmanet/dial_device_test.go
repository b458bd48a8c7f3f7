package rdmanet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDeviceDialRefused(t *testing.T) {
	dev := needDevice(t)
	for _, ip := range []netip.Addr{dev.addr4, dev.addr6} {
		begin := time.Now()
		_, err := (&Dialer{Provider: Verbs, Timeout: time.Minute}).Dial("rdma", netip.AddrPortFrom(ip, 9).String())
		t.Log(err)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.Less(t, time.Since(begin), 5*time.Second, "a refusal needs no time-out")
		var se *StageError
		require.ErrorAs(t, err, &se)
		require.Equal(t, StageConnect, se.Stage)
		requireOpError(t, err, "dial")
	}
}

func TestDeviceDialNoRoute(t *testing.T) {
	needDevice(t)
	_, err := Dial("rdma", "203.0.113.1:9")
	t.Log(err)
	require.ErrorIs(t, err, syscall.ENETUNREACH)
	var se *StageError
	require.ErrorAs(t, err, &se)
	require.Equal(t, StageAddr, se.Stage)
}

func TestDeviceDialLoopback(t *testing.T) {
	dev := needDevice(t)
	if dev.iwarp {
		t.Skip("what 127.0.0.1 resolves to is tested on RoCE")
	}
	_, err := Dial("rdma", "127.0.0.1:9")
	t.Log(err)
	require.ErrorIs(t, err, syscall.ENODEV)
	var se *StageError
	require.ErrorAs(t, err, &se)
	require.Equal(t, StageRoute, se.Stage)
}

// deadAddr is an address of the device's subnet that nobody holds.
func (d testDevice) deadAddr() netip.Addr {
	b := d.addr4.As4()
	b[3] = 77
	return netip.AddrFrom4(b)
}

func TestDeviceDialTimeout(t *testing.T) {
	dev := needDevice(t)
	for range 5 {
		begin := time.Now()
		_, err := (&Dialer{Provider: Verbs, Timeout: 300 * time.Millisecond}).Dial("rdma", netip.AddrPortFrom(dev.deadAddr(), 9).String())
		took := time.Since(begin)
		t.Log(took, err)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, requireOpError(t, err, "dial").Timeout())
		require.Less(t, took, 350*time.Millisecond)
		require.GreaterOrEqual(t, took, 300*time.Millisecond)
	}
}

// TestDeviceDialCanceled cancels as each stage begins, and in the middle of the
// connect stage.
func TestDeviceDialCanceled(t *testing.T) {
	dev := needDevice(t)
	for _, stage := range []string{"addrinfo", "addr", "route", "connect", "connecting"} {
		t.Run(stage, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var once sync.Once
			var canceled time.Time
			ctx = WithDialTrace(ctx, &DialTrace{StageStart: func(s DialStage) {
				if strings.HasPrefix(stage, string(s.Stage)) && (string(s.Stage) == stage || s.Stage == StageConnect) {
					delay := time.Duration(0)
					if stage == "connecting" {
						delay = 200 * time.Millisecond
					}
					once.Do(func() {
						time.AfterFunc(delay, func() { canceled = time.Now(); cancel() })
					})
				}
			}})
			_, err := (&Dialer{Provider: Verbs}).DialContext(ctx, "rdma", netip.AddrPortFrom(dev.deadAddr(), 9).String())
			returned := time.Now()
			require.ErrorIs(t, err, context.Canceled)
			require.False(t, requireOpError(t, err, "dial").Timeout())
			t.Logf("%v after the cancellation: %v", returned.Sub(canceled), err)
			require.Less(t, returned.Sub(canceled), 100*time.Millisecond, "ten times what a machine without emulation gets")
		})
	}
}

// TestDeviceDialSecondAddress dials a name whose first address is dead.
func TestDeviceDialSecondAddress(t *testing.T) {
	dev := needDevice(t)
	name := dev.name[:3] + ".two.test"
	ips, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip4", name)
	if err != nil {
		t.Skipf("the resolver does not know %s (the lab's guests do): %v", name, err)
	}
	require.Len(t, ips, 2)
	l := listenTest(t, port0(dev.addr4))
	go echoServer(l)
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	begin := time.Now()
	c, err := (&Dialer{Provider: Verbs, Timeout: 6 * time.Second}).Dial("rdma", net.JoinHostPort(name, port))
	require.NoError(t, err)
	defer c.Close()
	t.Logf("connected to %v after %v", c.RemoteAddr(), time.Since(begin))
	require.NoError(t, echoOnce(c, 1000, 1))
}

func TestDeviceDialLocalAddr(t *testing.T) {
	dev := needDevice(t)
	for _, ip := range []netip.Addr{dev.addr4, dev.addr6} {
		l := listenTest(t, port0(ip))
		go echoServer(l)
		for _, local := range []net.Addr{
			&Addr{IP: ip.AsSlice()},
			&net.TCPAddr{IP: ip.AsSlice()},
		} {
			c, err := (&Dialer{Provider: Verbs, LocalAddr: local, Timeout: 10 * time.Second}).Dial("rdma", l.Addr().String())
			require.NoError(t, err)
			got := c.LocalAddr().(*Addr)
			require.Equal(t, ip, got.AddrPort().Addr())
			require.NotZero(t, got.Port)
			require.Equal(t, l.Addr().String(), c.RemoteAddr().String())
			info, ok := InfoOf(c)
			require.True(t, ok)
			require.Equal(t, dev.name, info.Device)
			require.NoError(t, echoOnce(c, 5000, 2))
			require.NoError(t, c.Close())
		}
	}
	_, err := (&Dialer{Provider: Verbs, LocalAddr: &Addr{IP: net.IPv4(203, 0, 113, 9)}}).Dial("rdma", port0(dev.addr4))
	t.Log(err)
	require.Error(t, err, "an address that is not ours")
}

func TestDeviceDialIB(t *testing.T) {
	dev := needDevice(t)
	_, err := (&Dialer{Provider: Verbs, Timeout: 5 * time.Second, LocalAddr: &Addr{IP: dev.addr4.AsSlice()}}).Dial("ib", "0x1234")
	t.Log(err)
	require.ErrorContains(t, err, "not InfiniBand")
	_, err = (&Dialer{Provider: Verbs, Timeout: 5 * time.Second}).Dial("ib", "0x1234")
	t.Log(err)
	require.ErrorContains(t, err, "LocalAddr")
}

// requireOpError checks the outer shape of an error and returns it.
func requireOpError(t *testing.T, err error, op string) *net.OpError {
	t.Helper()
	var oe *net.OpError
	require.True(t, errors.As(err, &oe), "%T is no *net.OpError: %v", err, err)
	require.Equal(t, op, oe.Op)
	require.Equal(t, "rdma", oe.Net)
	return oe
}
