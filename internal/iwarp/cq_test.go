package iwarp

import (
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// Wake ends the Wait under way, and if there is none the next, and no other.
func TestWake(t *testing.T) {
	nic := openNIC(t, Config{})
	connected, peer := connectPair(t, nic, nic, verbs.QPAttr{})
	idle, err := nic.NewCQ(4)
	require.NoError(t, err)
	for name, cq := range map[string]verbs.CQ{"connected": connected.cq, "idle": idle} {
		t.Run(name, func(t *testing.T) {
			cq.Wake()
			require.NoError(t, cq.Wait())

			left := make(chan error, 1)
			go func() { left <- cq.Wait() }()
			select {
			case <-left:
				t.Fatal("Wait has returned for no reason")
			case <-time.After(20 * time.Millisecond):
			}
			cq.Wake()
			require.NoError(t, <-left)

			for range 1000 {
				go func() { left <- cq.Wait() }()
				cq.Wake()
				require.NoError(t, <-left)
			}
		})
	}
	exercise(connected, peer)
	disconnectPair(connected, peer)
	require.NoError(t, idle.Destroy())
	require.ErrorIs(t, idle.Wait(), net.ErrClosed)
}

// A completion that one goroutine makes wakes another that waits, if it armed.
func TestEventFromElsewhere(t *testing.T) {
	nic := openNIC(t, Config{})
	a, b := connectPair(t, nic, nic, verbs.QPAttr{})
	b.postRecv(1, 0, 10)
	require.NoError(t, a.cq.Arm())
	left := make(chan error, 1)
	go func() { left <- a.cq.Wait() }()
	time.Sleep(10 * time.Millisecond)
	a.post(a.request(verbs.OpSend, 1, 0, 10))
	require.NoError(t, <-left)
	a.want(1, verbs.WCSuccess, verbs.WCSend)
	disconnectPair(a, b)
}

// A Wait that began without a connection goes on with one.
func TestWaitAcrossConnect(t *testing.T) {
	nic := openNIC(t, Config{})
	left := make(chan error, 1)
	a, b := connectPair(t, nic, nic, verbs.QPAttr{}, func(a, b *side) {
		b.postRecv(1, 0, 10)
		require.NoError(t, b.cq.Arm())
		go func() { left <- b.cq.Wait() }()
		time.Sleep(10 * time.Millisecond)
	})
	a.post(a.request(verbs.OpSend, 1, 0, 10))
	require.NoError(t, <-left)
	b.want(1, verbs.WCSuccess, verbs.WCRecv)
	disconnectPair(a, b)
}

// The end of a connection ends a Wait, by the receives that are flushed.
func TestWaitAcrossEnd(t *testing.T) {
	nic := openNIC(t, Config{})
	for _, end := range []func(a *side){
		func(a *side) { require.NoError(t, a.id.Disconnect()) },
		func(a *side) { require.NoError(t, a.qp.SetError()) },
		func(a *side) { require.NoError(t, a.qp.Destroy()) },
	} {
		a, b := connectPair(t, nic, nic, verbs.QPAttr{})
		b.postRecv(1, 0, 10)
		require.NoError(t, b.cq.Arm())
		left := make(chan error, 1)
		go func() { left <- b.cq.Wait() }()
		time.Sleep(10 * time.Millisecond)
		end(a)
		require.NoError(t, <-left)
		b.want(1, verbs.WCWRFlushErr, 0)
		b.awaitDisconnected()
		if !a.qp.(*queuePair).destroyed.Load() {
			require.NoError(t, a.qp.Destroy())
		}
		require.NoError(t, a.cq.Destroy())
		require.NoError(t, a.id.Destroy())
		b.destroy()
	}
}

// Several queue pairs may share a completion queue.
func TestSharedQueue(t *testing.T) {
	nic := openNIC(t, Config{})
	lid, levents := listen(t, nic, "127.0.0.1:0")
	cq, err := nic.NewCQ(256)
	require.NoError(t, err)
	const pairs = 5
	var dialers, acceptors []*side
	for range pairs {
		a := newEnd(t, nic, nil, verbs.QPAttr{})
		resolve(t, a.id, a.events, lid.LocalAddr())
		require.NoError(t, a.id.Connect(onePair))
		req := next(t, levents, cm.ConnectRequest)
		b := newEnd(t, nic, req.Request, verbs.QPAttr{})
		require.NoError(t, b.qp.Destroy())
		require.NoError(t, b.cq.Destroy())
		b.cq = cq
		id := b.id.(*identifier)
		id.qp = nil
		b.qp, err = id.CreateQP(b.pd, cq, verbs.QPAttr{SendDepth: 16, RecvDepth: 16})
		require.NoError(t, err)
		b.postRecv(uint64(len(acceptors)), 0, 10)
		require.NoError(t, b.id.Accept(onePair))
		b.next(cm.Established)
		a.next(cm.Established)
		dialers, acceptors = append(dialers, a), append(acceptors, b)
	}
	require.ErrorIs(t, cq.Destroy(), syscall.EBUSY)

	for i, a := range dialers {
		require.NoError(t, cq.Arm())
		left := make(chan error, 1)
		go func() { left <- cq.Wait() }()
		time.Sleep(5 * time.Millisecond)
		a.post(a.request(verbs.OpSend, 1, 0, 10))
		require.NoError(t, <-left)
		acceptors[0].want(uint64(i), verbs.WCSuccess, verbs.WCRecv)
	}
	cq.Wake()
	require.NoError(t, cq.Wait())
	for i := range dialers {
		disconnectPair2(dialers[i], acceptors[i])
	}
	require.NoError(t, cq.Destroy())
	require.NoError(t, lid.Destroy())
}

// disconnectPair2 ends a connection whose acceptor shares its queue.
func disconnectPair2(a, b *side) {
	require.NoError(a.t, a.id.Disconnect())
	b.awaitDisconnected()
	a.awaitDisconnected()
	a.destroy()
	require.NoError(b.t, b.qp.Destroy())
	require.NoError(b.t, b.id.Destroy())
}

// A queue that is too small fails, and says so.
func TestOverflow(t *testing.T) {
	nic := openNIC(t, Config{})
	a, b := connectPair(t, nic, nic, verbs.QPAttr{})
	for range 3 {
		for i := range 64 {
			b.postRecv(uint64(i), 0, 10)
			a.post(a.request(verbs.OpSend, uint64(i), 0, 10))
		}
		for range 64 {
			b.completion()
		}
	}
	var wc [256]verbs.WC
	n, err := a.cq.Poll(wc[:])
	require.NoError(t, err)
	require.Equal(t, 128, n)
	_, err = a.cq.Poll(wc[:])
	require.ErrorIs(t, err, errOverflow)
	require.ErrorIs(t, a.cq.Wait(), errOverflow)
	a.destroy()
	b.awaitDisconnected()
	b.destroy()
}

// Wake, Wait, PostSend and the peer's traffic at once.
func TestWaitStorm(t *testing.T) {
	nic := openNIC(t, Config{})
	a, b := connectPair(t, nic, nic, verbs.QPAttr{})
	for i := range 32 {
		b.postRecv(uint64(i), 0, 10)
	}
	const messages = 3000
	credits := make(chan struct{}, 32)
	for range cap(credits) {
		credits <- struct{}{}
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				a.cq.Wake()
				b.cq.Wake()
				time.Sleep(10 * time.Microsecond)
			}
		}
	})
	wg.Go(func() {
		for received, written := 0, 0; received < messages || written < messages; {
			if wc := b.completion(); wc.Opcode == verbs.WCWrite {
				written++
				continue
			}
			received++
			b.postRecv(0, 0, 10)
			credits <- struct{}{}
			b.post(b.request(verbs.OpWrite, 7, 0, 0))
		}
	})
	for range messages {
		<-credits
		a.post(a.request(verbs.OpSend, 1, 0, 10))
		a.want(1, verbs.WCSuccess, verbs.WCSend)
	}
	close(stop)
	wg.Wait()
	disconnectPair(a, b)
}
