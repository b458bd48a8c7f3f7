package rsocket

import (
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/simqp"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// TestWriteAfterEnd has the peer close, and then writes: on a connection in use, on
// one that has been idle, and on one whose end Read has told of.
func TestWriteAfterEnd(t *testing.T) {
	tests := []struct {
		name  string
		rest  time.Duration
		read  bool // Read tells of the end
		first error
	}{
		{"in use", 0, false, nil},
		{"in use a moment ago", idleAfter * 4 / 5, false, nil},
		{"idle", 2 * idleAfter, false, syscall.EPIPE},
		{"idle for long, and swept", 10 * time.Second, false, syscall.EPIPE},
		{"read", 0, true, nil},
		{"read, and idle since", time.Minute, true, nil},
	}
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLab(t, simqp.Options{Transport: tr})
					a, b := l.pair(Config{})
					_, err := a.Write([]byte("hello"))
					require.NoError(t, err)
					_, err = io.ReadFull(b, make([]byte, 5))
					require.NoError(t, err)
					require.NoError(t, b.Close(time.Second))
					synctest.Wait()
					if test.read {
						_, err := a.Read(make([]byte, 1))
						require.Equal(t, io.EOF, err)
					}
					time.Sleep(test.rest)
					n, err := a.Write([]byte("goodbye"))
					if test.first == nil {
						require.NoError(t, err)
						require.Equal(t, 7, n)
						a.poll0() // where the device has taken it, the end is seen now
					} else {
						require.Equal(t, test.first, err)
						require.Zero(t, n)
					}
					written := a.posted0()
					for range 2 {
						n, err = a.Write([]byte("and again"))
						if err == nil && !test.read && test.first == nil {
							continue // the first that met the end
						}
						require.Equal(t, syscall.EPIPE, err)
						require.Zero(t, n)
					}
					require.Equal(t, written, a.posted0(), "nothing is sent after the end")
					require.NoError(t, a.Close(time.Second), "what was dropped is no error")
				})
			})
		}
	})
}

func (e *end) poll0() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.look()
}

func (e *end) posted0() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sq.posted
}

// TestWriteAfterCutWrite has the peer close while a Write waits for it: that Write has
// told of the end, and no later one may seem to succeed.
func TestWriteAfterCutWrite(t *testing.T) {
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, simqp.Options{Transport: tr})
			a, b := l.pair(Config{ReadBuffer: 16 << 10, WriteBuffer: 16 << 10})
			time.AfterFunc(idleAfter/10, func() { b.Close(time.Second) })
			n, err := a.Write(make([]byte, 1<<20))
			require.Equal(t, syscall.EPIPE, err)
			require.Positive(t, n)
			for range 2 {
				n, err = a.Write([]byte("x"))
				require.Equal(t, syscall.EPIPE, err)
				require.Zero(t, n)
			}
		})
	})
}
