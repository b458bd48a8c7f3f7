package cm_test

import (
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/cm/scripted"
)

// alive is how many endpoints hold resources.
func alive(p *scripted.Provider) int {
	n := 0
	for _, ep := range p.Endpoints() {
		if ep.Released() == 0 {
			n++
		}
	}
	return n
}

// While a listener is full of peers that do not finish, one that does is let in
// when the first of them has had its grace.
func TestSlowPeersGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		r := listenRequest(p)
		r.Backlog = 3
		var refused refusals
		r.Refused = refused.hook
		l := listen(t, p, r)
		began := time.Now()
		slow := make([]*scripted.ID, 3)
		for i := range slow {
			slow[i] = p.ID(0).Request(cm.ConnParam{}, silentPeer)
			time.Sleep(100 * time.Millisecond)
		}
		good := p.ID(0).Request(cm.ConnParam{}, nil)
		conn, err := l.Accept()
		require.NoError(t, err)
		require.Same(t, good, conn.ID)
		require.Equal(t, 2*time.Second, time.Since(began), "a fifth of the 10 s")
		finish(conn)
		synctest.Wait()
		require.Equal(t, []int{1, 0, 0}, []int{slow[0].Destroyed(), slow[1].Destroyed(), slow[2].Destroyed()}, "one for one")
		require.Len(t, refused.all(), 1)
		require.ErrorContains(t, refused.all()[0], "with others waiting")

		// With nobody waiting the others have their full time.
		time.Sleep(8*time.Second + 150*time.Millisecond)
		synctest.Wait()
		require.Equal(t, []int{1, 0}, []int{slow[1].Destroyed(), slow[2].Destroyed()})
		require.NoError(t, l.Close())
		requireClean(t, p)
	})
}

// A peer that is slow keeps its place while there are free ones, however many
// come meanwhile.
func TestSlowPeerStaysWhileThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		r := listenRequest(p)
		r.Backlog = 3
		var refused refusals
		r.Refused = refused.hook
		l := listen(t, p, r)
		slow := p.ID(0).Request(cm.ConnParam{}, silentPeer)
		time.Sleep(3 * time.Second) // past its grace
		for range 50 {
			p.ID(0).Request(cm.ConnParam{}, nil)
			conn, err := l.Accept()
			require.NoError(t, err)
			finish(conn)
		}
		require.Empty(t, refused.all())
		require.Zero(t, slow.Destroyed())
		require.NoError(t, l.Close())
		requireClean(t, p)
	})
}

// One that waits takes one place, also when there are several to be had.
func TestOneGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		r := listenRequest(p)
		r.Backlog = 8
		l := listen(t, p, r)
		for range 8 {
			p.ID(0).Request(cm.ConnParam{}, silentPeer)
		}
		time.Sleep(5 * time.Second)
		p.ID(0).Request(cm.ConnParam{}, silentPeer)
		synctest.Wait()
		require.Equal(t, 8, alive(p))
		require.Len(t, p.Endpoints(), 9)
		require.NoError(t, l.Close())
		requireClean(t, p)
	})
}

// Established connections keep their slots, and the others wait for Accept, in
// order, for as long as a handshake may take.
func TestBacklogOfEstablished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		r := listenRequest(p)
		r.Backlog = 2
		var refused refusals
		r.Refused = refused.hook
		l := listen(t, p, r)
		var ids []*scripted.ID
		for range 5 {
			ids = append(ids, p.ID(0).Request(cm.ConnParam{}, nil))
			synctest.Wait()
		}
		time.Sleep(9 * time.Second)
		require.Equal(t, 2, alive(p))
		for i := range 3 { // the second Accept lets the fourth in
			conn, err := l.Accept()
			require.NoError(t, err)
			require.Same(t, ids[i], conn.ID)
			synctest.Wait()
			require.LessOrEqual(t, alive(p), 3)
			finish(conn)
		}
		synctest.Wait()
		require.Len(t, p.Endpoints(), 5)

		late := p.ID(0).Request(cm.ConnParam{}, nil)
		time.Sleep(10*time.Second - time.Millisecond)
		synctest.Wait()
		require.Zero(t, late.Destroyed())
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Equal(t, 1, late.Destroyed())
		require.Len(t, late.Called(scripted.Reject), 1)
		require.Len(t, refused.all(), 1)
		require.ErrorContains(t, refused.all()[0], "backlog is full")
		require.Len(t, p.Endpoints(), 5, "it never cost more than its identifier")
		require.NoError(t, l.Close())
		requireClean(t, p)
	})
}

// A peer that gives up while it waits is forgotten at once.
func TestWaitingPeerGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		r := listenRequest(p)
		r.Backlog = 1
		var refused refusals
		r.Refused = refused.hook
		l := listen(t, p, r)
		p.ID(0).Request(cm.ConnParam{}, nil)
		synctest.Wait()
		for _, ev := range []cm.Event{{Type: cm.Disconnected}, {Type: cm.Unreachable, Status: status(syscall.ETIMEDOUT)}, {Type: cm.DeviceRemoval}} {
			waiting := p.ID(0).Request(cm.ConnParam{}, nil)
			waiting.Deliver(cm.Event{Type: cm.AddrChange})
			synctest.Wait()
			require.Zero(t, waiting.Destroyed())
			waiting.Deliver(ev)
			synctest.Wait()
			require.Equal(t, 1, waiting.Destroyed())
		}
		require.Len(t, refused.all(), 3)
		require.Len(t, p.Endpoints(), 1)
		require.NoError(t, l.Close())
		requireClean(t, p)
	})
}

// A flood costs what the bounds say, and what comes beyond them is refused at
// once, even while refusing is slow.
func TestFlood(t *testing.T) {
	const backlog, waiting, refusing = 8, 1024, 16
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		r := listenRequest(p)
		r.Backlog = backlog
		l := listen(t, p, r)
		var atOnce, most atomic.Int32
		slowReject := scripted.Script{
			scripted.Accept: {scripted.Silent()},
			scripted.Reject: {func(id *scripted.ID) error {
				now := atOnce.Add(1)
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				defer atOnce.Add(-1)
				return scripted.Block(10*time.Millisecond, scripted.Silent())(id)
			}},
		}
		var ids []*scripted.ID
		flood := func(n int) {
			for range n {
				ids = append(ids, p.ID(0).Request(cm.ConnParam{}, slowReject))
			}
			synctest.Wait()
		}
		count := func(call string) (n int) {
			for _, id := range ids {
				n += len(id.Called(call))
			}
			return n
		}
		flood(backlog + waiting)
		require.Equal(t, backlog, alive(p))
		require.Zero(t, count(scripted.Reject))

		flood(500)
		require.EqualValues(t, refusing+1, most.Load(), "as many at once as that")
		time.Sleep(time.Second)
		synctest.Wait()
		require.EqualValues(t, refusing+1, most.Load(), "never more")
		require.Equal(t, 500, count(scripted.Destroy))
		require.Equal(t, backlog, alive(p))

		// Whoever waits takes a place every grace; after its time it is gone.
		time.Sleep(8 * time.Second)
		synctest.Wait()
		require.LessOrEqual(t, alive(p), backlog)
		require.Equal(t, 5*backlog, len(p.Endpoints()), "begun at 0, 2, 4, 6 and 8 s")
		time.Sleep(12 * time.Second)
		synctest.Wait()
		require.Zero(t, alive(p), "nothing of it is left")
		require.Equal(t, len(ids), count(scripted.Destroy))

		p.ID(0).Request(cm.ConnParam{}, nil)
		conn, err := l.Accept()
		require.NoError(t, err)
		finish(conn)
		require.NoError(t, l.Close())
		requireClean(t, p)
	})
}

// Under a flood of peers that never finish, those that do still get in.
func TestGoodPeersInAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		r := listenRequest(p)
		r.Backlog = 16
		l := listen(t, p, r)
		stop := time.Now().Add(20 * time.Second)
		go func() {
			for time.Now().Before(stop) {
				p.ID(0).Request(cm.ConnParam{}, silentPeer)
				time.Sleep(200 * time.Millisecond) // 5 a second, a slot lasts for 2 s at least
			}
		}()
		accepted := 0
		go func() {
			for time.Now().Before(stop) {
				p.ID(0).Request(saying("good"), nil)
				time.Sleep(time.Second)
			}
		}()
		require.NoError(t, l.SetDeadline(stop))
		var worst time.Duration
		for {
			conn, err := l.Accept()
			if err != nil {
				break
			}
			accepted++
			calls := conn.ID.(*scripted.ID).Calls()
			worst = max(worst, time.Since(calls[0].At))
			finish(conn)
		}
		require.Equal(t, 20, accepted)
		require.LessOrEqual(t, worst, 2*time.Second)
		require.NoError(t, l.Close())
		requireClean(t, p)
	})
}
