package rdmanet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// plainTargets are where a listener with AcceptPlain is tried: the address, and what
// listens and dials there.
func eachPlainTarget(t *testing.T, test func(t *testing.T, on plainTarget)) {
	soft := softwareTarget()
	for _, p := range []Provider{Software, Auto} {
		t.Run(p.String(), func(t *testing.T) { test(t, plainTarget{p, soft.addr4, []Provider{Software, Auto}}) })
	}
	t.Run("device", func(t *testing.T) {
		test(t, plainTarget{Auto, deviceTarget(t).addr4, []Provider{Verbs, Software, Auto}})
	})
}

type plainTarget struct {
	provider Provider // of the listener
	addr     netip.Addr
	dialers  []Provider
}

// listen listens with AcceptPlain until the test ends.
func (on plainTarget) listen(t *testing.T, lc ListenConfig) *Listener {
	t.Helper()
	lc.Provider, lc.AcceptPlain = on.provider, true
	l, err := lc.Listen(t.Context(), "rdma", port0(on.addr))
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	require.NoError(t, l.(*Listener).SetDeadline(time.Now().Add(time.Minute)))
	return l.(*Listener)
}

// dialPlain connects with TCP alone.
func dialPlain(t *testing.T, l net.Listener) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp", l.Addr().String(), 10*time.Second)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	return c.(*net.TCPConn)
}

// requireGone waits until the other end has closed a connection without a word.
func requireGone(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	n, err := c.Read(make([]byte, 1))
	require.Zero(t, n)
	require.Error(t, err)
	require.False(t, errors.Is(err, os.ErrDeadlineExceeded), "the connection is still there")
}

// TestAcceptPlain: one Accept returns the connections of all peers, each as what it
// is.
func TestAcceptPlain(t *testing.T) { eachPlainTarget(t, testAcceptPlain) }

func testAcceptPlain(t *testing.T, on plainTarget) {
	l := on.listen(t, ListenConfig{})
	for range 2 {
		dialed := dialPlain(t, l)
		_, err := dialed.Write([]byte("hello"))
		require.NoError(t, err)
		c, err := l.Accept()
		require.NoError(t, err)
		require.IsType(t, &net.TCPConn{}, c)
		_, ok := InfoOf(c)
		require.False(t, ok)
		require.Equal(t, dialed.LocalAddr().String(), c.RemoteAddr().String())
		require.Equal(t, dialed.RemoteAddr().String(), c.LocalAddr().String())
		b := make([]byte, 5)
		_, err = io.ReadFull(c, b)
		require.NoError(t, err)
		require.Equal(t, "hello", string(b))
		go echoPlain(c)
		require.NoError(t, echoOnce(dialed, 1<<20, 1))
		require.NoError(t, dialed.Close())

		for _, p := range on.dialers {
			accepted := make(chan net.Conn, 1)
			go func() {
				c, err := l.Accept()
				if err != nil {
					t.Errorf("Accept: %v", err)
				}
				accepted <- c
			}()
			d := Dialer{Provider: p, Timeout: 20 * time.Second, Fallback: func(context.Context, string, string) (net.Conn, error) {
				return nil, errors.New("nobody needs it")
			}}
			dialed, err := d.Dial("rdma", l.Addr().String())
			require.NoError(t, err, "%v", p)
			c := <-accepted
			require.IsType(t, &Conn{}, c, "%v", p)
			t.Logf("%v dialed with %v, accepted by %v", p, dialed.(*Conn).Info().Provider, c.(*Conn).Info().Provider)
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
			require.NoError(t, echoOnce(dialed, 100_000, 1))
			require.NoError(t, dialed.Close())
		}
	}
}

// TestPlainIsOff where nobody asked for it: who speaks no RDMA is closed without a
// word.
func TestPlainIsOff(t *testing.T) {
	l := softwareTarget().listen(t, "127.0.0.1:0")
	c := dialPlain(t, l)
	_, err := c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	require.NoError(t, err)
	requireGone(t, c)
	require.NoError(t, l.SetDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = l.Accept()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// TestAcceptRDMAClosesPlain: who asks for RDMA gets nothing else, and Refused is
// told.
func TestAcceptRDMAClosesPlain(t *testing.T) { eachPlainTarget(t, testAcceptRDMAClosesPlain) }

func testAcceptRDMAClosesPlain(t *testing.T, on plainTarget) {
	refused := make(chan net.Addr, 1)
	l := on.listen(t, ListenConfig{Refused: func(peer net.Addr, err error) {
		require.ErrorIs(t, err, errNotRDMA)
		refused <- peer
	}})
	plain := dialPlain(t, l)
	_, err := plain.Write([]byte("hello"))
	require.NoError(t, err)
	accepted := make(chan *Conn, 1)
	go func() {
		c, err := l.AcceptRDMA()
		if err != nil {
			t.Errorf("AcceptRDMA: %v", err)
		}
		accepted <- c
	}()
	requireGone(t, plain)
	require.Equal(t, plain.LocalAddr().String(), (<-refused).String())
	d := Dialer{Provider: Software, Timeout: 20 * time.Second}
	dialed, err := d.Dial("rdma", l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, (<-accepted).Close())
	require.NoError(t, dialed.Close())
}

// TestPlainSilence: who says nothing is nothing to Accept, and delays nobody; Close
// ends it, and what nobody has accepted.
func TestPlainSilence(t *testing.T) { eachPlainTarget(t, testPlainSilence) }

func testPlainSilence(t *testing.T, on plainTarget) {
	l := on.listen(t, ListenConfig{})
	silent := []*net.TCPConn{dialPlain(t, l), dialPlain(t, l)}
	_, err := silent[1].Write([]byte("MPA ID"))
	require.NoError(t, err)
	ended := dialPlain(t, l)
	require.NoError(t, ended.CloseWrite())
	requireGone(t, ended)

	require.NoError(t, l.SetDeadline(time.Now().Add(100*time.Millisecond)))
	_, err = l.Accept()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, l.SetDeadline(time.Now().Add(time.Minute)))

	speaks := dialPlain(t, l)
	_, err = speaks.Write([]byte("hello"))
	require.NoError(t, err)
	c, err := l.Accept()
	require.NoError(t, err)
	defer c.Close()

	queued := dialPlain(t, l)
	_, err = queued.Write([]byte("hello"))
	require.NoError(t, err)
	require.NoError(t, l.Close())
	for _, c := range append(silent, queued) {
		requireGone(t, c)
	}
	_, err = c.Write([]byte("still here"))
	require.NoError(t, err)
	b := make([]byte, 10)
	_, err = io.ReadFull(speaks, b)
	require.NoError(t, err)
	require.Equal(t, "still here", string(b))
}

// TestPlainBacklog: plain connections that nobody accepts take their places, and
// no more.
func TestPlainBacklog(t *testing.T) {
	on := plainTarget{Software, softwareTarget().addr4, nil}
	l := on.listen(t, ListenConfig{Backlog: 2, HandshakeTimeout: 300 * time.Millisecond})
	var conns []*net.TCPConn
	for range 5 {
		c := dialPlain(t, l)
		_, err := c.Write([]byte("hello"))
		require.NoError(t, err)
		conns = append(conns, c)
	}
	gone := make(chan error, len(conns))
	for _, c := range conns {
		go func() {
			_, err := c.Read(make([]byte, 1))
			gone <- err
		}()
	}
	for range 3 { // they have waited for HandshakeTimeout
		require.NotErrorIs(t, <-gone, os.ErrDeadlineExceeded)
	}
	for range 2 {
		c, err := l.Accept()
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	for range 2 {
		require.NotErrorIs(t, <-gone, os.ErrDeadlineExceeded)
	}
}

// TestPlainLeavesNothing: peers of every kind, many at once, and nothing is left of
// them.
func TestPlainLeavesNothing(t *testing.T) {
	on := plainTarget{Software, softwareTarget().addr4, nil}
	l := on.listen(t, ListenConfig{})
	require.NoError(t, l.SetDeadline(time.Time{}))
	go func() { // without io.Copy, which keeps pipes for TCP connections
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go echoPlain(c)
		}
	}()
	round := func() {
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				if i%4 == 3 {
					c, err := (&Dialer{Provider: Software, Timeout: 20 * time.Second}).Dial("rdma", l.Addr().String())
					if err != nil {
						t.Error(err)
						return
					}
					if err := errors.Join(echoOnce(c, 10_000, uint64(i)), c.Close()); err != nil {
						t.Error(err)
					}
					return
				}
				c, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				switch i % 4 {
				case 0:
					if err := echoOnce(c, 10_000, uint64(i)); err != nil {
						t.Error(err)
					}
				case 1:
					c.Write([]byte("MPA ID Req Frame")[:16*(i/4%2)])
					c.(*net.TCPConn).SetLinger(0)
				case 2: // says nothing
				}
			})
		}
		wg.Wait()
	}
	round()
	before := settled(t, target{})
	for range 5 {
		round()
	}
	requireNoLeak(t, target{}, before)
}
