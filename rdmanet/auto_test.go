package rdmanet

import (
	"context"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAutoWithoutDevice: where there is no device, Auto is the software NIC.
func TestAutoWithoutDevice(t *testing.T) {
	if _, err := manager(t.Context(), Verbs); err == nil {
		t.Skip("this machine has a device")
	}
	l, err := Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go echoServer(l)
	c, err := DialTimeout("tcp", l.Addr().String(), 10*time.Second)
	require.NoError(t, err)
	defer c.Close()
	require.Equal(t, Software, c.(*Conn).Info().Provider)
	require.NoError(t, echoOnce(c, 100_000, 1))

	_, err = DialTimeout("tcp", "127.0.0.1:9", 10*time.Second)
	t.Log(err)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.NotErrorIs(t, err, errUnavailable, "that there is no device is not the news")

	_, err = (&Dialer{Provider: Verbs}).Dial("rdma", l.Addr().String())
	t.Log(err)
	require.ErrorIs(t, err, errUnavailable)
	requireOpError(t, err, "dial")
}

// TestProviderVariable: the environment stands in for Auto, and for nothing else.
func TestProviderVariable(t *testing.T) {
	t.Setenv(providerVariable, "software")
	require.Equal(t, []Provider{Software}, Auto.choices(0))
	require.Equal(t, []Provider{Verbs}, Verbs.choices(0))
	t.Setenv(providerVariable, "auto")
	require.Equal(t, []Provider{Verbs, Software}, Auto.choices(0))
	t.Setenv(providerVariable, "pigeon")
	_, err := Dial("rdma", "127.0.0.1:9")
	require.ErrorContains(t, err, providerVariable)
	_, err = Listen("rdma", "127.0.0.1:0")
	require.ErrorContains(t, err, providerVariable)
}

// TestFallback dials a plain TCP server.
func TestFallback(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go echoPlain(c)
		}
	}()
	d := Dialer{Provider: Software, Timeout: 10 * time.Second, Fallback: (&net.Dialer{}).DialContext}
	c, err := d.DialContext(context.Background(), "rdma4", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	require.IsType(t, &net.TCPConn{}, c)
	_, ok := InfoOf(c)
	require.False(t, ok)
	require.NoError(t, echoOnce(c, 10_000, 1))
}

// echoPlain echoes, unless what comes is an RDMA peer's attempt.
func echoPlain(c net.Conn) {
	defer c.Close()
	buf := make([]byte, 1<<16)
	for first := true; ; first = false {
		n, err := c.Read(buf)
		if err != nil || first && string(buf[:min(n, 3)]) == "MPA" {
			return
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

// TestAutoListener: one listener, dialed by devices and by software NICs.
func TestAutoListener(t *testing.T) {
	on := deviceTarget(t)
	for _, address := range []string{port0(on.addr4), port0(on.addr6), ":0", "0.0.0.0:0", "[::]:0"} {
		t.Run(address, func(t *testing.T) {
			l, err := Listen("rdma", address)
			require.NoError(t, err)
			defer l.Close()
			go echoServer(l)
			_, port, err := net.SplitHostPort(l.Addr().String())
			require.NoError(t, err)
			for _, ip := range on.addrs() {
				if host, _, _ := net.SplitHostPort(address); host == on.addr4.String() && ip != on.addr4 || host == on.addr6.String() && ip != on.addr6 {
					continue
				}
				for _, p := range []Provider{Verbs, Software, Auto} {
					d := Dialer{Provider: p, Timeout: 20 * time.Second}
					c, err := d.Dial("rdma", net.JoinHostPort(ip.String(), port))
					require.NoError(t, err, "%v to %v", p, ip)
					require.NoError(t, echoOnce(c, 20_000, 1), "%v to %v", p, ip)
					t.Logf("%v to %v: %v", p, ip, c.(*Conn).Info().Provider)
					require.NoError(t, c.Close())
				}
			}
		})
	}
}

// TestAutoListenerUnderLoad: dialers of both kinds at once.
func TestAutoListenerUnderLoad(t *testing.T) {
	on := deviceTarget(t)
	l, err := Listen("rdma", port0(on.addr4))
	require.NoError(t, err)
	defer l.Close()
	go echoServer(l)
	var wg sync.WaitGroup
	errs := make(chan error, 100)
	for i := range 20 {
		p := []Provider{Verbs, Software}[i%2]
		wg.Go(func() {
			for k := range 5 {
				c, err := (&Dialer{Provider: p, Timeout: 30 * time.Second}).Dial("rdma", l.Addr().String())
				if err != nil {
					errs <- err
					return
				}
				if err := echoOnce(c, 5000*k+1, uint64(i)); err != nil {
					errs <- err
				}
				if err := c.Close(); err != nil {
					errs <- err
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
