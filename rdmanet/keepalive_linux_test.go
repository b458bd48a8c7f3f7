package rdmanet

import (
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// keepAliveOptions are SO_KEEPALIVE and, if that is on, TCP_KEEPIDLE,
// TCP_KEEPINTVL and TCP_KEEPCNT of this process' socket between two addresses.
func keepAliveOptions(t *testing.T, c net.Conn) []int {
	t.Helper()
	text := func(sa unix.Sockaddr, err error) string {
		if v4, ok := sa.(*unix.SockaddrInet4); ok && err == nil {
			return (&net.TCPAddr{IP: v4.Addr[:], Port: v4.Port}).String()
		}
		return ""
	}
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, file := range files {
		fd, err := strconv.Atoi(file.Name())
		require.NoError(t, err)
		if text(unix.Getsockname(fd)) != c.LocalAddr().String() || text(unix.Getpeername(fd)) != c.RemoteAddr().String() {
			continue
		}
		get := func(level, option int) int {
			value, err := unix.GetsockoptInt(fd, level, option)
			require.NoError(t, err)
			return value
		}
		options := []int{get(unix.SOL_SOCKET, unix.SO_KEEPALIVE)}
		if options[0] != 0 {
			options = append(options, get(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE), get(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL), get(unix.IPPROTO_TCP, unix.TCP_KEEPCNT))
		}
		return options
	}
	t.Fatalf("no socket %v -> %v", c.LocalAddr(), c.RemoteAddr())
	return nil
}

// TestKeepAliveAsNet compares the options of the software NIC's sockets, dialed,
// accepted and plain, with those of package net.
func TestKeepAliveAsNet(t *testing.T) {
	const address = "127.0.0.1:0"
	for _, tc := range []struct {
		name      string
		keepAlive time.Duration
		config    net.KeepAliveConfig
	}{
		{"nothing set", 0, net.KeepAliveConfig{}},
		{"off", -1, net.KeepAliveConfig{}},
		{"KeepAlive", 30 * time.Second, net.KeepAliveConfig{}},
		{"KeepAlive is rounded up", 1500 * time.Millisecond, net.KeepAliveConfig{}},
		{"an empty config", 30 * time.Second, net.KeepAliveConfig{Enable: true}},
		{"a config", -1, net.KeepAliveConfig{Enable: true, Idle: 7 * time.Second, Interval: 3 * time.Second, Count: 4}},
		{"a config that is not enabled", 20 * time.Second, net.KeepAliveConfig{Idle: 7 * time.Second, Interval: 3 * time.Second, Count: 4}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pair := func(l net.Listener, err error, dial func(network, address string) (net.Conn, error)) (dialed, accepted net.Conn) {
				require.NoError(t, err)
				t.Cleanup(func() { l.Close() })
				dialed, err = dial("tcp4", l.Addr().String())
				require.NoError(t, err)
				t.Cleanup(func() { dialed.Close() })
				_, err = dialed.Write([]byte("GET "))
				require.NoError(t, err)
				accepted, err = l.Accept()
				require.NoError(t, err)
				t.Cleanup(func() { accepted.Close() })
				return dialed, accepted
			}
			l, err := (&net.ListenConfig{KeepAlive: tc.keepAlive, KeepAliveConfig: tc.config}).Listen(t.Context(), "tcp4", address)
			theirs := net.Dialer{KeepAlive: tc.keepAlive, KeepAliveConfig: tc.config}
			dialed, accepted := pair(l, err, theirs.Dial)
			want := keepAliveOptions(t, dialed)
			require.Equal(t, want, keepAliveOptions(t, accepted))

			lc := ListenConfig{Provider: Software, KeepAlive: tc.keepAlive, KeepAliveConfig: tc.config, AcceptPlain: true}
			ours := Dialer{Provider: Software, KeepAlive: tc.keepAlive, KeepAliveConfig: tc.config}
			l, err = lc.Listen(t.Context(), "tcp4", address)
			dialed, accepted = pair(l, err, ours.Dial)
			require.Equal(t, want, keepAliveOptions(t, dialed), "dialed")
			require.Equal(t, want, keepAliveOptions(t, accepted), "accepted")

			l, err = lc.Listen(t.Context(), "tcp4", address)
			_, accepted = pair(l, err, theirs.Dial)
			require.IsType(t, (*net.TCPConn)(nil), accepted)
			require.Equal(t, want, keepAliveOptions(t, accepted), "plain")
		})
	}
}
