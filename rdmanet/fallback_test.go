package rdmanet

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A Fallback that returns nothing at all is an error of the dial, whether it is
// awaited or comes too late.
func TestFallbackReturnsNothing(t *testing.T) {
	nothing := func(wait bool) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, _, _ string) (net.Conn, error) {
			if wait {
				<-ctx.Done()
			}
			return nil, nil
		}
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	d := Dialer{Provider: Software, Fallback: nothing(false)}
	_, err = d.Dial("rdma", closed.Addr().String())
	require.ErrorIs(t, err, errNoFallbackConn)

	l, err := (&ListenConfig{Provider: Software}).Listen(t.Context(), "rdma", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go echoServer(l)
	d = Dialer{Provider: Software, Fallback: nothing(true), FallbackDelay: time.Nanosecond}
	for range 20 {
		c, err := d.Dial("rdma", l.Addr().String())
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
}
