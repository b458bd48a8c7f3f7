package cm_test

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/cm/scripted"
)

// timesOut answers a call with the event when the call's own timeout_ms is over.
func timesOut(call string, ev cm.EventType) scripted.Step {
	return func(id *scripted.ID) error {
		calls := id.Called(call)
		ms := calls[len(calls)-1].TimeoutMS
		return scripted.After(time.Duration(ms)*time.Millisecond, cm.Event{Type: ev, Status: status(syscall.ETIMEDOUT)})(id)
	}
}

// timeouts are the timeout_ms of all calls of a name.
func timeouts(id *scripted.ID, call string) []int {
	var ms []int
	for _, c := range id.Called(call) {
		ms = append(ms, c.TimeoutMS)
	}
	return ms
}

func forEachTimedStage(t *testing.T, fn func(t *testing.T, c stageCase)) {
	forEachStage(t, func(t *testing.T, c stageCase) {
		if c.timed {
			fn(t, c)
		}
	})
}

func TestAttemptsWithoutDeadline(t *testing.T) {
	forEachTimedStage(t, func(t *testing.T, c stageCase) {
		p := c.provider(c.script(timesOut(c.call, c.fails[0])))
		began := time.Now()
		_, err := cm.NewManager(p).Dial(t.Context(), request(p))
		e := stageError(t, err)
		require.ErrorIs(t, err, syscall.ETIMEDOUT)
		require.True(t, timeout(err))
		require.Equal(t, []int{1000, 2000, 4000, 8000, 16000, 32000, 64000}, timeouts(p.ID(0), c.call))
		require.Equal(t, 127*time.Second, time.Since(began))
		require.Equal(t, 6, e.Attempt)
		require.Contains(t, err.Error(), "attempt 7")
		requireClean(t, p)
	})
}

func TestAttemptsWithDeadline(t *testing.T) {
	forEachTimedStage(t, func(t *testing.T, c stageCase) {
		for limit, want := range map[time.Duration][]int{
			300 * time.Millisecond:  {300},
			1500 * time.Microsecond: {2},
			time.Nanosecond:         {1},
			time.Second:             {1000},
			5500 * time.Millisecond: {1000, 2000, 2500},
			3 * time.Minute:         {1000, 2000, 4000, 8000, 16000, 32000, 64000, 53000},
			10 * time.Minute:        {1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000, 256000, 89000},
		} {
			p := c.provider(c.script(timesOut(c.call, c.fails[0])))
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			began := time.Now()
			_, err := cm.NewManager(p).Dial(ctx, request(p))
			took := time.Since(began)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.True(t, timeout(err))
			require.Equal(t, limit, took)
			require.Equal(t, want, timeouts(p.ID(0), c.call))
			require.Equal(t, c.stage, stageError(t, err).Stage)
			requireClean(t, p)
		}
	})
}

// The second attempt may succeed.
func TestAttemptAfterTimeout(t *testing.T) {
	forEachTimedStage(t, func(t *testing.T, c stageCase) {
		p := c.provider(c.script(timesOut(c.call, c.fails[0]), scripted.Event(c.answer, 0)))
		conn, err := cm.NewManager(p).Dial(t.Context(), request(p))
		require.NoError(t, err)
		require.Equal(t, []int{1000, 2000}, timeouts(p.ID(0), c.call))
		finish(conn)
		requireClean(t, p)
	})
}

// Only a time-out is tried again.
func TestNoAttemptAfterOtherErrors(t *testing.T) {
	forEachTimedStage(t, func(t *testing.T, c stageCase) {
		p := c.provider(c.script(scripted.Event(c.fails[0], status(syscall.EHOSTUNREACH)), scripted.Event(c.answer, 0)))
		_, err := cm.NewManager(p).Dial(t.Context(), request(p))
		require.ErrorIs(t, err, syscall.EHOSTUNREACH)
		require.Len(t, p.ID(0).Called(c.call), 1)
		requireClean(t, p)
	})
}

// What earlier stages have used is not there for later ones.
func TestTimeLeftForLaterStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider(scripted.Script{
			scripted.ResolveAddrInfo: {scripted.After(200*time.Millisecond, cm.Event{Type: cm.AddrInfoResolved})},
			scripted.ResolveAddr:     {scripted.After(300500*time.Microsecond, cm.Event{Type: cm.AddrResolved})},
			scripted.ResolveRoute:    {scripted.After(100*time.Millisecond, cm.Event{Type: cm.RouteResolved})},
			scripted.Connect:         {scripted.Silent()},
		})
		ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := cm.NewManager(p).Dial(ctx, request(p))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, cm.StageConnect, stageError(t, err).Stage)
		require.Equal(t, 900*time.Millisecond, time.Since(began))
		require.Equal(t, []int{700}, timeouts(p.ID(0), scripted.ResolveAddr))
		require.Equal(t, []int{400}, timeouts(p.ID(0), scripted.ResolveRoute)) // 399.5, rounded up
		requireClean(t, p)
	})
}

// A call that says at once that time has run out must not become a busy loop.
func TestTimeoutOfTheCallItself(t *testing.T) {
	forEachTimedStage(t, func(t *testing.T, c stageCase) {
		p := c.provider(c.script(scripted.Fail(syscall.ETIMEDOUT)))
		began := time.Now()
		_, err := cm.NewManager(p).Dial(t.Context(), request(p))
		require.ErrorIs(t, err, syscall.ETIMEDOUT)
		require.True(t, timeout(err))
		require.Len(t, p.ID(0).Called(c.call), 7)
		require.Equal(t, 600*time.Millisecond, time.Since(began))
		requireClean(t, p)

		p = c.provider(c.script(scripted.Fail(syscall.ETIMEDOUT)))
		ctx, cancel := context.WithTimeout(t.Context(), 950*time.Millisecond)
		defer cancel()
		began = time.Now()
		_, err = cm.NewManager(p).Dial(ctx, request(p))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 950*time.Millisecond, time.Since(began))
		require.Len(t, p.ID(0).Called(c.call), 10)
		requireClean(t, p)
	})
}

// An event that never comes ends the stage, and is not asked for again.
func TestGuardOfTimedStages(t *testing.T) {
	forEachTimedStage(t, func(t *testing.T, c stageCase) {
		for name, step := range map[string]scripted.Step{"no event": scripted.Silent(), "call blocks": scripted.Block(time.Hour, scripted.Silent())} {
			for _, limit := range []time.Duration{0, time.Hour} {
				p := c.provider(c.script(step))
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if limit > 0 {
					ctx, cancel = context.WithTimeout(ctx, limit)
				}
				began := time.Now()
				_, err := cm.NewManager(p).Dial(ctx, request(p))
				took := time.Since(began)
				cancel()
				require.Equal(t, 6*time.Second, took, name)
				require.ErrorIs(t, err, syscall.ETIMEDOUT)
				require.NotErrorIs(t, err, context.Canceled)
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				require.True(t, timeout(err))
				require.Contains(t, err.Error(), "no answer from the connection manager within 6s")
				require.Len(t, p.ID(0).Called(c.call), 1)
				requireClean(t, p)
			}
		}
	})
}

// A call without a timeout_ms has as long as the deadline says, or else a bound
// of its own.
func TestGuardOfUntimedStages(t *testing.T) {
	forEachStage(t, func(t *testing.T, c stageCase) {
		if c.timed {
			return
		}
		for name, step := range map[string]scripted.Step{"no event": scripted.Silent(), "call blocks": scripted.Block(time.Hour, scripted.Silent())} {
			if c.answer == cm.None && name == "no event" {
				continue
			}
			p := c.provider(c.script(step))
			began := time.Now()
			_, err := cm.NewManager(p).Dial(t.Context(), request(p))
			require.Equal(t, 3*time.Minute, time.Since(began), name)
			require.ErrorIs(t, err, syscall.ETIMEDOUT)
			require.True(t, timeout(err))
			require.Equal(t, c.stage, stageError(t, err).Stage)
			requireClean(t, p)

			p = c.provider(c.script(step))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			began = time.Now()
			_, err = cm.NewManager(p).Dial(ctx, request(p))
			cancel()
			require.Equal(t, 10*time.Minute, time.Since(began), name)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, c.stage, stageError(t, err).Stage)
			requireClean(t, p)
		}
	})
}

// A slow answer within the slack is an answer.
func TestAnswerWithinTheSlack(t *testing.T) {
	forEachTimedStage(t, func(t *testing.T, c stageCase) {
		p := c.provider(c.script(scripted.After(5900*time.Millisecond, cm.Event{Type: c.answer})))
		conn, err := cm.NewManager(p).Dial(t.Context(), request(p))
		require.NoError(t, err)
		require.Equal(t, []int{1000}, timeouts(p.ID(0), c.call))
		finish(conn)
		requireClean(t, p)
	})
}
