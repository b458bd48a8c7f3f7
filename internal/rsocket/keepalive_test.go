package rsocket

import (
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/simqp"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

var keepAlive = Config{KeepAlive: net.KeepAliveConfig{Enable: true}}

// TestKeepAliveIdle checks that probes do no harm to a connection on which
// nothing happens, driven or not.
func TestKeepAliveIdle(t *testing.T) {
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, simqp.Options{Transport: tr})
			a, b := l.pair(keepAlive)
			require.NoError(t, a.SetReadDeadline(time.Now().Add(time.Hour)))
			_, err := a.Read(make([]byte, 1))
			require.Equal(t, os.ErrDeadlineExceeded, err)
			require.NoError(t, a.SetReadDeadline(time.Time{}))
			_, err = b.Write([]byte("x"))
			require.NoError(t, err)
			_, err = a.Read(make([]byte, 1))
			require.NoError(t, err)
		})
	})
}

// TestKeepAliveVanished checks when and how a connection ends whose peer has
// vanished without a word.
func TestKeepAliveVanished(t *testing.T) {
	const idle, patience = 15 * time.Second, 9 * 15 * time.Second
	tests := []struct {
		name      string
		transport verbs.Transport
		retry     time.Duration // until the device gives up
		reads     int
		after     time.Duration // the error comes within two sweeps of this
	}{
		{"RoCE", verbs.RoCE, 4 * time.Second, 1, idle + 4*time.Second},
		{"RoCE, a device that never gives up", verbs.RoCE, 1000 * time.Hour, 1, idle + patience},
		{"iWARP", verbs.IWARP, 0, 1, idle + patience},
	}
	for _, test := range tests {
		for _, op := range []string{"read", "write", "nobody"} {
			t.Run(test.name+"/"+op, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLab(t, simqp.Options{Transport: test.transport, Retry: test.retry})
					a, b := l.open(0, keepAlive), l.open(1, keepAlive)
					connect(t, a, b, test.reads)
					defer func() { l.release(a); l.release(b) }()
					time.Sleep(time.Second / 2) // first grants are through
					a.qp.Vanish()
					start := time.Now()
					var err error
					switch op {
					case "read":
						_, err = a.Read(make([]byte, 1))
					case "write":
						for err == nil {
							_, err = a.Write(make([]byte, 4096))
						}
					case "nobody":
						time.Sleep(test.after + 5*time.Second)
						_, err = a.Read(make([]byte, 1))
					}
					require.ErrorIs(t, err, syscall.ETIMEDOUT)
					var te interface{ Timeout() bool }
					require.ErrorAs(t, err, &te)
					require.True(t, te.Timeout())
					took := time.Since(start)
					if op == "write" && test.retry == 4*time.Second {
						require.InDelta(t, 4, took.Seconds(), 1)
						return
					}
					if op != "nobody" {
						require.InDelta(t, test.after.Seconds(), took.Seconds(), 3, err)
					}
				})
			})
		}
	}
}

// TestKeepAliveOff checks that nothing is sent where it is not enabled, and
// where the peer serves no Read.
func TestKeepAliveOff(t *testing.T) {
	for _, cfg := range []Config{{}, keepAlive} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, simqp.Options{Transport: verbs.IWARP})
			a, b := l.open(0, cfg), l.open(1, cfg)
			connect(t, a, b, 0) // a Read would be a fault
			defer func() { l.release(a); l.release(b) }()
			a.qp.Vanish()
			require.NoError(t, a.SetReadDeadline(time.Now().Add(time.Hour)))
			_, err := a.Read(make([]byte, 1))
			require.Equal(t, os.ErrDeadlineExceeded, err)
			require.False(t, a.probe.outstanding)
		})
	}
}

// TestFlushedWithoutEvent checks that a queue pair that is flushed ends a
// connection, soon, though the connection manager says nothing.
func TestFlushedWithoutEvent(t *testing.T) {
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, simqp.Options{Transport: tr})
			a, _ := l.pair(Config{})
			a.qp.OnEvent = nil
			require.NoError(t, a.qp.SetError())
			start := time.Now()
			_, err := a.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET)
			_, err = a.Write(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET)
			require.Less(t, time.Since(start), 5*time.Second)
		})
	})
}

// TestKeepAliveMute checks that an iWARP acceptor, which may not probe before it
// has heard the dialer, gives up one that never says anything, and keeps one
// that serves no Reads, as a C program that has nothing to do.
func TestKeepAliveMute(t *testing.T) {
	for reads, gone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, simqp.Options{Transport: verbs.IWARP})
			cfg := keepAlive
			cfg.Acceptor = true
			e, r := l.connectRaw(cfg, rawConfig{reads: reads})
			defer func() { l.release(e); r.destroy() }()
			start := time.Now()
			require.NoError(t, e.SetReadDeadline(start.Add(time.Hour)))
			_, err := e.Read(make([]byte, 1))
			if !gone {
				require.Equal(t, os.ErrDeadlineExceeded, err)
				return
			}
			require.ErrorIs(t, err, syscall.ETIMEDOUT)
			require.InDelta(t, (15*time.Second + 9*15*time.Second).Seconds(), time.Since(start).Seconds(), 3)
		})
	}
}
