package rdmanet

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// noDeviceAddr fails in every provider that is there, and for want of one else.
const noDeviceAddr = "203.0.113.1:9"

func TestDialArguments(t *testing.T) {
	for _, tc := range []struct {
		name             string
		network, address string
		dialer           Dialer
		want             error
	}{
		{"unknown network", "carrier-pigeon", noDeviceAddr, Dialer{}, net.UnknownNetworkError("carrier-pigeon")},
		{"local address of another kind", "rdma", noDeviceAddr, Dialer{LocalAddr: &net.UnixAddr{}}, nil},
		{"no port", "rdma", "203.0.113.1", Dialer{}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := tc.dialer.Dial(tc.network, tc.address)
			require.Nil(t, c, "no typed nil")
			var oe *net.OpError
			require.ErrorAs(t, err, &oe)
			require.Equal(t, "dial", oe.Op)
			require.Equal(t, "rdma", oe.Net)
			require.False(t, oe.Timeout())
			if tc.want != nil {
				require.Equal(t, tc.want, oe.Err)
			}
		})
	}
	require.Panics(t, func() { (&Dialer{}).DialContext(nil, "rdma", noDeviceAddr) }) //lint:ignore SA1012 as package net does
}

func TestListenArguments(t *testing.T) {
	for _, tc := range [][2]string{{"ib", ":0"}, {"pigeon", ":0"}, {"rdma", "nowhere"}} {
		l, err := Listen(tc[0], tc[1])
		require.Nil(t, l, "no typed nil")
		var oe *net.OpError
		require.ErrorAs(t, err, &oe)
		require.Equal(t, "listen", oe.Op)
		require.Equal(t, "rdma", oe.Net)
	}
}

func TestDialerDeadline(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, tc := range []struct {
		d    Dialer
		want time.Time
	}{
		{Dialer{}, time.Time{}},
		{Dialer{Timeout: time.Second}, now.Add(time.Second)},
		{Dialer{Deadline: now.Add(2 * time.Second)}, now.Add(2 * time.Second)},
		{Dialer{Timeout: time.Second, Deadline: now.Add(2 * time.Second)}, now.Add(time.Second)},
		{Dialer{Timeout: 3 * time.Second, Deadline: now.Add(2 * time.Second)}, now.Add(2 * time.Second)},
		{Dialer{Timeout: -1}, now.Add(-1)},
	} {
		got, ok := tc.d.deadline(now)
		require.Equal(t, !tc.want.IsZero(), ok)
		require.True(t, tc.want.Equal(got), "%v", got)
	}
}

func TestListenExtremes(t *testing.T) {
	require.Panics(t, func() { (&ListenConfig{}).Listen(nil, "rdma", "127.0.0.1:0") }) //lint:ignore SA1012 as package net does
	for _, backlog := range []int{math.MinInt, 1, math.MaxInt32, math.MaxInt} {
		l, err := (&ListenConfig{Provider: Software, Backlog: backlog}).Listen(t.Context(), "rdma", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
}

// stageError is a connection manager's error as the sequence makes it.
func stageError(addr string, err error, errno syscall.Errno) *cm.StageError {
	return &cm.StageError{
		Stage: cm.StageConnect, Call: "rdma_connect",
		Addr:  cm.Addr{AddrPort: netip.MustParseAddrPort(addr)},
		Event: cm.Rejected, Status: 8, Errno: errno, Err: err,
	}
}

func TestPublicStageError(t *testing.T) {
	inner := stageError("10.0.0.7:9000", syscall.ECONNREFUSED, syscall.ECONNREFUSED)
	err := publicError(inner)
	var se *StageError
	require.ErrorAs(t, err, &se)
	require.Equal(t, StageConnect, se.Stage)
	require.Equal(t, "REJECTED", se.Event)
	require.Equal(t, 8, se.Status)
	require.Equal(t, "10.0.0.7:9000", se.Addr.String())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.Equal(t, inner.Error(), err.Error())
	require.False(t, se.Timeout())
	require.Equal(t, "10.0.0.7:9000", errorAddr(inner, "name:9000").String())
	require.Nil(t, errorAddr(io.EOF, "name:9000"))
}

func TestStagesHaveNames(t *testing.T) {
	for s := cm.StageOpen; s <= cm.StageAccept; s++ {
		require.NotEmpty(t, stages[s], "%v", s)
	}
}

func TestWrap(t *testing.T) {
	c := &Conn{local: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}, remote: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 2}}
	require.NoError(t, c.wrap(opRead, nil))
	require.Equal(t, io.EOF, c.wrap(opRead, io.EOF))
	err := c.wrap(opRead, syscall.ECONNRESET)
	require.EqualError(t, err, "read rdma 10.0.0.1:1->10.0.0.7:2: connection reset by peer")
	require.ErrorIs(t, c.wrap(opWrite, context.Canceled), context.Canceled)
}

func TestKeepAlive(t *testing.T) {
	require.Equal(t, net.KeepAliveConfig{Enable: true}, keepAlive(0, net.KeepAliveConfig{}))
	require.False(t, keepAlive(-1, net.KeepAliveConfig{}).Enable)
	require.Equal(t, net.KeepAliveConfig{Enable: true, Idle: time.Second}, keepAlive(time.Second, net.KeepAliveConfig{}))
	cfg := net.KeepAliveConfig{Enable: true, Idle: 1, Interval: 2, Count: 3}
	require.Equal(t, cfg, keepAlive(-1, cfg))
	cfg = net.KeepAliveConfig{Enable: true, Idle: -1, Interval: -1, Count: -1}
	require.Equal(t, net.KeepAliveConfig{Enable: true}, keepAlive(time.Second, cfg), "the defaults")
}

func TestInfoOf(t *testing.T) {
	c := &Conn{info: Info{Device: "rxe0"}}
	info, ok := InfoOf(wrapped{c})
	require.True(t, ok)
	require.Equal(t, "rxe0", info.Device)
	_, ok = InfoOf(&net.TCPConn{})
	require.False(t, ok)
	_, ok = InfoOf(nil)
	require.False(t, ok)
}

// wrapped is a connection in another, as *tls.Conn is.
type wrapped struct{ net.Conn }

func (w wrapped) NetConn() net.Conn { return w.Conn }

func TestDialTraces(t *testing.T) {
	require.Nil(t, stageTrace(context.Background()))
	var got []string
	hook := func(name string) *DialTrace {
		return &DialTrace{
			StageStart: func(s DialStage) { got = append(got, name+" start "+string(s.Stage)+" "+s.Timeout.String()) },
			StageDone:  func(r DialStageResult) { got = append(got, name+" done "+r.Event) },
		}
	}
	ctx := WithDialTrace(context.Background(), hook("outer"))
	ctx = WithDialTrace(ctx, hook("inner"))
	ctx = WithDialTrace(ctx, &DialTrace{})
	trace := stageTrace(ctx)
	info := cm.StageInfo{Stage: cm.StageRoute, TimeoutMS: 250}
	trace.StageStart(info)
	trace.StageDone(cm.StageResult{StageInfo: info, Event: cm.RouteError, Err: errors.New("x")})
	require.Equal(t, []string{
		"inner start route 250ms", "outer start route 250ms",
		"inner done ROUTE_ERROR", "outer done ROUTE_ERROR",
	}, got)
	require.Panics(t, func() { WithDialTrace(ctx, nil) })
}
