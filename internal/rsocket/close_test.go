package rsocket

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/simqp"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// TestCloseLosesNothing writes, closes, disconnects and releases at once, while
// the reader is slow and answers. On iWARP the simulation drops what is on the
// wire if the reader has something on the wire when the connection ends.
func TestCloseLosesNothing(t *testing.T) {
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		for range 20 {
			l := newLab(t, simqp.Options{Transport: tr, Seed: rand.Uint64(), Delay: 50 * time.Microsecond})
			a, b := l.pair(Config{ReadBuffer: 4 << 20, WriteBuffer: 4 << 20})
			const total = 2 << 20
			var wg sync.WaitGroup
			wg.Go(func() {
				var p pattern
				buf := make([]byte, 100_000)
				for {
					n, err := b.Read(buf)
					if e := p.check(buf[:n]); e != nil {
						t.Error(e)
					}
					if err == io.EOF {
						break
					}
					if err != nil {
						t.Errorf("after %d bytes: %v", p.pos, err)
						break
					}
					// The answer may find the writer gone.
					_, _ = b.Write(buf[:10])
					time.Sleep(100 * time.Microsecond)
				}
				if p.pos != total {
					t.Errorf("%d bytes arrived of %d", p.pos, total)
				}
			})
			require.NoError(t, writeSizes(a, total, fixed(total)))
			require.NoError(t, a.Close(10*time.Second))
			require.NoError(t, a.Linger(10*time.Second))
			a.qp.Disconnect()
			require.NoError(t, a.Release())
			wg.Wait()
			require.NoError(t, b.Close(time.Second))
		}
	})
}

// TestCloseWhileBlocked closes an end while its Reads and Writes wait, and while
// other goroutines queue behind them.
func TestCloseWhileBlocked(t *testing.T) {
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		for _, release := range []bool{false, true} {
			l := newLab(t, simqp.Options{Transport: tr})
			a, _ := l.pair(Config{ReadBuffer: 16 << 10, WriteBuffer: 16 << 10})
			errs := make(chan error)
			const each = 3
			for range each {
				go func() {
					_, err := a.Read(make([]byte, 10))
					errs <- err
				}()
				go func() {
					_, err := a.Write(make([]byte, 1<<20))
					errs <- err
				}()
			}
			time.Sleep(20 * time.Millisecond)
			if release {
				require.NoError(t, a.Release())
			} else {
				require.NoError(t, a.Close(10*time.Second))
			}
			for range 2 * each {
				select {
				case err := <-errs:
					require.Equal(t, net.ErrClosed, err)
				case <-time.After(10 * time.Second):
					t.Fatal("still blocked")
				}
			}
			require.Equal(t, net.ErrClosed, a.Close(time.Second))
			require.Equal(t, net.ErrClosed, a.CloseWrite())
			require.Equal(t, net.ErrClosed, a.CloseRead())
			require.Equal(t, net.ErrClosed, a.SetDeadline(time.Now()))
			_, err := a.Read(nil)
			require.Equal(t, net.ErrClosed, err)
			_, err = a.Write(nil)
			require.Equal(t, net.ErrClosed, err)
		}
	})
}

// TestCloseBound checks that Close waits no longer than it may, and that Linger
// goes on waiting.
func TestCloseBound(t *testing.T) {
	// A C dialer on iWARP grants no Reads: only the connection's end tells.
	l := newLab(t, simqp.Options{Transport: verbs.IWARP})
	a, b := l.open(0, Config{}), l.open(1, Config{})
	connect(t, a, b, 0)
	defer func() { l.release(a); l.release(b) }()
	_, err := a.Write([]byte("x"))
	require.NoError(t, err)
	start := time.Now()
	require.ErrorIs(t, a.Close(50*time.Millisecond), ErrNotDelivered)
	require.Less(t, time.Since(start), 5*time.Second)
	go func() {
		_, _ = io.ReadAll(b)
		_ = b.Close(time.Second)
		b.qp.Disconnect()
	}()
	require.NoError(t, a.Linger(10*time.Second))
}

// TestCloseStopped closes towards a peer that never reads: what was written lies
// in the peer's ring, and that is delivered.
func TestCloseStopped(t *testing.T) {
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		l := newLab(t, simqp.Options{Transport: tr})
		a, _ := l.pair(Config{})
		_, err := a.Write(make([]byte, 100_000))
		require.NoError(t, err)
		require.NoError(t, a.Close(10*time.Second))
	})
}

// TestPeerGone checks what Read and Write say when the peer has gone in different
// ways. Each is asked while it waits and again later.
func TestPeerGone(t *testing.T) {
	tests := []struct {
		name        string
		how         func(a, b *end)
		read, write error
	}{
		{"closed", func(_, b *end) { _ = b.Close(time.Second) }, io.EOF, syscall.EPIPE},
		{"closed and disconnected", func(_, b *end) { _ = conn{b}.Close() }, io.EOF, syscall.EPIPE},
		{"killed", func(_, b *end) { b.qp.Disconnect() }, syscall.ECONNRESET, syscall.ECONNRESET},
		{"shut down and killed", func(a, b *end) {
			_ = b.CloseWrite()
			for !a.peerShut() {
				time.Sleep(time.Millisecond)
			}
			b.qp.Disconnect()
		}, io.EOF, syscall.ECONNRESET},
	}
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				l := newLab(t, simqp.Options{Transport: tr, Retry: time.Minute})
				a, b := l.pair(Config{})
				_, err := b.Write([]byte("before"))
				require.NoError(t, err)
				p := make([]byte, 6)
				_, err = io.ReadFull(a, p)
				require.NoError(t, err)

				var wg sync.WaitGroup
				for range 2 {
					wg.Go(func() {
						_, err := a.Read(make([]byte, 10))
						if !is(err, test.read) {
							t.Errorf("read: %v, want %v", err, test.read)
						}
					})
					wg.Go(func() {
						var err error
						for err == nil {
							_, err = a.Write(make([]byte, 100_000))
						}
						if !is(err, test.write) {
							t.Errorf("write: %v, want %v", err, test.write)
						}
					})
				}
				time.Sleep(5 * time.Millisecond)
				test.how(a, b)
				within(t, 20*time.Second, wg.Wait)
				_, err = a.Read(make([]byte, 1))
				require.True(t, is(err, test.read), err)
				_, err = a.Write(make([]byte, 1))
				require.True(t, is(err, test.write), err)
				err = a.Close(time.Second)
				if test.write == syscall.EPIPE {
					require.NoError(t, err, "the peer has closed")
				} else if err != nil { // nil if all had arrived: TestCloseNotDelivered has what has not
					require.ErrorIs(t, err, ErrNotDelivered)
					require.ErrorIs(t, err, test.write)
				}
			})
		}
	})
}

// is is errors.Is, but exact for what must be returned as it is.
func is(err, want error) bool {
	if want == io.EOF || want == os.ErrDeadlineExceeded || want == net.ErrClosed || want == syscall.EPIPE {
		return err == want
	}
	c, ok := err.(*ConnError)
	return ok && error(c.Errno) == want
}

// peerShut reports whether SHUTDOWN has arrived.
func (e *end) peerShut() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state.peerShut
}

// TestCloseWhileWriting closes an end, or its writing side, at any moment of a
// Write: the peer gets exactly what Write says was written, and then the end.
func TestCloseWhileWriting(t *testing.T) {
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		for i := range 40 {
			l := newLab(t, simqp.Options{Transport: tr, Seed: rand.Uint64()})
			a, b := l.pair(Config{})
			written := make(chan int)
			go func() {
				var p pattern
				buf := make([]byte, 1<<20)
				total := 0
				for {
					p.pos = total
					p.fill(buf)
					n, err := a.Write(buf)
					total += n
					if err != nil {
						if want := []error{syscall.EPIPE, net.ErrClosed}[i%2]; err != want {
							t.Errorf("%v, want %v", err, want)
						}
						break
					}
				}
				written <- total
			}()
			read := make(chan int)
			go func() {
				n, err := readSizes(b, fixed(300_000))
				if err != nil {
					t.Errorf("after %d bytes: %v", n, err)
				}
				read <- n
			}()
			time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
			if i%2 == 0 {
				require.NoError(t, a.CloseWrite())
			} else {
				require.NoError(t, a.Close(10*time.Second))
			}
			require.Equal(t, <-written, <-read)
		}
	})
}

// TestHalfCloseWhileBlocked closes one direction while it waits, once driving and
// once behind the other direction, which goes on waiting.
func TestHalfCloseWhileBlocked(t *testing.T) {
	for _, closeRead := range []bool{false, true} {
		for _, first := range []string{"read", "write"} {
			l := newLab(t, simqp.Options{})
			a, b := l.pair(Config{ReadBuffer: 16 << 10})
			read, wrote := make(chan error, 1), make(chan error, 1)
			start := map[string]func(){
				"read": func() {
					_, err := a.Read(make([]byte, 10))
					read <- err
				},
				"write": func() {
					_, err := a.Write(make([]byte, 1<<20))
					wrote <- err
				},
			}
			go start[first]()
			for !a.isDriven() {
				time.Sleep(time.Millisecond)
			}
			delete(start, first)
			for _, f := range start {
				go f()
			}
			time.Sleep(20 * time.Millisecond)
			within(t, 10*time.Second, func() {
				if closeRead {
					require.NoError(t, a.CloseRead())
					require.Equal(t, io.EOF, <-read)
				} else {
					require.NoError(t, a.CloseWrite())
					require.Equal(t, syscall.EPIPE, <-wrote)
				}
			})
			// The other one still works.
			if closeRead {
				go func() { _, _ = io.ReadAll(b) }()
				require.NoError(t, <-wrote)
			} else {
				_, err := b.Write([]byte("x"))
				require.NoError(t, err)
				require.NoError(t, <-read)
			}
			require.NoError(t, a.Release())
			require.NoError(t, b.Release())
		}
	}
}

// isDriven reports whether somebody waits for the completion queue.
func (e *end) isDriven() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.driving
}
