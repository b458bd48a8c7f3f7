package rdmanet

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A TCP peer of the software NIC that does not send a connect request is dropped in
// the HandshakeTimeout, and Refused is told of it.
func TestSilentTCPPeer(t *testing.T) {
	const limit = 500 * time.Millisecond
	type refusal struct {
		peer net.Addr
		err  error
	}
	refused := make(chan refusal, 10)
	lc := ListenConfig{Provider: Software, HandshakeTimeout: limit, Refused: func(peer net.Addr, err error) { refused <- refusal{peer, err} }}
	l, err := lc.Listen(context.Background(), "rdma", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()

	for name, tc := range map[string]struct {
		behave func(c *net.TCPConn) error
		waits  bool
		why    string
	}{
		"silent":   {func(c *net.TCPConn) error { return nil }, true, "did not send its connect request in time"},
		"slow":     {func(c *net.TCPConn) error { _, err := c.Write([]byte("MPA ID Req")); return err }, true, "did not send its connect request in time"},
		"rubbish":  {func(c *net.TCPConn) error { _, err := c.Write([]byte("GET / HTTP/1.1\r\n\r\n")); return err }, false, "no connect request"},
		"goes":     {func(c *net.TCPConn) error { return c.CloseWrite() }, false, "without a connect request"},
		"cut half": {func(c *net.TCPConn) error { c.Write([]byte("MPA ID Req")); return c.CloseWrite() }, false, "no connect request"},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			c, err := net.Dial("tcp", l.Addr().String())
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, tc.behave(c.(*net.TCPConn)))
			require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
			_, err = io.Copy(io.Discard, c)
			require.False(t, isTimeout(err), "the connection is still there")
			if tc.waits {
				require.GreaterOrEqual(t, time.Since(began), limit)
			}
			r := <-refused
			require.Equal(t, c.LocalAddr().String(), r.peer.String())
			require.ErrorContains(t, r.err, tc.why)
		})
	}

	// Those that are still there when the listener goes are nobody's fault.
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, l.Close())
	_, err = io.Copy(io.Discard, c)
	require.False(t, isTimeout(err))
	require.Empty(t, refused)
}
