package iwarp

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// Both ends' sockets have the options that package net's would have.
func TestSocketOptions(t *testing.T) {
	keep := net.KeepAliveConfig{Enable: true, Idle: 20 * time.Second, Interval: 30 * time.Second, Count: 4}
	for _, cfg := range []Config{{KeepAlive: keep}, {}, {KeepAlive: net.KeepAliveConfig{Idle: -1}}} {
		nic := openNIC(t, cfg)
		a, b := connectPair(t, nic, nic, verbs.QPAttr{})
		for _, e := range []*side{a, b} {
			fd := e.qp.(*queuePair).wire.(*socket).fd
			get := func(level, option int) int {
				n, err := unix.GetsockoptInt(fd, level, option)
				require.NoError(t, err)
				return n
			}
			require.NotZero(t, get(unix.IPPROTO_TCP, unix.TCP_NODELAY))
			switch {
			case cfg.KeepAlive.Idle < 0:
				require.Zero(t, get(unix.SOL_SOCKET, unix.SO_KEEPALIVE))
				continue
			case cfg.KeepAlive.Enable:
				require.Equal(t, 20, get(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE))
				require.Equal(t, 30, get(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL))
				require.Equal(t, 4, get(unix.IPPROTO_TCP, unix.TCP_KEEPCNT))
			default:
				require.Equal(t, 15, get(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE))
				require.Equal(t, 15, get(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL))
				require.Equal(t, 9, get(unix.IPPROTO_TCP, unix.TCP_KEEPCNT))
			}
			require.NotZero(t, get(unix.SOL_SOCKET, unix.SO_KEEPALIVE))
		}
		disconnectPair(a, b)
	}
}

// A dial to a port of this host that nobody listens on must not end in a
// connection of the socket with itself, and none begins when its context has ended.
func TestDialTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	dst := netip.MustParseAddrPort(l.Addr().String())
	c, err := dialTCP(t.Context(), netip.AddrPort{}, dst, net.KeepAliveConfig{})
	require.NoError(t, err)
	require.Equal(t, l.Addr().String(), c.RemoteAddr().String())
	p, err := c.plain()
	require.NoError(t, err)
	require.IsType(t, &net.TCPConn{}, p)
	require.Equal(t, c.LocalAddr().String(), p.LocalAddr().String())
	require.NoError(t, p.Close())
	require.NoError(t, l.Close())

	_, err = dialTCP(t.Context(), netip.AddrPort{}, dst, net.KeepAliveConfig{})
	require.ErrorIs(t, err, unix.ECONNREFUSED)

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = dialTCP(gone, netip.AddrPort{}, dst, net.KeepAliveConfig{})
	require.ErrorIs(t, err, context.Canceled)
}
