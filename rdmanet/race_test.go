package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// A scriptedRunner answers after a time: with a connection, or with an error, or
// never.
type scriptedRunner struct {
	after time.Duration
	err   error
	hang  bool
	deaf  bool // does not heed its context

	begun  time.Duration // since the race began; -1 if it never did
	ended  atomic.Bool
	closed atomic.Bool
}

// script makes runners of what each is to do.
func script(scripts []*scriptedRunner) []runner {
	start := time.Now()
	var runners []runner
	for i, s := range scripts {
		s.begun = -1
		runners = append(runners, runner{fmt.Sprint("runner ", i), func(ctx context.Context) (net.Conn, error) {
			s.begun = time.Since(start)
			defer s.ended.Store(true)
			done := ctx.Done()
			if s.deaf {
				done = nil
			}
			after := time.After(s.after)
			if s.hang {
				after = nil
			}
			select {
			case <-after:
			case <-done:
				return nil, ctx.Err()
			}
			if s.err != nil {
				return nil, s.err
			}
			return &scriptedConn{runner: s}, nil
		}})
	}
	return runners
}

type scriptedConn struct {
	net.Conn
	runner *scriptedRunner
}

func (c *scriptedConn) Close() error { c.runner.closed.Store(true); return nil }

// race has a race as a dial does.
func race(ctx context.Context, delay time.Duration, runners []runner) (net.Conn, error) {
	conn, winner, failed := cm.Race(ctx, delay, ways(runners), discardConn)
	if winner < 0 {
		return nil, raceError(runners, failed)
	}
	return conn, nil
}

func TestRace(t *testing.T) {
	const ms = time.Millisecond
	refused := func(after time.Duration) *scriptedRunner {
		return &scriptedRunner{after: after, err: syscall.ECONNREFUSED}
	}
	connects := func(after time.Duration) *scriptedRunner { return &scriptedRunner{after: after} }
	hangs := func() *scriptedRunner { return &scriptedRunner{hang: true} }
	for _, tc := range []struct {
		name    string
		delay   time.Duration
		runners []*scriptedRunner
		timeout time.Duration   // of the context, if not 0
		winner  int             // -1 if none
		took    time.Duration   // until race returns
		begun   []time.Duration // of each runner
		closed  []bool          // whether a loser's connection was closed in the end
	}{
		{"the first connects", 0, []*scriptedRunner{connects(10 * ms), connects(0)}, 0, 0, 10 * ms, []time.Duration{0, -1}, nil},
		{"the first is refused", 0, []*scriptedRunner{refused(10 * ms), connects(5 * ms)}, 0, 1, 15 * ms, []time.Duration{0, 10 * ms}, nil},
		{"the first hangs", 0, []*scriptedRunner{hangs(), connects(5 * ms)}, 0, 1, 305 * ms, []time.Duration{0, 300 * ms}, nil},
		{"another delay", 50 * ms, []*scriptedRunner{hangs(), connects(5 * ms)}, 0, 1, 55 * ms, []time.Duration{0, 50 * ms}, nil},
		{"no delay", -1, []*scriptedRunner{refused(time.Second), connects(5 * ms)}, 0, 1, 1005 * ms, []time.Duration{0, time.Second}, nil},
		{"the first is slow and wins", 0, []*scriptedRunner{connects(310 * ms), connects(50 * ms)}, 0, 0, 310 * ms, []time.Duration{0, 300 * ms}, []bool{false, false}},
		{"a loser that is deaf connects later", 0, []*scriptedRunner{{after: 400 * ms, deaf: true}, connects(5 * ms)}, 0, 1, 305 * ms, []time.Duration{0, 300 * ms}, []bool{true, false}},
		{"two hang, the third connects", 0, []*scriptedRunner{hangs(), hangs(), connects(5 * ms)}, 0, 2, 605 * ms, []time.Duration{0, 300 * ms, 600 * ms}, nil},
		{"the second fails while the first hangs", 0, []*scriptedRunner{hangs(), refused(20 * ms), connects(5 * ms)}, 0, 2, 325 * ms, []time.Duration{0, 300 * ms, 320 * ms}, nil},
		{"all refuse", 0, []*scriptedRunner{refused(10 * ms), refused(20 * ms)}, 0, -1, 30 * ms, []time.Duration{0, 10 * ms}, nil},
		{"the first refuses last", 0, []*scriptedRunner{refused(500 * ms), refused(20 * ms)}, 0, -1, 500 * ms, []time.Duration{0, 300 * ms}, nil},
		{"all hang until the deadline", 0, []*scriptedRunner{hangs(), hangs()}, time.Second, -1, time.Second, []time.Duration{0, 300 * ms}, nil},
		{"cancelled before the second begins", 0, []*scriptedRunner{hangs(), connects(0)}, 100 * ms, -1, 100 * ms, []time.Duration{0, -1}, nil},
		{"a deaf one is left behind", 0, []*scriptedRunner{hangs(), {after: 400 * ms, deaf: true}}, 350 * ms, -1, 355 * ms, []time.Duration{0, 300 * ms}, []bool{false, true}},
		{"one alone", 0, []*scriptedRunner{refused(ms)}, 0, -1, ms, []time.Duration{0}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tc.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.timeout)
					defer cancel()
				}
				start := time.Now()
				conn, err := race(ctx, tc.delay, script(tc.runners))
				require.Equal(t, tc.took, time.Since(start))
				synctest.Wait()
				if tc.winner >= 0 {
					require.NoError(t, err)
					require.Same(t, tc.runners[tc.winner], conn.(*scriptedConn).runner)
				} else {
					require.Error(t, err)
					require.Nil(t, conn)
					require.Equal(t, tc.timeout > 0, isTimeout(err), "%v", err)
					require.Equal(t, tc.timeout == 0, errors.Is(err, syscall.ECONNREFUSED), "%v", err)
				}
				time.Sleep(time.Second) // of the bubble's time: what is deaf ends too
				synctest.Wait()
				for i, s := range tc.runners {
					require.Equal(t, tc.begun[i], s.begun, "runner %d", i)
					require.Equal(t, s.begun >= 0, s.ended.Load(), "runner %d is left behind", i)
					require.Equal(t, tc.closed != nil && tc.closed[i], s.closed.Load(), "connection of runner %d", i)
				}
			})
		})
	}
}

// TestDialContextOver: the context's end is the error, whatever this machine has.
func TestDialContextOver(t *testing.T) {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, p := range []Provider{Auto, Verbs, Software} {
		_, err := (&Dialer{Provider: p}).DialContext(canceled, "rdma", "127.0.0.1:9")
		require.ErrorIs(t, err, context.Canceled, "%v", p)
		require.False(t, requireOpError(t, err, "dial").Timeout())
		_, err = (&Dialer{Provider: p, Timeout: -1}).Dial("rdma", "127.0.0.1:9")
		require.ErrorIs(t, err, context.DeadlineExceeded, "%v", p)
		require.True(t, requireOpError(t, err, "dial").Timeout())
	}
}

// TestRaceError leaves out what this machine does not have, unless that is all.
// Timeout is that of the runner that failed last.
func TestRaceError(t *testing.T) {
	runners := []runner{{name: "verbs"}, {name: "software"}, {name: "fallback"}}
	unavailable := fmt.Errorf("no device: %w", errUnavailable)
	err := raceError(runners, []cm.Failure{{Way: 0, Err: unavailable}, {Way: 1, Err: syscall.ECONNREFUSED}})
	require.Equal(t, error(syscall.ECONNREFUSED), err)
	err = raceError(runners, []cm.Failure{{Way: 0, Err: unavailable}, {Way: 1, Err: syscall.ECONNREFUSED}, {Way: 2, Err: syscall.ETIMEDOUT}})
	require.EqualError(t, err, "all 2 ways failed: software: connection refused; fallback: connection timed out")
	require.True(t, isTimeout(err))
	require.True(t, isTimeout(publicError(err)))
	err = raceError(runners, []cm.Failure{{Way: 2, Err: syscall.ETIMEDOUT}, {Way: 1, Err: syscall.ECONNREFUSED}, {Way: 0, Err: unavailable}})
	require.EqualError(t, err, "all 2 ways failed: software: connection refused; fallback: connection timed out")
	require.False(t, isTimeout(err))
	require.False(t, isTimeout(publicError(err)))
	require.ErrorIs(t, raceError(runners[:1], []cm.Failure{{Way: 0, Err: unavailable}}), errUnavailable)
}
