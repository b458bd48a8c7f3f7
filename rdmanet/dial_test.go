package rdmanet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDialRefused(t *testing.T) { eachTarget(t, testDialRefused) }

func testDialRefused(t *testing.T, on target) {
	for _, ip := range on.addrs() {
		begin := time.Now()
		_, err := on.dialer(time.Minute).Dial("rdma", netip.AddrPortFrom(ip, 9).String())
		t.Log(err)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.Less(t, time.Since(begin), 5*time.Second, "a refusal needs no time-out")
		var se *StageError
		require.ErrorAs(t, err, &se)
		require.Equal(t, StageConnect, se.Stage)
		requireOpError(t, err, "dial")
	}
}

func TestDialNoRoute(t *testing.T) { eachTarget(t, testDialNoRoute) }

func testDialNoRoute(t *testing.T, on target) {
	const nowhere = "203.0.113.1:9"
	if c, err := net.Dial("udp", nowhere); err == nil { // which sends nothing
		c.Close()
		t.Skip("this host has a route to everywhere")
	}
	_, err := on.dialer(time.Minute).Dial("rdma", nowhere)
	t.Log(err)
	require.ErrorIs(t, err, syscall.ENETUNREACH)
	var se *StageError
	require.ErrorAs(t, err, &se)
	require.Equal(t, StageAddr, se.Stage)
}

func TestDialLoopback(t *testing.T) { eachTarget(t, testDialLoopback) }

func testDialLoopback(t *testing.T, on target) {
	if on.iwarp {
		t.Skip("what 127.0.0.1 resolves to is tested on RoCE")
	}
	_, err := on.dialer(time.Minute).Dial("rdma", "127.0.0.1:9")
	t.Log(err)
	require.ErrorIs(t, err, syscall.ENODEV)
	var se *StageError
	require.ErrorAs(t, err, &se)
	require.Equal(t, StageRoute, se.Stage)
}

// deadAddr is where a dial comes as far as the connect stage and no further: an
// address of the device's subnet that nobody holds; for the software NIC a TCP
// listener that never accepts.
func (on target) deadAddr(t *testing.T) string {
	if on.provider == Software {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
		return l.Addr().String()
	}
	b := on.addr4.As4()
	b[3] = 77
	return netip.AddrPortFrom(netip.AddrFrom4(b), 9).String()
}

func TestDialTimeout(t *testing.T) { eachTarget(t, testDialTimeout) }

func testDialTimeout(t *testing.T, on target) {
	const limit = 300 * time.Millisecond
	dead := on.deadAddr(t)
	var took []time.Duration
	for range 5 {
		begin := time.Now()
		_, err := on.dialer(limit).Dial("rdma", dead)
		took = append(took, time.Since(begin))
		t.Log(err)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, requireOpError(t, err, "dial").Timeout())
	}
	slices.Sort(took)
	t.Log(took)
	require.GreaterOrEqual(t, took[0], limit)
	require.Less(t, took[2], limit+50*time.Millisecond, "the median: a machine may be busy")
}

// TestDialCanceled cancels as each stage begins, and in the middle of the
// connect stage.
func TestDialCanceled(t *testing.T) { eachTarget(t, testDialCanceled) }

func testDialCanceled(t *testing.T, on target) {
	dead := on.deadAddr(t)
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
			_, err := on.dialer(0).DialContext(ctx, "rdma", dead)
			returned := time.Now()
			require.ErrorIs(t, err, context.Canceled)
			require.False(t, requireOpError(t, err, "dial").Timeout())
			t.Logf("%v after the cancellation: %v", returned.Sub(canceled), err)
			require.Less(t, returned.Sub(canceled), 100*time.Millisecond, "ten times what a machine without emulation gets")
		})
	}
}

// TestDialSecondAddress dials a name whose first address is dead.
func TestDialSecondAddress(t *testing.T) { eachTarget(t, testDialSecondAddress) }

func testDialSecondAddress(t *testing.T, on target) {
	l := on.listen(t, port0(on.addr4))
	go echoServer(l)
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	dead := on.addr4.As4()
	dead[3] = 77
	d := on.dialer(6 * time.Second)
	d.Resolver = fakeResolver("two.test", netip.AddrFrom4(dead), on.addr4)
	var mu sync.Mutex
	var tried []string
	ctx := WithDialTrace(t.Context(), &DialTrace{StageDone: func(r DialStageResult) {
		if r.Addr != nil && (r.Stage == StageAddr || r.Err != nil) {
			mu.Lock()
			defer mu.Unlock()
			tried = append(tried, r.Addr.String())
		}
	}})
	begin := time.Now()
	c, err := d.DialContext(ctx, "rdma", net.JoinHostPort("two.test", port))
	require.NoError(t, err)
	defer c.Close()
	t.Logf("connected to %v after %v, tried %v", c.RemoteAddr(), time.Since(begin), tried)
	require.Less(t, time.Since(begin), 4*time.Second, "the first address gets half of the time")
	require.NoError(t, echoOnce(c, 1000, 1))
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, netip.AddrFrom4(dead).String()+":"+port, tried[0])

	_, err = d.Dial("rdma", net.JoinHostPort("unknown.test", port))
	t.Log(err)
	var de *net.DNSError
	require.ErrorAs(t, err, &de)
	require.True(t, de.IsNotFound)
}

// TestDialNoAddress dials a name none of whose addresses answers: the error is
// that of all of them.
func TestDialNoAddress(t *testing.T) { eachTarget(t, testDialNoAddress) }

func testDialNoAddress(t *testing.T, on target) {
	d := on.dialer(time.Minute)
	d.Resolver = fakeResolver("two.test", on.addr4, on.addr4)
	_, err := d.Dial("rdma", "two.test:9")
	t.Log(err)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.False(t, requireOpError(t, err, "dial").Timeout())
	require.Equal(t, 2, strings.Count(err.Error(), "connection refused"), "%v", err)
}

func TestDialLocalAddr(t *testing.T) { eachTarget(t, testDialLocalAddr) }

func testDialLocalAddr(t *testing.T, on target) {
	for _, ip := range on.addrs() {
		l := on.listen(t, port0(ip))
		go echoServer(l)
		local := &net.TCPAddr{IP: ip.AsSlice()}
		c, err := (&Dialer{Provider: on.provider, LocalAddr: local, Timeout: 10 * time.Second}).Dial("rdma", l.Addr().String())
		require.NoError(t, err)
		got := c.LocalAddr().(*net.TCPAddr)
		require.Equal(t, ip, got.AddrPort().Addr())
		require.NotZero(t, got.Port)
		require.Equal(t, l.Addr().String(), c.RemoteAddr().String())
		info, ok := InfoOf(c)
		require.True(t, ok)
		require.Equal(t, on.device, info.Device)
		require.NoError(t, echoOnce(c, 5000, 2))
		require.NoError(t, c.Close())
	}
	_, err := (&Dialer{Provider: on.provider, LocalAddr: &net.TCPAddr{IP: net.IPv4(203, 0, 113, 9)}}).Dial("rdma", port0(on.addr4))
	t.Log(err)
	require.Error(t, err, "an address that is not ours")
}

func TestDialIB(t *testing.T) { eachTarget(t, testDialIB) }

func testDialIB(t *testing.T, on target) {
	_, err := (&Dialer{Provider: on.provider, Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: on.addr4.AsSlice()}}).Dial("ib", "0x1234")
	t.Log(err)
	require.ErrorContains(t, err, "not InfiniBand")
	_, err = on.dialer(5*time.Second).Dial("ib", "0x1234")
	t.Log(err)
	require.ErrorContains(t, err, "needs a local address")
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
