package iwarp

import (
	"encoding/binary"
	"io"
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// requireAsFresh compares every field of two structures, those that somebody adds
// later too, but for those named.
func requireAsFresh[T any](t *testing.T, fresh, used *T, but ...string) {
	t.Helper()
	f, u := reflect.ValueOf(fresh).Elem(), reflect.ValueOf(used).Elem()
next:
	for i := range f.NumField() {
		name := f.Type().Field(i).Name
		for _, b := range but {
			if name == b {
				continue next
			}
		}
		open := func(v reflect.Value) any {
			return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem().Interface()
		}
		if !reflect.DeepEqual(open(f.Field(i)), open(u.Field(i))) {
			t.Errorf("%s of %T is not as it was", name, used)
		}
	}
}

// What a connection has used is as good as new for the next one, whatever its peer
// did.
func TestPooledIsAsFresh(t *testing.T) {
	t.Run("region", func(t *testing.T) {
		for _, op := range []opcode{opWrite, opSendInvalidate, opSendSolicitedInval} {
			nic := openNIC(t, Config{})
			p, e := rawInitiator(t, nic, enhancedRequest, verbs.QPAttr{})
			mr := e.mr.(*region)
			fresh, err := e.pd.RegisterMemory(testRegion, mr.access)
			require.NoError(t, err)
			e.postRecv(1, 5000, 10)
			for _, at := range []uint64{0, 70_000, testRegion - 1} {
				p.write(p.tagged(opWrite, true, mr.stag, mr.base+at, []byte("x")))
			}
			p.write(p.untagged(opSend, true, 1, 0, []byte("message")))
			e.want(1, verbs.WCSuccess, verbs.WCRecv)
			if op != opWrite {
				p.write(invalidate(op)(p, e))
			}
			p.conn.CloseWrite()
			e.awaitDisconnected()
			require.NoError(t, e.qp.Destroy())
			require.Equal(t, byte('x'), mr.mem[testRegion-1])
			mr.Erase()
			requireAsFresh(t, fresh.(*region), mr, "stag", "base")
			require.NoError(t, fresh.Deregister())
			require.NoError(t, e.cq.Destroy())
			require.NoError(t, e.mr.Deregister())
			require.NoError(t, e.id.Destroy())
			p.conn.Close()
		}
	})
	t.Run("rings", func(t *testing.T) {
		nic := openNIC(t, Config{})
		a, b := connectPair(t, nic, nic, verbs.QPAttr{SendDepth: 13, RecvDepth: 11})
		for i := range 30 {
			b.postRecv(uint64(i), 0, 4)
			a.post(a.request(verbs.OpSend, uint64(i), 0, 4))
			b.want(uint64(i), verbs.WCSuccess, verbs.WCRecv)
			a.want(uint64(i), verbs.WCSuccess, verbs.WCSend)
		}
		q, c := a.qp.(*queuePair), b.cq.(*completionQueue)
		sends, receives, completions := q.tx.ring, b.qp.(*queuePair).rq.ring, c.ring
		require.NotZero(t, sends[0])
		disconnectPair(a, b)
		require.Equal(t, make([]verbs.SendWR, len(sends)), sends)
		require.Equal(t, make([]verbs.RecvWR, len(receives)), receives)
		require.Equal(t, make([]verbs.WC, len(completions)), completions)
	})
	t.Run("batch", func(t *testing.T) {
		b := new(batch)
		for range 3 {
			b.reset()
			for b.room() {
				n := putTagged(b.header(), 100, true, opWrite, 1, 2)
				b.frame(n, payload{data: [2][]byte{make([]byte, 60), make([]byte, 40)}}, true)
				b.endRequest()
			}
			b.source, b.record = new(region), true
			b.advance(b.size - 1)
		}
		putBatch(b)
		requireAsFresh(t, new(batch), b)
	})
}

// What another connection left in a buffer is not read: a pooled buffer is full of
// good frames here, of which the peer has sent the first bytes only.
func TestPooledBufferIsNotRead(t *testing.T) {
	nic := openNIC(t, Config{})
	p, e := rawInitiator(t, nic, enhancedRequest, verbs.QPAttr{})
	for i := range 4 {
		e.postRecv(uint64(i), 0, 16)
	}
	var b []byte
	for msn := range uint32(4) {
		b = append(b, p.untagged(opSend, true, msn+1, 0, []byte("sixteen bytes ok"))...)
	}
	for range 64 {
		full := new(buffer)
		copy(full.b[:], b)
		buffers.Put(full)
	}
	p.write(b[:len(b)/4-1])
	p.conn.CloseWrite()
	require.ErrorIs(t, e.awaitDisconnected().Err, errTruncated)
	for i := range 4 {
		e.want(uint64(i), verbs.WCWRFlushErr, 0)
	}
	p.conn.Close()
	e.destroy()
}

// A Send that invalidates ends the connection of a dialer, too.
func TestInvalidateAtDialer(t *testing.T) {
	for _, op := range []opcode{opSendInvalidate, opSendSolicitedInval} {
		p, e := rawResponder(t, openNIC(t, Config{}))
		e.postRecv(1, 0, 16)
		p.write(invalidate(op)(p, e))
		require.ErrorIs(t, e.awaitDisconnected().Err, errInvalidate)
		for h, _ := p.next(); h.op != opTerminate; h, _ = p.next() {
		}
		p.conn.Close()
		e.destroy()
	}
}

// An mssWire claims an MSS.
type mssWire struct {
	scriptedWire
	mss int
}

func (w *mssWire) segmentSize() int { return w.mss }

// A peer that chooses an MSS which no real link has does not make our frames small.
func TestFramingOfTinyMSS(t *testing.T) {
	for _, c := range []struct {
		mss   int
		crc   bool
		apart bool
		limit int
	}{
		{1428, true, true, 1428}, {1024, true, true, 1024}, {0, true, true, maxFrame},
		{1023, true, false, maxFrame}, {88, true, false, maxFrame}, {88, false, false, maxFrame},
	} {
		nic := openNIC(t, Config{FrameMSS: true})
		f := nic.framing(&mssWire{mss: c.mss}, agreement{crc: c.crc})
		require.Equal(t, c.apart, f.apart, "%+v", c)
		require.LessOrEqual(t, f.tagged+taggedSize+crcSize, c.limit)
		require.Greater(t, f.tagged+taggedSize+crcSize, c.limit-8, "%+v", c)
	}
}

// Reads that come together are answered together.
func TestReadsAnsweredTogether(t *testing.T) {
	const reads = 32
	var p rawPeer
	var in []byte
	for i := range uint32(reads) {
		in = append(in, p.readRequest(i+1, readRequest{})...)
	}
	e := newEnd(t, openNIC(t, Config{}), nil, verbs.QPAttr{})
	w := &scriptedWire{input: in, closed: make(chan struct{})}
	q := e.qp.(*queuePair)
	require.NoError(t, q.start(w, agreement{ird: reads, ord: 1}, nil, cm.Event{Type: cm.Established}))
	e.next(cm.Established)
	e.awaitDisconnected()
	<-w.closed
	n := 0
	for b := w.output; len(b) > 0; n++ {
		h, v := parseHeader(b)
		require.Nil(t, v)
		require.Equal(t, opReadResponse, h.op)
		b = b[lengthSize+int(binary.BigEndian.Uint16(b))+trailer(h.ulpdu):]
	}
	require.Equal(t, reads, n)
	require.LessOrEqual(t, w.writes, 2)
	e.destroy()
}

// A sweep looks at what is due and leaves the rest where it is.
func TestSweepLooksAtWhatIsDue(t *testing.T) {
	nic := openNIC(t, Config{})
	nic.sweeper.soon = time.Hour
	nic.sweeper.late = 2 * time.Hour
	var all []*queuePair
	e := newEnd(t, nic, nil, verbs.QPAttr{})
	for range 1000 {
		q := &queuePair{nic: nic, cq: e.cq.(*completionQueue)}
		q.ended.Store(true)
		nic.sweeper.add(q)
		all = append(all, q)
	}
	s := &nic.sweeper
	due := map[*queuePair]time.Time{}
	for i, q := range all {
		switch {
		case i%100 == 7:
			s.next(q, time.Now().Add(-10*time.Hour), s.soon)
		case i%3 == 0:
			s.remove(q)
		}
	}
	for _, e := range s.entries {
		due[e.q] = e.due
	}
	s.sweep()
	changed := 0
	for i, e := range s.entries {
		require.Equal(t, i+1, e.q.swept)
		require.True(t, e.due.After(time.Now()))
		if !e.due.Equal(due[e.q]) {
			changed++
		}
		if i > 0 {
			require.False(t, e.due.Before(s.entries[(i-1)/2].due), "not a heap")
		}
	}
	require.Equal(t, 10, changed)
	for _, q := range all {
		s.remove(q)
		s.remove(q)
	}
	require.Empty(t, s.entries)
	require.Nil(t, s.timer)
	e.destroy()
}

// A connection that a goroutine waits for is swept seldom, and soon again when it
// has read.
func TestSweepLeavesWaiters(t *testing.T) {
	nic := openNIC(t, Config{})
	nic.sweeper.late = time.Hour
	p, e := rawInitiator(t, nic, enhancedRequest, verbs.QPAttr{})
	q := e.qp.(*queuePair)
	require.NoError(t, e.cq.Arm())
	waited := make(chan error, 1)
	go func() { waited <- e.cq.Wait() }()
	require.Eventually(t, q.cold.Load, patience, time.Millisecond)
	e.postRecv(1, 0, 4)
	p.write(p.untagged(opSend, true, 1, 0, []byte("here")))
	require.NoError(t, <-waited)
	require.False(t, q.cold.Load())
	p.conn.Close()
	e.awaitDisconnected()
	e.destroy()
}

// Connections whose peers ignore our end are closed early when there are too many,
// the oldest first.
func TestLingeringIsBounded(t *testing.T) {
	nic := openNIC(t, Config{CloseTimeout: time.Hour})
	nic.lingering.most = 3
	var peers []*rawPeer
	for range 8 {
		p, e := rawInitiator(t, nic, enhancedRequest, verbs.QPAttr{})
		p.write(p.sign())
		e.driveUntilHeard()
		e.destroy()
		peers = append(peers, p)
	}
	for i, p := range peers {
		p.conn.SetReadDeadline(time.Now().Add(patience))
		_, err := p.conn.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
		if i < len(peers)-3 { // closed: what we send is refused
			require.Eventually(t, func() bool {
				_, err := p.conn.Write([]byte("x"))
				return err != nil
			}, patience, time.Millisecond)
		}
	}
	nic.lingering.mu.Lock()
	require.Equal(t, 3, nic.lingering.n)
	nic.lingering.mu.Unlock()
	for _, p := range peers {
		p.conn.Close()
	}
	require.Eventually(t, func() bool {
		nic.lingering.mu.Lock()
		defer nic.lingering.mu.Unlock()
		return nic.lingering.n == 0 && nic.lingering.oldest == nil && nic.lingering.newest == nil
	}, patience, time.Millisecond)
}
