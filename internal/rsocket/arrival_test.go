package rsocket

import (
	"io"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/simqp"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// TestCloseIdle closes a connection that was written to some time ago: what was
// written is known to have arrived, by one probe and no more, and Close does not
// wait, though the peer's host has vanished by then.
func TestCloseIdle(t *testing.T) {
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, simqp.Options{Transport: tr, Retry: time.Minute})
			a, b := l.pair(Config{})
			time.Sleep(time.Second / 2) // first grants are through
			_, err := a.Write([]byte("hello"))
			require.NoError(t, err)
			_, err = io.ReadFull(b, make([]byte, 5))
			require.NoError(t, err)
			written := a.posted0()
			time.Sleep(3 * time.Second)
			require.True(t, a.sees())
			time.Sleep(time.Minute)
			require.LessOrEqual(t, a.posted0()-written, uint64(1), "probes")
			a.qp.Vanish()
			start := time.Now()
			require.NoError(t, a.Close(time.Hour))
			require.Zero(t, time.Since(start))
		})
	})
}

// sees reports whether all is known to have arrived.
func (e *end) sees() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hasArrived()
}

// TestCloseUnwritten closes connections on which nothing was written, towards a
// peer that has vanished.
func TestCloseUnwritten(t *testing.T) {
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, simqp.Options{Transport: tr, Retry: time.Minute})
			a, b := l.pair(Config{})
			a.qp.Vanish()
			start := time.Now()
			require.NoError(t, a.Close(time.Hour))
			require.NoError(t, b.Close(time.Hour))
			require.Zero(t, time.Since(start))
			require.NoError(t, a.Linger(time.Second))
			require.LessOrEqual(t, time.Since(start), time.Second)
		})
	})
}

// TestCloseNotDelivered loses what was written, before Close, during it, and for as
// long as it takes. Close says so, and why.
func TestCloseNotDelivered(t *testing.T) {
	tests := []struct {
		name    string
		before  func(a *end)
		during  func(a *end)
		timeout time.Duration
		wants   error // beside ErrNotDelivered
		takes   time.Duration
	}{
		{"lost before", func(a *end) { a.Disconnected(syscall.ENODEV) }, nil, time.Hour, syscall.ENODEV, 0},
		{"failed before", func(a *end) { a.failWith(&ConnError{syscall.ETIMEDOUT, "", nil}) }, nil, time.Hour, syscall.ETIMEDOUT, 0},
		{"lost during", nil, func(a *end) { a.Disconnected(syscall.ENODEV) }, time.Hour, syscall.ENODEV, time.Second},
		{"violated during", nil, func(a *end) { a.failWith(protocolErrorf("x")) }, time.Hour, syscall.EPROTO, time.Second},
		{"time", nil, nil, time.Second, errTimeRanOut, time.Second},
		{"not awaited", nil, nil, -1, errNotAwaited, 0},
	}
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLab(t, simqp.Options{Transport: tr, Retry: 1000 * time.Hour})
					a, _ := l.pair(Config{})
					time.Sleep(time.Second / 2)
					a.qp.Vanish()
					n, err := a.Write([]byte("hello"))
					require.NoError(t, err)
					require.Equal(t, 5, n)
					if test.before != nil {
						test.before(a)
					}
					start := time.Now()
					if test.during != nil {
						time.AfterFunc(time.Second, func() { test.during(a) })
					}
					err = a.Close(test.timeout)
					require.ErrorIs(t, err, ErrNotDelivered)
					require.ErrorIs(t, err, test.wants)
					require.Equal(t, test.takes, time.Since(start))
				})
			})
		}
	})
}

func (e *end) failWith(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fail(err)
}

// A tellingQP is a queue pair whose peer's host confirms when it is told to.
type tellingQP struct {
	*simqp.QP
	has, asked atomic.Int32
}

func (q *tellingQP) Silence() (time.Duration, bool) { return 0, false }

func (q *tellingQP) HostHas() (all, known bool) {
	q.asked.Add(1)
	return q.has.Load() != 0, true
}

// TestHostTeller checks that a host's confirmation is enough, before Close and
// during it, without a word to the peer's device; and that "no" is not taken for
// an answer that never comes.
func TestHostTeller(t *testing.T) {
	for _, before := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, simqp.Options{Transport: verbs.IWARP})
			l.dev[0].CallerDriven = true
			a, _ := l.pair(Config{})
			q := &tellingQP{QP: a.qp}
			a.mu.Lock()
			a.teller = q
			a.mu.Unlock()
			time.Sleep(time.Second / 2)
			a.qp.Vanish()
			_, err := a.Write([]byte("hello"))
			require.NoError(t, err)
			start := time.Now()
			took := time.Duration(0)
			if before {
				q.has.Store(1)
			} else {
				took = 100 * time.Millisecond
				time.AfterFunc(took, func() { q.has.Store(1) })
			}
			require.NoError(t, a.Close(time.Hour))
			require.GreaterOrEqual(t, time.Since(start), took)
			require.LessOrEqual(t, time.Since(start), took+longestLook)
			require.Less(t, q.asked.Load(), int32(20))
			require.Equal(t, before, !a.finalRead, "a Read is needed only if the host did not know")
		})
	}
}

// TestCloseWithoutTime closes with a time that is over before the wait begins.
func TestCloseWithoutTime(t *testing.T) {
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		l := newLab(t, simqp.Options{Transport: tr, Retry: time.Second})
		a, _ := l.pair(Config{})
		a.qp.Vanish()
		_, err := a.Write([]byte("hello"))
		require.NoError(t, err)
		require.ErrorIs(t, a.Close(time.Nanosecond), ErrNotDelivered)
	})
}
