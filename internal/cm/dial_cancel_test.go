package cm_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/cm/scripted"
)

// requireCanceled checks the error of a cancelled dial.
func requireCanceled(t *testing.T, err error, stage cm.Stage) {
	t.Helper()
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.False(t, timeout(err))
	require.False(t, temporary(err))
	require.Equal(t, stage, stageError(t, err).Stage)
}

func TestCancelBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := cm.NewManager(p).Dial(ctx, request(p))
		requireCanceled(t, err, cm.StageOpen)
		synctest.Wait()
		require.Empty(t, p.IDs(), "nothing is begun")
	})
}

// The ways in which a call can be under way when the dial is cancelled.
func pendingSteps(c stageCase, release <-chan struct{}) map[string]scripted.Step {
	after := scripted.Silent()
	if c.answer != cm.None {
		after = scripted.Event(c.answer, 0)
	}
	steps := map[string]scripted.Step{
		"call blocks": scripted.Block(time.Hour, after),
		"call stuck":  scripted.Stuck(release, after),
		"call stuck, then fails": scripted.Stuck(release, scripted.Fail(
			&scriptedError{"rdma_something: connection refused", syscall.ECONNREFUSED})),
	}
	if c.answer != cm.None {
		steps["no event"] = scripted.Silent()
		steps["event later"] = scripted.After(2*time.Second, cm.Event{Type: c.answer})
		steps["failure later"] = scripted.After(2*time.Second, cm.Event{Type: c.fails[0], Status: status(syscall.EINVAL)})
		steps["call stuck, event there"] = scripted.Both(scripted.Before(cm.Event{Type: c.answer}), scripted.Stuck(release, scripted.Silent()))
	}
	return steps
}

type scriptedError struct {
	text  string
	errno syscall.Errno
}

func (e *scriptedError) Error() string { return e.text }
func (e *scriptedError) Unwrap() error { return e.errno }

func TestCancelDuring(t *testing.T) {
	forEachStage(t, func(t *testing.T, c stageCase) {
		for name := range pendingSteps(c, nil) {
			release := make(chan struct{})
			p := c.provider(c.script(pendingSteps(c, release)[name]))
			cause := errors.New("the user pressed a key")
			ctx, cancel := context.WithCancelCause(t.Context())
			done := dialAsync(ctx, cm.NewManager(p), request(p))
			time.Sleep(time.Second)
			select {
			case r := <-done:
				t.Fatalf("%s: returned before the cancellation: %v", name, r.err)
			default:
			}
			cancel(cause)
			r := <-done
			require.Equal(t, time.Second, r.took, name)
			requireCanceled(t, r.err, c.stage)
			require.ErrorIs(t, r.err, cause)
			require.Contains(t, r.err.Error(), cause.Error())
			synctest.Wait()
			require.Len(t, p.ID(0).Called(scripted.Interrupt), 1, name)
			close(release)
			time.Sleep(time.Minute) // what comes late comes
			requireClean(t, p)
			c.requireStopped(t, p.ID(0))
		}
	})
}

// Nothing waits for the one that cannot be interrupted, nor for a provider that
// hangs in NewID.
func TestCancelWhileOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, fails := range []bool{false, true} {
			release := make(chan struct{})
			p := scripted.NewProvider(scripted.Script{scripted.NewID: {func(*scripted.ID) error {
				<-release
				if fails {
					return syscall.ENODEV
				}
				return nil
			}}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began := time.Now()
			_, err := cm.NewManager(p).Dial(ctx, request(p))
			cancel()
			require.Equal(t, time.Second, time.Since(began))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.True(t, timeout(err))
			require.Equal(t, cm.StageOpen, stageError(t, err).Stage)
			close(release)
			requireClean(t, p)
			for _, id := range p.IDs() {
				require.Empty(t, id.Called(scripted.ResolveAddrInfo), "nothing more is begun")
			}
		}
	})
}

// Prepare is not the provider's, but it can take its time as well.
func TestCancelWhilePreparing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := scripted.NewProvider()
		r := request(p)
		r.NewEndpoint = func() cm.Endpoint {
			ep := p.NewEndpoint()
			ep.OnPrepare = func(cm.ID, cm.Event) error { <-release; return nil }
			return ep
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := dialAsync(ctx, cm.NewManager(p), r)
		time.Sleep(time.Second)
		cancel()
		requireCanceled(t, (<-done).err, cm.StageConnect)
		close(release)
		requireClean(t, p)
		require.Empty(t, p.ID(0).Called(scripted.Connect))
	})
}

// The cause of a deadline is kept too.
func TestDeadlineCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("the batch has to be done by noon")
		p := scripted.NewProvider(scripted.Script{scripted.Connect: {scripted.Silent()}})
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		_, err := cm.NewManager(p).Dial(ctx, request(p))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, cause)
		require.True(t, timeout(err))
		requireClean(t, p)
	})
}

// A cancellation that is caused by somebody else's time-out is a cancellation.
func TestCancelCausedByTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider(scripted.Script{scripted.Connect: {scripted.Silent()}})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(syscall.ETIMEDOUT) })
		_, err := cm.NewManager(p).Dial(ctx, request(p))
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, syscall.ETIMEDOUT)
		require.False(t, timeout(err))
		requireClean(t, p)
	})
}

// Interrupt runs elsewhere: a worker that has finished waits for it before it
// destroys the identifier.
func TestInterruptBeforeDestroy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider(scripted.Script{
			scripted.Connect: {scripted.Silent()},
			scripted.Interrupt: {func(*scripted.ID) error {
				time.Sleep(time.Second)
				return nil
			}},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := dialAsync(ctx, cm.NewManager(p), request(p))
		time.Sleep(time.Second)
		cancel()
		require.Equal(t, time.Second, (<-done).took)
		synctest.Wait()
		require.Zero(t, p.ID(0).Destroyed())
		time.Sleep(time.Second)
		requireClean(t, p)
	})
}
