//go:build linux

package interop

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/rdmanet"
)

// largeBuffer takes twice what the tests of this file send, so that nothing of it
// needs the peer's program before Close.
const largeBuffer = 4 << 20

// TestCloseLosesNothing has a process write 2 MiB, close, and exit, while this one
// reads slowly and answers, so that on iWARP its answers meet a socket that is
// closed. All of it must arrive, and then the end of the stream.
func TestCloseLosesNothing(t *testing.T) { eachPairing(t, testCloseLosesNothing) }

func testCloseLosesNothing(t *testing.T, dev device) {
	const size = 2 << 20
	times := sized(5, 25, 50)
	for _, weDial := range []bool{false, true} {
		t.Run(roleName(weDial), func(t *testing.T) {
			for i := range times {
				p, c := withPeer(t, time.Minute, addrPort(dev.addr4, 0), weDial,
					rdmanet.Dialer{ReadBuffer: largeBuffer, WriteBuffer: largeBuffer},
					peerOptions{do: "close", size: size, buffer: largeBuffer, closeT: 20 * time.Second})
				err := readSlowly(c, newPattern(1, size))
				require.NoError(t, errors.Join(err, p.status()), "time %d of %d", i+1, times)
				require.NoError(t, c.Close())
			}
		})
	}
}

func roleName(weDial bool) string {
	if weDial {
		return "dialed"
	}
	return "accepted"
}

// readSlowly reads until the end, in pieces, with a pause and an answer now and
// then. The answers fail when the peer has closed; that must not hurt the reading.
func readSlowly(c *rdmanet.Conn, p *pattern) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	buf := make([]byte, 50_000)
	for i := 0; ; i++ {
		n, err := c.Read(buf)
		if _, err := p.Write(buf[:n]); err != nil {
			return err
		}
		if err == io.EOF {
			return p.complete()
		}
		if err != nil {
			return fmt.Errorf("after %d of %d bytes: %w", p.pos, p.size, err)
		}
		if i%8 == 0 {
			time.Sleep(5 * time.Millisecond)
			if _, err := c.Write([]byte("and then?")); err != nil && isTimeout(err) {
				return err
			}
		}
	}
}

// TestCloseWhilePeerDoesNotRead closes a connection whose window is full and in
// which a Write waits. Close must return in its time, and what Write had accepted
// must reach the peer all the same.
func TestCloseWhilePeerDoesNotRead(t *testing.T) { eachPairing(t, testCloseWhilePeerDoesNotRead) }

func testCloseWhilePeerDoesNotRead(t *testing.T, dev device) {
	const closeTimeout = 5 * time.Second
	for _, weDial := range []bool{true, false} {
		t.Run(roleName(weDial), func(t *testing.T) {
			a, b := pair(t, rdmanet.Dialer{CloseTimeout: closeTimeout}, rdmanet.ListenConfig{CloseTimeout: closeTimeout}, dev.addr4)
			if !weDial {
				a, b = b, a
			}
			sent := newPattern(1, 1<<30)
			// Part of it may be what Close sends: it is counted.
			waiting := fillUntilWaiting(t, a, sent, 100_000)

			begin := time.Now()
			within(t, closeTimeout+patience, "Close", func() { require.NoError(t, a.Close()) })
			t.Logf("Close took %v", time.Since(begin).Round(time.Millisecond))
			require.Less(t, time.Since(begin), closeTimeout, "the peer's device takes all without its program")
			w := await(t, "the Write that waited", waiting, time.Second)
			requireOpError(t, w.err, "write")
			require.ErrorIs(t, w.err, net.ErrClosed)

			got := newPattern(1, sent.pos+w.n)
			require.NoError(t, b.SetReadDeadline(time.Now().Add(patience)))
			require.NoError(t, got.receive(b, 64<<10))
			require.NoError(t, b.Close())
		})
	}
}

// TestCloseWhilePeerIsStopped is the same with a peer whose process does nothing
// at all.
func TestCloseWhilePeerIsStopped(t *testing.T) { eachPairing(t, testCloseWhilePeerIsStopped) }

func testCloseWhilePeerIsStopped(t *testing.T, dev device) {
	const closeTimeout = 5 * time.Second
	for _, weDial := range []bool{true, false} {
		t.Run(roleName(weDial), func(t *testing.T) {
			p, c := withPeer(t, time.Minute, addrPort(dev.addr4, 0), weDial, rdmanet.Dialer{CloseTimeout: closeTimeout}, peerOptions{do: "hold"})
			require.NoError(t, fill(c, newPattern(1, 1<<30)))
			p.stop()
			begin := time.Now()
			within(t, closeTimeout+patience, "Close", func() {
				if err := c.Close(); err != nil {
					t.Logf("Close: %v", err)
				}
			})
			t.Logf("Close took %v", time.Since(begin).Round(time.Millisecond))
			require.Less(t, time.Since(begin), closeTimeout+time.Second)
		})
	}
}

// fillUntilWaiting fills a connection and begins a Write of size bytes more, which
// waits and is not counted in p. Where the peer is not done with what is on its way
// when fill gives up, as on a busy machine, it begins again.
func fillUntilWaiting(t *testing.T, c *rdmanet.Conn, p *pattern, size int) <-chan result {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < patience; {
		require.NoError(t, fill(c, p))
		before := p.pos
		buf := make([]byte, size)
		_, err := p.Read(buf)
		require.NoError(t, err)
		op := background(func() (int64, error) {
			n, err := c.Write(buf)
			return int64(n), err
		})
		select {
		case r := <-op:
			require.NoError(t, r.err)
		case <-time.After(100 * time.Millisecond):
			p.pos = before
			return op
		}
	}
	t.Fatal("the peer, which reads nothing, takes more and more")
	return nil
}

// requireWaiting checks that an operation does not return.
func requireWaiting(t *testing.T, op <-chan result) {
	t.Helper()
	select {
	case r := <-op:
		t.Fatalf("it did not wait: %d, %v", r.n, r.err)
	case <-time.After(100 * time.Millisecond):
	}
}
