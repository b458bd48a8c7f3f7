//go:build linux

package interop

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/rdmanet"
)

// patience is how long anything may take that should take no time at all. The
// machines that the tests run on are emulated, and slow.
const patience = 30 * time.Second

func addrPort(ip netip.Addr, port uint16) string { return netip.AddrPortFrom(ip, port).String() }

// listen listens on an address until the test ends.
func listen(t *testing.T, lc rdmanet.ListenConfig, address string) *rdmanet.Listener {
	t.Helper()
	lc.Provider = pairingOf(t).ours
	l, err := lc.Listen(t.Context(), "rdma", address)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l.(*rdmanet.Listener)
}

// accept takes the next connection.
func accept(t *testing.T, l *rdmanet.Listener) *rdmanet.Conn {
	t.Helper()
	require.NoError(t, l.SetDeadline(time.Now().Add(patience)))
	c, err := l.AcceptRDMA()
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// dialer dials devices with a time limit. Close has as much: many at once take
// long on a machine that is emulated.
func dialer(timeout time.Duration) *rdmanet.Dialer {
	return &rdmanet.Dialer{Provider: rdmanet.Verbs, Timeout: timeout, CloseTimeout: timeout}
}

// dial connects to a listener that is there.
func dial(t *testing.T, d rdmanet.Dialer, address string) *rdmanet.Conn {
	t.Helper()
	d.Provider = pairingOf(t).ours
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := d.DialContext(ctx, "rdma", address)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c.(*rdmanet.Conn)
}

// dialWhenUp connects to a program that may not listen yet: a refusal is tried
// again, as long as the program lives and has patience.
func dialWhenUp(t *testing.T, p *program, d rdmanet.Dialer, address string) *rdmanet.Conn {
	t.Helper()
	d.Provider = pairingOf(t).ours
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		c, err := d.DialContext(ctx, "rdma", address)
		if err == nil {
			t.Cleanup(func() { c.Close() })
			return c.(*rdmanet.Conn)
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("dial %s: %v", p.name, err)
		}
		select {
		case <-p.ended:
			t.Fatalf("%s ended before it listened: %v", p.name, p.status())
		case <-ctx.Done():
			t.Fatalf("%s does not listen: %v", p.name, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// pair is the two ends of a connection.
func pair(t *testing.T, d rdmanet.Dialer, lc rdmanet.ListenConfig, ip netip.Addr) (dialed, accepted *rdmanet.Conn) {
	t.Helper()
	l := listen(t, lc, addrPort(ip, 0))
	dialed = dial(t, d, l.Addr().String())
	return dialed, accept(t, l)
}

// freePort is a port that nobody listens on, for a program that must be told one.
func freePort(t *testing.T, ip netip.Addr) uint16 {
	t.Helper()
	lc := rdmanet.ListenConfig{Provider: pairingOf(t).ours}
	l, err := lc.Listen(t.Context(), "rdma", addrPort(ip, 0))
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().(*net.TCPAddr).AddrPort().Port()
}

// within runs f, which must return in time; if it does not, the stacks of all
// goroutines are the test's last words.
func within(t *testing.T, limit time.Duration, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		buf := make([]byte, 1<<20)
		t.Fatalf("%s: not done after %v\n%s", what, limit, buf[:runtime.Stack(buf, true)])
	}
}

// A result is how an operation ended, and when.
type result struct {
	n   int64
	err error
	at  time.Time
}

// background runs an operation and hands out its result.
func background(op func() (int64, error)) <-chan result {
	c := make(chan result, 1)
	go func() {
		n, err := op()
		c <- result{n, err, time.Now()}
	}()
	return c
}

// await waits for the result of an operation that must end in time.
func await(t *testing.T, what string, c <-chan result, limit time.Duration) result {
	t.Helper()
	var r result
	within(t, limit, what, func() { r = <-c })
	return r
}

// fill writes until nothing more has been taken for a second; p tells how much
// was. Nobody reads at the other end.
func fill(c *rdmanet.Conn, p *pattern) error {
	buf := make([]byte, 64<<10)
	for begin := time.Now(); ; {
		if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		before := p.pos
		if _, err := p.Read(buf); err != nil {
			return err // the pattern is longer than all buffers on the way
		}
		n, err := c.Write(buf)
		p.pos = before + int64(n)
		switch {
		case err == nil:
		case isTimeout(err) && n == 0 && p.pos > 0:
			return c.SetWriteDeadline(time.Time{})
		case !isTimeout(err) || time.Since(begin) > patience:
			return err
		}
	}
}

// bothWays sends a pattern each way at once and checks what arrives. Both
// directions are shut down, and the ends are then closed.
func bothWays(t *testing.T, a, b net.Conn, size int64, limit time.Duration) {
	t.Helper()
	type closeWriter interface{ CloseWrite() error }
	deadline := time.Now().Add(limit)
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for i, c := range []net.Conn{a, b} {
		require.NoError(t, c.SetDeadline(deadline))
		wg.Go(func() {
			if errs[2*i] = newPattern(int64(i), size).send(c, 100_000); errs[2*i] == nil {
				errs[2*i] = c.(closeWriter).CloseWrite()
			}
		})
		wg.Go(func() { errs[2*i+1] = newPattern(int64(1-i), size).receive(c, 70_001) })
	}
	within(t, limit+patience, "both ways", wg.Wait)
	require.NoError(t, errors.Join(errs...))
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}

// requireOpError checks the outer shape of an error.
func requireOpError(t *testing.T, err error, op string) {
	t.Helper()
	var oe *net.OpError
	require.ErrorAs(t, err, &oe)
	require.Equal(t, op, oe.Op, "%v", err)
	require.Equal(t, "rdma", oe.Net)
	require.NotNil(t, oe.Source)
	require.NotNil(t, oe.Addr)
}

// requireLost checks that a Read or Write says that the connection was lost,
// which is neither an orderly end nor a time-out.
func requireLost(t *testing.T, err error, op string) {
	t.Helper()
	require.Error(t, err)
	require.NotErrorIs(t, err, io.EOF)
	requireOpError(t, err, op)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.False(t, isTimeout(err), "%v", err)
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
