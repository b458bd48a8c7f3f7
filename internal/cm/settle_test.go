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
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// An iWARP connect that is cancelled comes to its end by itself, if that is
// soon, before anything is torn down; the caller has long returned.
func TestCancelIWARPConnectSettles(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		transport verbs.Transport
		connect   scripted.Step
		gone      time.Duration // from the cancellation until the identifier is destroyed
	}{
		"answered":                    {verbs.IWARP, scripted.After(150*ms, cm.Event{Type: cm.Established}), 50 * ms},
		"refused":                     {verbs.IWARP, scripted.After(150*ms, cm.Event{Type: cm.Rejected, Status: status(syscall.ECONNRESET)}), 50 * ms},
		"an event that is no end":     {verbs.IWARP, scripted.After(150*ms, cm.Event{Type: cm.AddrChange}), 250 * ms},
		"never answered":              {verbs.IWARP, scripted.Silent(), 250 * ms},
		"the call returns":            {verbs.IWARP, scripted.Block(150*ms, scripted.After(100*ms, cm.Event{Type: cm.Established})), 150 * ms},
		"the call fails":              {verbs.IWARP, scripted.Block(150*ms, scripted.Fail(syscall.ECONNREFUSED)), 50 * ms},
		"the call blocks":             {verbs.IWARP, scripted.Block(time.Hour, scripted.Silent()), 250 * ms},
		"RoCE: answered":              {verbs.RoCE, scripted.After(150*ms, cm.Event{Type: cm.Established}), 0},
		"InfiniBand: the call blocks": {verbs.InfiniBand, scripted.Block(time.Hour, scripted.Silent()), 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := scripted.NewProvider(scripted.Script{scripted.Connect: {c.connect}})
				p.Dev = scripted.NewDevice("scripted0", c.transport)
				ctx, cancel := context.WithCancel(t.Context())
				done := dialAsync(ctx, cm.NewManager(p), request(p))
				time.Sleep(100 * ms)
				cancel()
				canceled := time.Now()
				r := <-done
				requireCanceled(t, r.err, cm.StageConnect)
				require.Equal(t, 100*ms, r.took, "the caller does not wait")
				for len(p.ID(0).Called(scripted.Destroy)) == 0 {
					require.Less(t, time.Since(canceled), time.Second)
					time.Sleep(ms)
				}
				require.InDelta(t, c.gone, time.Since(canceled), float64(2*ms))
				requireClean(t, p)
			})
		})
	}
}

// A connect that fails is not waited for.
func TestFailedIWARPConnectDoesNotSettle(t *testing.T) {
	for name, step := range map[string]scripted.Step{
		"by the call":  scripted.Fail(syscall.ECONNREFUSED),
		"by an event":  scripted.Event(cm.Rejected, status(syscall.ECONNRESET)),
		"in establish": scripted.Event(cm.Established, status(syscall.EINVAL)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := scripted.NewProvider(scripted.Script{scripted.Connect: {step}})
				p.Dev = scripted.NewDevice("scripted0", verbs.IWARP)
				began := time.Now()
				_, err := cm.NewManager(p).Dial(t.Context(), request(p))
				require.Error(t, err)
				require.Zero(t, time.Since(began))
				requireClean(t, p)
			})
		})
	}
}
