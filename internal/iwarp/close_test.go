package iwarp

import (
	"bytes"
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// What was posted before Disconnect arrives, however slow the peer, and the
// event tells that it has.
func TestDisconnectLosesNothing(t *testing.T) {
	nic := openNIC(t, Config{CloseTimeout: 10 * time.Second})
	for range 20 {
		a, b := connectPair(t, nic, nic, verbs.QPAttr{})
		fillPattern(a.mr.Bytes(), 1)
		b.postRecv(1, 0, 4)
		for range 8 {
			a.post(to(a.request(verbs.OpWrite, 1, 0, testRegion), b, 0))
		}
		a.post(a.request(verbs.OpSend, 2, 0, 4))
		require.NoError(t, a.id.Disconnect())
		require.NoError(t, a.id.Disconnect(), "a second time does nothing")
		time.Sleep(time.Millisecond)
		b.want(1, verbs.WCSuccess, verbs.WCRecv)
		require.True(t, bytes.Equal(a.mr.Bytes(), b.mr.Bytes()))
		require.Zero(t, b.awaitDisconnected().Status)
		require.Zero(t, a.awaitDisconnected().Status)
		for range 9 {
			require.Equal(t, verbs.WCSuccess, a.completion().Status)
		}
		a.destroy()
		b.destroy()
	}
}

// Everything that TCP has taken arrives, also when the queue pair is destroyed
// at once and the peer goes on sending.
func TestDestroyAfterCompletion(t *testing.T) {
	nic := openNIC(t, Config{})
	for range 20 {
		a, b := connectPair(t, nic, nic, verbs.QPAttr{})
		fillPattern(a.mr.Bytes()[:100_000], 1)
		want := bytes.Clone(a.mr.Bytes()[:100_000])
		b.postRecv(1, 500_000, 4)
		a.post(to(a.request(verbs.OpWrite, 1, 0, 100_000), b, 0), a.request(verbs.OpSend, 2, 0, 4))
		a.want(1, verbs.WCSuccess, verbs.WCWrite)
		a.want(2, verbs.WCSuccess, verbs.WCSend)
		for range 10 {
			b.post(to(b.request(verbs.OpWrite, 3, 600_000, 100), a, 500_000))
		}
		a.destroy()
		for range 10 {
			b.post(to(b.request(verbs.OpWrite, 3, 600_000, 100), a, 500_000))
		}
		for {
			if wc := b.completion(); wc.ID == 1 {
				require.Equal(t, verbs.WCSuccess, wc.Status)
				break
			}
		}
		require.Equal(t, want, b.mr.Bytes()[:100_000])
		require.Zero(t, b.awaitDisconnected().Status)
		b.destroy()
	}
}

// The end of a connection that nobody drives is noticed, by the sweeper.
func TestEndWithoutDriver(t *testing.T) {
	nic := openNIC(t, Config{})
	a, b := connectPair(t, nic, nic, verbs.QPAttr{})
	require.NoError(t, a.id.Disconnect())
	require.Zero(t, b.next(cm.Disconnected).Status)
	a.next(cm.Disconnected)
	a.destroy()
	b.destroy()
}

// A connection that has long been idle is looked at seldom, and again often once
// it has been driven.
func TestSweepPauses(t *testing.T) {
	nic := openNIC(t, Config{})
	nic.sweeper.late = 4 * nic.sweeper.soon
	a, b := connectPair(t, nic, nic, verbs.QPAttr{})
	q := b.qp.(*queuePair)
	require.Eventually(t, q.cold.Load, patience, time.Millisecond)
	b.drive(0)
	require.False(t, q.cold.Load())
	require.Eventually(t, q.cold.Load, patience, time.Millisecond)
	disconnectPair(a, b)
}

// A Read of the peer is answered though nobody drives.
func TestReadWithoutDriver(t *testing.T) {
	nic := openNIC(t, Config{})
	a, b := connectPair(t, nic, nic, verbs.QPAttr{})
	copy(b.mr.Bytes(), "here")
	a.post(to(a.request(verbs.OpRead, 1, 100, 4), b, 0))
	a.want(1, verbs.WCSuccess, verbs.WCRead)
	require.Equal(t, "here", string(a.mr.Bytes()[100:104]))
	disconnectPair(a, b)
}

// A peer that resets, that stops in the middle of a frame, or that closes, ends
// the connection, and all that is posted is flushed.
func TestPeerGoes(t *testing.T) {
	for _, c := range []struct {
		name  string
		leave func(p *rawPeer, e *side)
		check func(ev cm.Event)
	}{
		{"close", func(p *rawPeer, e *side) { p.conn.Close() }, func(ev cm.Event) {
			require.Zero(t, ev.Status)
		}},
		{"half-close", func(p *rawPeer, e *side) { p.conn.CloseWrite() }, func(ev cm.Event) {
			require.Zero(t, ev.Status)
		}},
		{"reset", func(p *rawPeer, e *side) { p.conn.SetLinger(0); p.conn.Close() }, func(ev cm.Event) {
			require.Equal(t, -int(syscall.ECONNRESET), ev.Status)
			require.ErrorIs(t, ev.Err, syscall.ECONNRESET)
		}},
		{"truncated header", func(p *rawPeer, e *side) {
			p.write(p.sign()[:7])
			p.conn.Close()
		}, func(ev cm.Event) {
			require.ErrorIs(t, ev.Err, errTruncated)
			require.Equal(t, -int(syscall.ECONNRESET), ev.Status)
		}},
		{"truncated payload", func(p *rawPeer, e *side) {
			p.write(p.tagged(opWrite, true, e.mr.RKey(), e.mr.Addr(), []byte("0123456789"))[:20])
			p.conn.Close()
		}, func(ev cm.Event) { require.ErrorIs(t, ev.Err, errTruncated) }},
		{"truncated trailer", func(p *rawPeer, e *side) {
			b := p.untagged(opSend, true, 1, 0, []byte("0123456789"))
			p.write(b[:len(b)-1])
			p.conn.Close()
		}, func(ev cm.Event) { require.ErrorIs(t, ev.Err, errTruncated) }},
		{"Terminate", func(p *rawPeer, e *side) {
			var h [maxTerminate]byte
			n := putTerminate(h[:], termination{1, 1, 1}, p.sign())
			p.write(p.frame(h[:n], nil))
		}, func(ev cm.Event) {
			var term *terminated
			require.True(t, errors.As(ev.Err, &term))
			require.Equal(t, termination{1, 1, 1}, term.termination)
			require.Equal(t, -int(syscall.ECONNRESET), ev.Status)
		}},
		{"Terminate of siw", func(p *rawPeer, e *side) {
			p.write(p.untagged(opTerminate, true, 1, 0, append([]byte{0x21, 0x03, 0x03, 0x00, 0, 32}, p.sign()[2:16]...)))
		}, func(ev cm.Event) {
			var term *terminated
			require.True(t, errors.As(ev.Err, &term))
			require.Equal(t, termination{1, 2, 3}, term.termination)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, e := rawInitiator(t, openNIC(t, Config{}), enhancedRequest, verbs.QPAttr{})
			p.write(p.sign())
			e.postRecv(1, 0, 10)
			e.postRecv(2, 0, 10)
			wr := e.request(verbs.OpRead, 3, 0, 10)
			wr.Flags = 0 // what fails completes, whatever it asked for
			e.driveUntilHeard()
			e.post(wr, e.request(verbs.OpSend, 4, 0, 10))
			for range 2 {
				p.next()
			}
			c.leave(p, e)
			ids := map[uint64]bool{}
			for range 4 {
				wc := e.completion()
				require.Equal(t, verbs.WCWRFlushErr, wc.Status)
				ids[wc.ID] = true
			}
			require.Len(t, ids, 4)
			c.check(e.awaitDisconnected())

			// What is posted later is flushed at once.
			e.postRecv(5, 0, 10)
			e.want(5, verbs.WCWRFlushErr, 0)
			e.post(e.request(verbs.OpSend, 6, 0, 10))
			e.want(6, verbs.WCWRFlushErr, 0)
			e.destroy()
			p.conn.SetReadDeadline(time.Now().Add(patience))
			if c.name == "half-close" {
				_, err := p.conn.Read(make([]byte, 1))
				require.Equal(t, io.EOF, err)
			}
			p.conn.Close()
		})
	}
}

// The Read that the peer ends the connection for is told apart.
func TestReadRefused(t *testing.T) {
	nic := openNIC(t, Config{})
	a, b := connectPair(t, nic, nic, verbs.QPAttr{})
	a.postRecv(1, 0, 10)
	wr := to(a.request(verbs.OpRead, 2, 0, 10), b, 0)
	wr.RKey ^= 1
	a.post(wr)
	require.ErrorContains(t, b.awaitDisconnected().Err, "an RDMA Read names no region")
	a.want(1, verbs.WCWRFlushErr, 0)
	a.want(2, verbs.WCRemAccessErr, 0)
	require.ErrorContains(t, a.awaitDisconnected().Err, "invalid STag")
	a.destroy()
	b.destroy()
}

// A peer's last words are heard, though it has reset the connection for what we
// had sent.
func TestLastWords(t *testing.T) {
	nic := openNIC(t, Config{})
	for range 20 {
		p, e := rawInitiator(t, nic, enhancedRequest, verbs.QPAttr{})
		p.write(p.sign())
		e.driveUntilHeard()
		e.postRecv(1, 0, 10)
		e.post(e.request(verbs.OpWrite, 2, 0, 1000)) // is never read: the close below resets
		e.want(2, verbs.WCSuccess, verbs.WCWrite)
		p.write(p.untagged(opSend, true, 1, 0, []byte("last words")))
		p.conn.Close()
		for range 3 {
			e.post(e.request(verbs.OpWrite, 3, 0, 1000))
		}
		for {
			if wc := e.completion(); wc.ID == 1 {
				require.Equal(t, verbs.WCSuccess, wc.Status)
				break
			}
		}
		require.Equal(t, "last words", string(e.mr.Bytes()[:10]))
		e.awaitDisconnected()
		e.destroy()
	}
}

// A peer that takes nothing cannot hold a connection that has ended.
func TestCloseIsBounded(t *testing.T) {
	nic := openNIC(t, Config{CloseTimeout: 100 * time.Millisecond})
	p, e := rawInitiator(t, nic, enhancedRequest, verbs.QPAttr{})
	p.write(p.sign())
	e.driveUntilHeard()
	for range 63 {
		e.post(e.request(verbs.OpWrite, 1, 0, testRegion))
	}
	require.NotZero(t, e.qp.(*queuePair).backlog())
	began := time.Now()
	require.NoError(t, e.id.Disconnect())
	ev := e.awaitDisconnected()
	require.Less(t, time.Since(began), 5*time.Second)
	require.Equal(t, -int(syscall.ETIMEDOUT), ev.Status)
	require.ErrorIs(t, ev.Err, errUnconfirmed)
	n := 0
	for range 63 {
		if e.completion().Status == verbs.WCWRFlushErr {
			n++
		}
	}
	require.NotZero(t, n)
	e.destroy()
	p.conn.Close()
}

// Both ends at once.
func TestDisconnectBothWays(t *testing.T) {
	nic := openNIC(t, Config{})
	for range 50 {
		a, b := connectPair(t, nic, nic, verbs.QPAttr{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = a.id.Disconnect()
		}()
		require.NoError(t, b.id.Disconnect())
		<-done
		require.Zero(t, a.awaitDisconnected().Status)
		require.Zero(t, b.awaitDisconnected().Status)
		a.destroy()
		b.destroy()
	}
}

// Destroying everything in the middle of traffic touches nothing afterwards.
func TestDestroyUnderTraffic(t *testing.T) {
	nic := openNIC(t, Config{})
	for range 20 {
		a, b := connectPair(t, nic, nic, verbs.QPAttr{SendDepth: 100})
		for range 50 {
			a.post(to(a.request(verbs.OpWrite, 1, 0, testRegion/2), b, testRegion/2))
			b.post(to(b.request(verbs.OpWrite, 1, 0, testRegion/2), a, testRegion/2))
		}
		b.drive(0)
		require.NoError(t, b.qp.Destroy())
		mem := bytes.Clone(b.mr.Bytes())
		a.drive(0)
		a.drive(0)
		require.True(t, bytes.Equal(mem, b.mr.Bytes()))
		require.NoError(t, b.cq.Destroy())
		require.NoError(t, b.mr.Deregister())
		require.NoError(t, b.pd.Dealloc())
		require.NoError(t, b.id.Destroy())
		a.destroy()
	}
}

// Many connections, one after the other and at once, leave nothing.
func TestManyConnections(t *testing.T) {
	nic := openNIC(t, Config{})
	lid, levents := listen(t, nic, "127.0.0.1:0")
	var pairs [][2]*side
	for i := range 300 {
		a := newEnd(t, nic, nil, verbs.QPAttr{SendDepth: 8, RecvDepth: 8})
		resolve(t, a.id, a.events, lid.LocalAddr())
		require.NoError(t, a.id.Connect(onePair))
		b := newEnd(t, nic, next(t, levents, cm.ConnectRequest).Request, verbs.QPAttr{SendDepth: 8, RecvDepth: 8})
		require.NoError(t, b.id.Accept(onePair))
		b.next(cm.Established)
		a.next(cm.Established)
		pairs = append(pairs, [2]*side{a, b})
		if i%10 == 9 {
			b.postRecv(1, 0, 4)
			a.post(a.request(verbs.OpSend, 1, 0, 4))
			b.want(1, verbs.WCSuccess, verbs.WCRecv)
		}
		if len(pairs) == 50 {
			for _, p := range pairs {
				disconnectPair(p[0], p[1])
			}
			pairs = nil
		}
	}
	require.NoError(t, lid.Destroy())
	require.Eventually(t, func() bool {
		nic.sweeper.mu.Lock()
		defer nic.sweeper.mu.Unlock()
		return len(nic.sweeper.entries) == 0 && nic.sweeper.timer == nil
	}, patience, time.Millisecond)
	nic.regions.mu.Lock()
	defer nic.regions.mu.Unlock()
	require.Empty(t, nic.regions.of)
}

// A peer that sends without a pause delays neither Wake nor the end.
func TestFlood(t *testing.T) {
	nic := openNIC(t, Config{CloseTimeout: 200 * time.Millisecond})
	p, e := rawInitiator(t, nic, enhancedRequest, verbs.QPAttr{})
	stop := make(chan struct{})
	flooding := make(chan struct{})
	flood := bytes.Repeat(p.sign(), 5000)
	go func() {
		defer close(flooding)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := p.conn.Write(flood); err != nil {
				return
			}
		}
	}()
	for range 20 {
		left := make(chan error, 1)
		go func() { left <- e.cq.Wait() }()
		time.Sleep(5 * time.Millisecond)
		began := time.Now()
		e.cq.Wake()
		require.NoError(t, <-left)
		require.Less(t, time.Since(began), 5*time.Second)
	}
	left := make(chan error, 1)
	go func() { left <- e.cq.Wait() }()
	time.Sleep(5 * time.Millisecond)
	require.NoError(t, e.id.Disconnect())
	e.next(cm.Disconnected)
	e.cq.Wake()
	require.NoError(t, <-left)
	e.destroy()
	close(stop)
	<-flooding
	p.conn.Close()
}
