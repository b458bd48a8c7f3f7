package cm_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/cm/scripted"
)

func TestCloseWhileAccepting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		l := listen(t, p, listenRequest(p))
		done := make(chan error)
		for range 3 {
			go func() {
				_, err := l.Accept()
				done <- err
			}()
		}
		time.Sleep(time.Second)
		began := time.Now()
		require.NoError(t, l.Close())
		for range 3 {
			require.Equal(t, net.ErrClosed, <-done)
		}
		require.Zero(t, time.Since(began))
		require.Equal(t, net.ErrClosed, l.Close())
		_, err := l.Accept()
		require.Equal(t, net.ErrClosed, err)
		requireClean(t, p)
	})
}

// Close ends peers in every state, and tells nobody of them.
func TestCloseInEveryState(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(release <-chan struct{}) // what OnPrepare does
		script  func(release <-chan struct{}) scripted.Script
		backlog int // 1 for a peer that waits behind another
	}{
		"waiting":     {backlog: 1},
		"preparing":   {prepare: func(release <-chan struct{}) { <-release }},
		"accepting":   {script: func(<-chan struct{}) scripted.Script { return silentPeer }},
		"established": {},
		"accept blocks": {script: func(<-chan struct{}) scripted.Script {
			return scripted.Script{scripted.Accept: {scripted.Block(time.Hour, scripted.Silent())}}
		}},
		"accept is stuck": {script: func(release <-chan struct{}) scripted.Script {
			return scripted.Script{scripted.Accept: {scripted.Stuck(release, scripted.Event(cm.Established, 0))}}
		}},
		"destroy is slow": {script: func(release <-chan struct{}) scripted.Script {
			return scripted.Script{scripted.Destroy: {scripted.Stuck(release, scripted.Silent())}}
		}},
		"being refused": {script: func(<-chan struct{}) scripted.Script {
			return scripted.Script{scripted.CreateQP: {scripted.Fail(syscall.EINVAL)}, scripted.Reject: {scripted.Block(time.Hour, scripted.Silent())}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				p := scripted.NewProvider()
				r := listenRequest(p)
				r.Backlog = c.backlog
				r.Refused = func(cm.Addr, error) { t.Error("Refused is called") }
				r.NewEndpoint = func() cm.Endpoint {
					ep := p.NewEndpoint()
					ep.OnPrepare = func(cm.ID, cm.Event) error {
						if c.prepare != nil {
							c.prepare(release)
						}
						return nil
					}
					return ep
				}
				l := listen(t, p, r)
				var script scripted.Script
				if c.script != nil {
					script = c.script(release)
				}
				for range 2 {
					p.ID(0).Request(cm.ConnParam{}, script)
				}
				synctest.Wait()
				began := time.Now()
				require.NoError(t, l.Close())
				require.Zero(t, time.Since(began), "Close waits for the port alone")
				require.Equal(t, 1, p.ID(0).Destroyed(), "the port is free")
				_, err := l.Accept()
				require.Equal(t, net.ErrClosed, err)
				close(release)
				requireClean(t, p)
			})
		})
	}
}

// Requests that arrive while the listener closes are destroyed, too: those that
// wait in the inbox, and those that the identifier has not handed out.
func TestCloseWithRequestsOnTheirWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider(scripted.Script{scripted.Destroy: {func(id *scripted.ID) error {
			for range 3 {
				id.Request(cm.ConnParam{}, nil)
			}
			return nil
		}}})
		l := listen(t, p, listenRequest(p))
		require.NoError(t, l.Close())
		require.Len(t, p.IDs(), 4)
		requireClean(t, p)
	})
}

// Peers of every kind come while the listener is closed at any moment and while
// Accept takes what it can: nothing is lost, nothing is left.
func TestCloseRace(t *testing.T) {
	const repetitions = 1500
	synctest.Test(t, func(t *testing.T) {
		outcomes := map[string]int{}
		for range repetitions {
			p := scripted.NewProvider()
			r := listenRequest(p)
			r.Backlog = 1 + rand.IntN(3)
			r.NewEndpoint = choosy(p)
			l := listen(t, p, r)
			id := p.ID(0)

			peers := 1 + rand.IntN(6)
			go func() {
				for range peers {
					spin()
					id.Request(saying([]string{"good", "good", "good", "bad", "big"}[rand.IntN(5)]), randomPeer())
				}
			}()
			accepted := make(chan *cm.Connection, 2*peers)
			for range 2 {
				go func() {
					for {
						conn, err := l.Accept()
						switch {
						case err == nil:
							accepted <- conn
							continue
						case errors.Is(err, net.ErrClosed):
							accepted <- nil
							return
						case errors.Is(err, syscall.ENOMEM) && temporary(err):
							continue
						}
						panic(fmt.Sprintf("Accept: %v", err))
					}
				}()
			}
			for range rand.IntN(10) {
				spin()
			}
			require.NoError(t, l.Close())
			for closed := 0; closed < 2; {
				conn := <-accepted
				if conn == nil {
					closed++
					continue
				}
				outcomes["accepted"]++
				finish(conn)
			}
			synctest.Wait()
			for _, id := range p.IDs()[1:] {
				switch {
				case len(id.Called(scripted.Reject)) > 0:
					outcomes["rejected"]++
				case len(id.Called(scripted.Accept)) > 0:
					outcomes["begun"]++
				case len(id.Called(scripted.Interrupt)) > 0:
					outcomes["interrupted"]++
				default:
					outcomes["untouched"]++
				}
			}
			requireClean(t, p)
		}
		t.Log(outcomes)
		require.Len(t, outcomes, 5, "not every outcome came up: %v", outcomes)
	})
}

// randomPeer is a peer that is quick, slow, silent or gone.
func randomPeer() scripted.Script {
	return scripted.Script{scripted.Accept: {func(id *scripted.ID) error {
		spin()
		switch rand.IntN(8) {
		case 0:
			return nil
		case 1:
			return syscall.ECONNRESET
		case 2:
			return scripted.Event(cm.Disconnected, 0)(id)
		case 3:
			return scripted.Both(scripted.Before(cm.Event{Type: cm.Established}), scripted.Before(cm.Event{Type: cm.Disconnected}))(id)
		}
		return scripted.Event(cm.Established, 0)(id)
	}}}
}
