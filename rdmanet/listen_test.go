package rdmanet

import (
	"context"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEcho(t *testing.T) { eachTarget(t, testEcho) }

func testEcho(t *testing.T, on target) {
	for name, ip := range map[string]netip.Addr{"IPv4": on.addr4, "IPv6": on.addr6} {
		t.Run(name, func(t *testing.T) {
			l := on.listen(t, port0(ip))
			go echoServer(l)
			c, err := on.dialer(10*time.Second).Dial("rdma", l.Addr().String())
			require.NoError(t, err)
			defer c.Close()
			for _, size := range []int{1, 64, 4096, 65537, 1 << 20, 8 << 20} {
				require.NoError(t, echoOnce(c, size, uint64(size)), "%d bytes", size)
			}
		})
	}
}

func TestEchoTenAtOnce(t *testing.T) { eachTarget(t, testEchoTenAtOnce) }

func testEchoTenAtOnce(t *testing.T, on target) {
	l := on.listen(t, port0(on.addr4))
	go echoServer(l)
	var wg sync.WaitGroup
	errs := make(chan error, 10)
	for i := range 10 {
		wg.Go(func() {
			c, err := on.dialer(30*time.Second).Dial("rdma", l.Addr().String())
			if err != nil {
				errs <- err
				return
			}
			defer c.Close()
			for _, size := range []int{64, 4096, 200000} {
				if err := echoOnce(c, size, uint64(i)); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
}

// TestListenEverywhere listens on all addresses and dials each.
func TestListenEverywhere(t *testing.T) { eachTarget(t, testListenEverywhere) }

func testListenEverywhere(t *testing.T, on target) {
	for _, tc := range []struct {
		network, address string
		v4, v6           bool
	}{
		{"rdma", ":0", true, true},
		{"rdma", "[::]:0", true, true},
		{"rdma", "0.0.0.0:0", true, true}, // as package net has it for "tcp"
		{"rdma4", "0.0.0.0:0", true, false},
		{"rdma4", ":0", true, false},
		{"rdma6", ":0", false, true},
	} {
		t.Run(tc.network+" "+tc.address, func(t *testing.T) {
			lc := ListenConfig{Provider: on.provider}
			l, err := lc.Listen(t.Context(), tc.network, tc.address)
			require.NoError(t, err)
			defer l.Close()
			go echoServer(l)
			_, port, err := net.SplitHostPort(l.Addr().String())
			require.NoError(t, err)
			require.NotEqual(t, "0", port)
			for ip, served := range map[netip.Addr]bool{on.addr4: tc.v4, on.addr6: tc.v6} {
				c, err := on.dialer(10*time.Second).Dial("rdma", net.JoinHostPort(ip.String(), port))
				if !served {
					require.Error(t, err, "%v", ip)
					continue
				}
				require.NoError(t, err, "%v", ip)
				require.NoError(t, echoOnce(c, 3000, 3), "%v", ip)
				require.Equal(t, ip, c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr())
				require.NoError(t, c.Close())
			}
		})
	}
}

func TestListenErrors(t *testing.T) { eachTarget(t, testListenErrors) }

func testListenErrors(t *testing.T, on target) {
	l := on.listen(t, port0(on.addr4))
	lc := ListenConfig{Provider: on.provider}
	_, err := lc.Listen(t.Context(), "rdma", l.Addr().String())
	t.Log(err)
	requireOpError(t, err, "listen")
	_, err = lc.Listen(t.Context(), "rdma", "203.0.113.1:0")
	t.Log(err)
	requireOpError(t, err, "listen")
}

func TestAcceptDeadline(t *testing.T) { eachTarget(t, testAcceptDeadline) }

func testAcceptDeadline(t *testing.T, on target) {
	l := on.listen(t, port0(on.addr4))
	require.NoError(t, l.SetDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := l.Accept()
	require.Equal(t, os.ErrDeadlineExceeded, requireOpError(t, err, "accept").Err)
	require.True(t, err.(net.Error).Timeout())
	require.NoError(t, l.SetDeadline(time.Time{}))
	go echoServer(l)
	c, err := on.dialer(10*time.Second).Dial("rdma", l.Addr().String())
	require.NoError(t, err, "a deadline that has passed once does not end the listener")
	require.NoError(t, c.Close())
}

func TestCloseWhileAccepting(t *testing.T) { eachTarget(t, testCloseWhileAccepting) }

func testCloseWhileAccepting(t *testing.T, on target) {
	l := on.listen(t, port0(on.addr4))
	accepted := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	require.Never(t, func() bool { return len(accepted) > 0 }, 50*time.Millisecond, 5*time.Millisecond)
	require.NoError(t, l.Close())
	err := <-accepted
	require.ErrorIs(t, err, net.ErrClosed)
	requireOpError(t, err, "accept")
	require.ErrorIs(t, l.Close(), net.ErrClosed)
}

// TestCloseUnaccepted closes a listener whose connection nobody accepted:
// the peer must see its end.
func TestCloseUnaccepted(t *testing.T) { eachTarget(t, testCloseUnaccepted) }

func testCloseUnaccepted(t *testing.T, on target) {
	l := on.listen(t, port0(on.addr4))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := on.dialer(0).DialContext(ctx, "rdma", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, l.Close())
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}
