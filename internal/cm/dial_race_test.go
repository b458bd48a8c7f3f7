package cm_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/cm/scripted"
)

// spin lets other goroutines run for a random while, usually a very short one.
func spin() {
	for range rand.IntN(1 << rand.IntN(7)) {
		runtime.Gosched()
	}
}

// A dial is cancelled at the very moment of ESTABLISHED, or about then: in the
// end either the caller has the connection, or nothing is left of it.
func TestHandOverRace(t *testing.T) {
	const repetitions = 10000
	synctest.Test(t, func(t *testing.T) {
		var won, lost int
		for i := range repetitions {
			ctx, cancel := context.WithCancel(t.Context())
			racing := func(id *scripted.ID) error {
				go func() {
					spin()
					cancel()
				}()
				spin()
				if i%2 == 0 {
					return scripted.Before(cm.Event{Type: cm.Established})(id)
				}
				return scripted.Event(cm.Established, 0)(id)
			}
			p := scripted.NewProvider(scripted.Script{scripted.Connect: {racing}})
			conn, err := cm.NewManager(p).Dial(ctx, request(p))
			if err == nil {
				won++
				require.NotNil(t, conn)
				synctest.Wait()
				require.Zero(t, p.ID(0).Destroyed())
				require.Zero(t, p.Endpoints()[0].Released())
				require.Empty(t, p.ID(0).Called(scripted.Interrupt))
				finish(conn)
			} else {
				lost++
				require.Nil(t, conn)
				require.ErrorIs(t, err, context.Canceled)
			}
			requireClean(t, p)
			cancel()
		}
		t.Logf("%d handed over, %d cleaned up", won, lost)
		require.Greater(t, won, repetitions/100, "the race is not one")
		require.Greater(t, lost, repetitions/100, "the race is not one")
	})
}

// A dial is cancelled at any moment of its life, with every stage failing or
// succeeding at its own pace.
func TestCancelAtAnyMoment(t *testing.T) {
	const repetitions = 5000
	synctest.Test(t, func(t *testing.T) {
		outcomes := map[string]int{}
		for range repetitions {
			paced := func(ev cm.EventType, failure cm.Event) scripted.Step {
				return func(id *scripted.ID) error {
					spin()
					switch rand.IntN(20) {
					case 0:
						return syscall.ENETUNREACH
					case 1:
						return scripted.After(0, failure)(id)
					case 2:
						return scripted.Before(cm.Event{Type: cm.DeviceRemoval})(id)
					}
					return scripted.After(0, cm.Event{Type: ev})(id)
				}
			}
			p := scripted.NewProvider(scripted.Script{
				scripted.ResolveAddrInfo: {paced(cm.AddrInfoResolved, cm.Event{Type: cm.AddrInfoError, Status: status(syscall.ENETUNREACH)})},
				scripted.ResolveAddr:     {paced(cm.AddrResolved, cm.Event{Type: cm.AddrError, Status: status(syscall.ENETUNREACH)})},
				scripted.ResolveRoute:    {paced(cm.RouteResolved, cm.Event{Type: cm.RouteError, Status: status(syscall.ENETUNREACH)})},
				scripted.Connect:         {paced(cm.Established, cm.Event{Type: cm.Rejected, Status: 28})},
			})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				for range rand.IntN(8) {
					spin()
				}
				cancel()
			}()
			r := request(p)
			if rand.IntN(2) == 0 {
				r.Host, r.Names = "several", names("192.0.2.1", "192.0.2.2", "192.0.2.3")
			}
			conn, err := cm.NewManager(p).Dial(ctx, r)
			switch {
			case err == nil:
				outcomes["connected"]++
				finish(conn)
			case ctx.Err() != nil:
				outcomes["cancelled"]++
			default:
				outcomes["failed"]++
			}
			requireClean(t, p)
			cancel()
		}
		t.Log(outcomes)
		require.Len(t, outcomes, 3, "not every outcome came up: %v", outcomes)
	})
}

// A dial that is cancelled before the endpoint has said yes never becomes a
// connection, whoever of the two goroutines is the quicker.
func TestCancelWhileEstablished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 2000 {
			ctx, cancel := context.WithCancel(t.Context())
			p := scripted.NewProvider()
			r := request(p)
			r.NewEndpoint = func() cm.Endpoint {
				ep := p.NewEndpoint()
				ep.OnEstablished = func(cm.Event) error {
					cancel()
					return nil
				}
				return ep
			}
			_, err := cm.NewManager(p).Dial(ctx, r)
			requireCanceled(t, err, cm.StageConnect)
			requireClean(t, p)
		}
	})
}

// Listen is cancelled at any moment.
func TestListenRace(t *testing.T) {
	const repetitions = 4000
	synctest.Test(t, func(t *testing.T) {
		var won, lost int
		for i := range repetitions {
			ctx, cancel := context.WithCancel(t.Context())
			racing := func(*scripted.ID) error {
				if i%4 == 0 {
					cancel()
					return nil
				}
				go func() {
					spin()
					cancel()
				}()
				spin()
				return nil
			}
			p := scripted.NewProvider(scripted.Script{scripted.Listen: {racing}})
			l, err := cm.NewManager(p).Listen(ctx, listenRequest(p))
			if err == nil {
				won++
				synctest.Wait()
				require.Empty(t, p.ID(0).Called(scripted.Interrupt))
				require.NoError(t, l.Close())
			} else {
				lost++
				require.ErrorIs(t, err, context.Canceled)
			}
			requireClean(t, p)
			cancel()
		}
		t.Logf("%d listened, %d cleaned up", won, lost)
		require.Greater(t, won, repetitions/100, "the race is not one")
		require.Greater(t, lost, repetitions/100, "the race is not one")
	})
}
