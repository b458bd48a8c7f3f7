package main

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rdmanet/rdmanet/rdmanet"
)

// addresses are where the tests listen: on the software provider, and on the device
// that the environment names.
func addresses(t *testing.T) map[rdmanet.Provider]string {
	a := map[rdmanet.Provider]string{rdmanet.Software: "127.0.0.1:0"}
	if ip := os.Getenv("RDMANET_TEST_ADDR4"); ip != "" {
		a[rdmanet.Verbs] = netip.AddrPortFrom(netip.MustParseAddr(ip), 0).String()
	} else {
		t.Log("RDMANET_TEST_ADDR4 names no address of a device: only the software provider is tested")
	}
	return a
}

func TestEcho(t *testing.T) {
	for provider, address := range addresses(t) {
		t.Run(provider.String(), func(t *testing.T) {
			lc := rdmanet.ListenConfig{Provider: provider}
			l, err := lc.Listen(t.Context(), "rdma", address)
			require.NoError(t, err)
			server := newServer()
			served := make(chan error, 1)
			go func() { served <- server.Serve(l) }()
			t.Cleanup(func() {
				server.Stop()
				require.NoError(t, <-served)
			})
			d := rdmanet.Dialer{Provider: provider}
			cc, err := newClient(l.Addr().String(), func(ctx context.Context, address string) (net.Conn, error) {
				return d.DialContext(ctx, "rdma", address)
			})
			require.NoError(t, err)
			t.Cleanup(func() { cc.Close() })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()

			t.Run("sizes", func(t *testing.T) {
				for _, size := range []int{0, 1, 64, 4096, 65537, 8 << 20} {
					require.NoError(t, call(ctx, cc, bytes.Repeat([]byte{7}, size)))
				}
			})
			t.Run("stream", func(t *testing.T) {
				require.NoError(t, stream(ctx, cc, bytes.Repeat([]byte{9}, 100_000), 100))
			})
			t.Run("many at once", func(t *testing.T) {
				var wg sync.WaitGroup
				errs := make([]error, 50)
				for i := range errs {
					wg.Go(func() { errs[i] = stream(ctx, cc, bytes.Repeat([]byte{byte(i)}, 1000*i), 20) })
				}
				wg.Wait()
				for _, err := range errs {
					require.NoError(t, err)
				}
			})
			t.Run("cancelled", func(t *testing.T) {
				ctx, cancel := context.WithCancel(ctx)
				s, err := cc.NewStream(ctx, &service.Streams[0], streamMethod)
				require.NoError(t, err)
				time.AfterFunc(10*time.Millisecond, cancel)
				require.Equal(t, codes.Canceled, status.Code(s.RecvMsg(nil)))
			})
		})
	}
}

// A call to where nobody listens says so.
func TestRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	d := rdmanet.Dialer{Provider: rdmanet.Software}
	cc, err := newClient(address, func(ctx context.Context, address string) (net.Conn, error) {
		return d.DialContext(ctx, "rdma", address)
	})
	require.NoError(t, err)
	defer cc.Close()
	err = call(ctx, cc, nil)
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.ErrorContains(t, err, "connection refused")
}
