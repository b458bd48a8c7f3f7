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

// A stale connection passes by itself: it is tried again within the deadline, with
// growing pauses, each time with an identifier and an endpoint of its own.
func TestStaleConnection(t *testing.T) {
	const ms = time.Millisecond
	stale := scripted.Script{scripted.Connect: {scripted.Event(cm.Rejected, 10)}}
	for name, c := range map[string]struct {
		scripts []scripted.Script
		limit   time.Duration // 0: no deadline
		ok      bool
		tried   []time.Duration
	}{
		"it passes":           {[]scripted.Script{stale, stale, stale, nil}, 10 * time.Second, true, []time.Duration{0, 50 * ms, 150 * ms, 350 * ms}},
		"it lasts":            {[]scripted.Script{stale}, time.Second, false, []time.Duration{0, 50 * ms, 150 * ms, 350 * ms, 750 * ms}},
		"no deadline":         {[]scripted.Script{stale, nil}, 0, false, []time.Duration{0}},
		"no time for a pause": {[]scripted.Script{stale, nil}, 40 * ms, false, []time.Duration{0}},
		"a second each in the end": {[]scripted.Script{stale, stale, stale, stale, stale, stale, stale, nil}, time.Minute, true,
			[]time.Duration{0, 50 * ms, 150 * ms, 350 * ms, 750 * ms, 1550 * ms, 2550 * ms, 3550 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := scripted.NewProvider(c.scripts...)
				ctx := t.Context()
				if c.limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.limit)
					defer cancel()
				}
				began := time.Now()
				conn, err := cm.NewManager(p).Dial(ctx, request(p))
				if c.ok {
					require.NoError(t, err)
					finish(conn)
				} else {
					require.Equal(t, 10, stageError(t, err).Status)
					require.True(t, temporary(err))
					require.False(t, timeout(err))
					require.NotErrorIs(t, err, syscall.ECONNREFUSED, "somebody does listen there")
					require.ErrorContains(t, err, "try again")
				}
				var tried []time.Duration
				for _, id := range p.IDs() {
					tried = append(tried, id.Called(scripted.Connect)[0].At.Sub(began))
				}
				require.Equal(t, c.tried, tried)
				require.Len(t, p.Endpoints(), len(tried))
				requireClean(t, p)
			})
		})
	}
}

func TestCancelDuringRejectPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider(scripted.Script{scripted.Connect: {scripted.Event(cm.Rejected, 10)}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := dialAsync(ctx, cm.NewManager(p), request(p))
		time.Sleep(100 * time.Millisecond)
		cancel()
		r := <-done
		require.Equal(t, 100*time.Millisecond, r.took)
		requireCanceled(t, r.err, cm.StageConnect)
		requireClean(t, p)
	})
}

// What each reject reason means for who dials.
func TestRejectReasons(t *testing.T) {
	again := map[int]bool{10: true, 30: true}
	for reason := -200; reason < 50; reason++ {
		synctest.Test(t, func(t *testing.T) {
			want := syscall.ECONNREFUSED
			switch reason {
			case 1, 2, 3, 10, 30:
				want = syscall.EAGAIN
			case 4:
				want = syscall.ETIMEDOUT
			}
			p := scripted.NewProvider(scripted.Script{scripted.Connect: {scripted.Event(cm.Rejected, reason)}}, nil)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			conn, err := cm.NewManager(p).Dial(ctx, request(p))
			if again[reason] {
				require.NoError(t, err, reason)
				finish(conn)
			} else {
				require.ErrorIs(t, err, want, reason)
				require.Equal(t, want != syscall.ECONNREFUSED, temporary(err), reason)
				require.Equal(t, reason == 4, timeout(err), reason)
			}
			requireClean(t, p)
		})
	}
}
