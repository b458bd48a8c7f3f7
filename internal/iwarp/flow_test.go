package iwarp

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// Two peers that send far more than the sockets hold, neither of which reads
// before it has posted all of it, cannot block each other: posting never waits.
func TestFullDuplex(t *testing.T) {
	for _, cfg := range []Config{{}, {CRC: true}, {FrameSize: 1000}} {
		nic := openNIC(t, cfg)
		const messages, size = 32, 1 << 19
		attr := verbs.QPAttr{SendDepth: 2 * messages, RecvDepth: messages}
		a, b := connectPair(t, nic, nic, attr)
		fillPattern(a.mr.Bytes(), 1)
		fillPattern(b.mr.Bytes(), 2)
		sources := [][]byte{bytes.Clone(a.mr.Bytes()[:size]), bytes.Clone(b.mr.Bytes()[:size])}
		for _, e := range []*side{a, b} {
			for i := range messages {
				e.postRecv(uint64(i), testRegion-4, 4)
			}
		}
		for i := range messages {
			for _, d := range [][2]*side{{a, b}, {b, a}} {
				d[0].post(
					to(d[0].request(verbs.OpWrite, uint64(2*i), 0, size), d[1], size),
					d[0].request(verbs.OpSend, uint64(2*i+1), 0, 4))
			}
		}
		var wg sync.WaitGroup
		for k, e := range []*side{a, b} {
			wg.Go(func() {
				sent, received := 0, 0
				for sent < 2*messages || received < messages {
					wc := e.completion()
					if wc.Status != verbs.WCSuccess {
						t.Error(wc.Status)
						return
					}
					if wc.Opcode == verbs.WCRecv {
						received++
					} else {
						if wc.ID != uint64(sent) {
							t.Errorf("completion %d, and not %d", wc.ID, sent)
						}
						sent++
					}
				}
				// The last four bytes are those of the announcements.
				got, want := e.mr.Bytes()[size:2*size-4], sources[1-k][:size-4]
				if !bytes.Equal(got, want) {
					t.Error("the data is not what was sent")
				}
			})
		}
		wg.Wait()
		disconnectPair(a, b)
	}
}

// What is queued is sent without anybody polling, as soon as the peer reads.
func TestSendsWithoutDriver(t *testing.T) {
	nic := openNIC(t, Config{})
	nic.sweeper.soon = time.Hour
	a, b := connectPair(t, nic, nic, verbs.QPAttr{SendDepth: 100})
	b.postRecv(1, 0, 4)
	for i := range 63 {
		a.post(to(a.request(verbs.OpWrite, uint64(i), 0, testRegion), b, 0))
	}
	a.post(a.request(verbs.OpSend, 63, 0, 4))
	require.NotZero(t, a.qp.(*queuePair).backlog(), "nothing is queued: the test is of no use")
	b.want(1, verbs.WCSuccess, verbs.WCRecv)
	for i := range 64 {
		require.Equal(t, uint64(i), a.completion().ID)
	}
	disconnectPair(a, b)
}

// backlog is how many requests have not been sent.
func (q *queuePair) backlog() int {
	q.tx.mu.Lock()
	defer q.tx.mu.Unlock()
	return int(q.tx.tail - q.tx.sent)
}

// The memory of an inline request is free when PostSend has returned, also if
// the request has to wait.
func TestInline(t *testing.T) {
	for _, cfg := range []Config{{}, {FrameSize: 256}} {
		nic := openNIC(t, cfg)
		nic.sweeper.soon = time.Hour
		a, b := connectPair(t, nic, nic, verbs.QPAttr{SendDepth: 256, RecvDepth: 256, MaxInline: 1000})
		require.Equal(t, maxInline, a.qp.MaxInline())
		wr := a.request(verbs.OpSend, 1, 0, maxInline+1)
		wr.Flags |= verbs.FlagInline
		_, err := a.qp.PostSend([]verbs.SendWR{wr})
		require.ErrorIs(t, err, syscall.EINVAL)

		const messages = 100
		for i := range messages {
			b.postRecv(uint64(i), i*maxInline, maxInline)
		}
		for range 20 {
			a.post(to(a.request(verbs.OpWrite, 0, 0, testRegion), b, 0))
		}
		require.NotZero(t, a.qp.(*queuePair).backlog(), "nothing is queued: the test is of no use")
		for i := range messages {
			b := a.mr.Bytes()
			binary.BigEndian.PutUint32(b, uint32(i))
			b[100], b[maxInline-1] = byte(i), byte(i)
			wr := a.request(verbs.OpSend, 1, 0, 100)
			wr.NumSGE = 2
			wr.SGE[1] = a.sge(100, maxInline-100)
			wr.Flags |= verbs.FlagInline
			a.post(wr)
			clear(b[:maxInline])
		}
		for i := range messages {
			b.want(uint64(i), verbs.WCSuccess, verbs.WCRecv)
			got := b.mr.Bytes()[i*maxInline:][:maxInline]
			require.Equal(t, uint32(i), binary.BigEndian.Uint32(got))
			require.Equal(t, byte(i), got[100])
			require.Equal(t, byte(i), got[maxInline-1])
		}
		for range messages + 20 {
			require.Equal(t, verbs.WCSuccess, a.completion().Status)
		}
		disconnectPair(a, b)
	}
}

// No more Reads are under way than the peer serves; those beyond wait, and what
// is behind them too. All complete in order.
func TestReadDepth(t *testing.T) {
	p, e := rawResponder(t, openNIC(t, Config{})) // serves four
	fillPattern(e.mr.Bytes(), 5)
	for i := range 6 {
		wr := e.request(verbs.OpRead, uint64(i), 100*i, 100)
		wr.RKey, wr.RemoteAddr = 0xabc, uint64(1000+i)
		e.post(wr)
	}
	e.post(e.request(verbs.OpSend, 6, 0, 4))
	fenced := e.request(verbs.OpSend, 7, 0, 4)
	fenced.Flags |= verbs.FlagFence
	e.post(fenced)

	var requests []header
	ask := func() {
		h, _ := p.next()
		require.Equal(t, opReadRequest, h.op)
		require.Equal(t, readRequest{
			sinkSTag: e.mr.LKey(), sinkTO: e.mr.Addr() + 100*uint64(len(requests)), size: 100,
			srcSTag: 0xabc, srcTO: 1000 + uint64(len(requests)),
		}, h.read)
		require.Equal(t, uint32(len(requests)+1), h.msn)
		requests = append(requests, h)
	}
	answer := func(i int) {
		r := requests[i].read
		data := bytes.Repeat([]byte{byte('a' + i)}, 100)
		p.write(p.tagged(opReadResponse, false, r.sinkSTag, r.sinkTO, data[:60]))
		p.write(p.tagged(opReadResponse, true, r.sinkSTag, r.sinkTO+60, data[60:]))
	}
	for range 4 {
		ask()
	}
	p.write(p.sign())
	p.silentButSigns(60 * time.Millisecond)
	answer(0)
	e.want(0, verbs.WCSuccess, verbs.WCRead)
	ask()
	answer(1)
	e.want(1, verbs.WCSuccess, verbs.WCRead)
	ask()
	h, _ := p.next() // the Send does not wait for the Reads
	require.Equal(t, opSend, h.op)
	for i := 2; i < 6; i++ {
		p.silentButSigns(5 * time.Millisecond) // the fenced one does
		answer(i)
		e.want(uint64(i), verbs.WCSuccess, verbs.WCRead)
	}
	e.want(6, verbs.WCSuccess, verbs.WCSend)
	e.want(7, verbs.WCSuccess, verbs.WCSend)
	h, _ = p.next()
	require.Equal(t, opSend, h.op)
	require.Equal(t, uint32(2), h.msn)
	for i := range 6 {
		require.Equal(t, bytes.Repeat([]byte{byte('a' + i)}, 100), e.mr.Bytes()[100*i:100*i+100])
	}
	p.conn.Close()
	e.awaitDisconnected()
	e.destroy()
}

// silentButSigns makes sure that nothing but signs of life comes for a while.
func (p *rawPeer) silentButSigns(d time.Duration) {
	p.t.Helper()
	p.conn.SetReadDeadline(time.Now().Add(d))
	b := make([]byte, 1000)
	n, err := p.conn.Read(b)
	if err == nil {
		require.Zero(p.t, n%len(p.sign()))
		require.Equal(p.t, bytes.Repeat(p.sign(), n/len(p.sign())), b[:n])
	}
}

// Where the peer serves no Reads none is posted.
func TestNoReads(t *testing.T) {
	nic := openNIC(t, Config{})
	p, e, _ := acceptRaw(t, nic, onePair)
	rep := setupFrame{revision: 2, enhanced: true}
	p.write(appendSetup(nil, replyKey, &rep))
	require.Zero(t, e.next(cm.Established).Param.InitiatorDepth)
	_, err := e.qp.PostSend([]verbs.SendWR{e.request(verbs.OpRead, 1, 0, 0)})
	require.ErrorIs(t, err, syscall.EINVAL)
	p.conn.Close()
	e.awaitDisconnected()
	e.destroy()
}

// A peer that asks for more Reads at once than were agreed is cut off; as many
// as were agreed are served.
func TestReadDepthOfPeer(t *testing.T) {
	nic := openNIC(t, Config{MaxReads: 3})
	// Filled before, since the race detector does not know that a TCP peer asks
	// for the bytes after they were written.
	p, e := rawInitiator(t, nic, enhancedRequest, verbs.QPAttr{}, func(e *side) { fillPattern(e.mr.Bytes(), 9) })
	read := func(i int) []byte {
		return p.readRequest(uint32(i+1), readRequest{sinkSTag: 5, sinkTO: uint64(i), size: testRegion, srcSTag: e.mr.RKey(), srcTO: e.mr.Addr()})
	}
	// The answers fill the sockets, so that Reads stay unanswered.
	for i := range 3 {
		p.write(read(i))
	}
	e.drive(0)
	for range 20 {
		p.write(p.sign())
		e.drive(0)
	}
	total := 0
	for i := range 3 {
		for last := false; !last; {
			h, payload := p.next()
			require.Equal(t, opReadResponse, h.op)
			require.Equal(t, uint32(5), h.stag)
			at := int(h.to) - i
			require.True(t, bytes.Equal(e.mr.Bytes()[at:at+len(payload)], payload))
			total += len(payload)
			last = h.last
		}
	}
	require.Equal(t, 3*testRegion, total)

	for i := 3; i < 20; i++ {
		p.write(read(i))
	}
	ev := e.awaitDisconnected()
	require.ErrorIs(t, ev.Err, errReadDepth)
	p.conn.Close()
	e.destroy()
}

// A region that is deregistered while the peer reads or writes it ends the
// connection; nothing is placed after Deregister.
func TestDeregisterUnderPeer(t *testing.T) {
	nic := openNIC(t, Config{})
	t.Run("write", func(t *testing.T) {
		p, e := rawInitiator(t, nic, enhancedRequest, verbs.QPAttr{})
		mr, err := e.pd.RegisterMemory(1000, verbs.LocalWrite|verbs.RemoteWrite)
		require.NoError(t, err)
		mem := mr.Bytes()
		b := p.tagged(opWrite, true, mr.RKey(), mr.Addr(), bytes.Repeat([]byte("x"), 1000))
		p.write(b[:500])
		for mem[400] == 0 {
			e.drive(0)
		}
		require.NoError(t, mr.Deregister())
		p.write(b[500:])
		require.ErrorIs(t, e.awaitDisconnected().Err, errRegionGone) // a byte placed would be a fault
		require.ErrorIs(t, mr.Deregister(), syscall.EINVAL)
		p.conn.Close()
		e.destroy()
	})
	t.Run("read", func(t *testing.T) {
		p, e := rawInitiator(t, nic, enhancedRequest, verbs.QPAttr{})
		mr, err := e.pd.RegisterMemory(32<<20, verbs.LocalWrite|verbs.RemoteRead)
		require.NoError(t, err)
		p.write(p.readRequest(1, readRequest{size: 32 << 20, srcSTag: mr.RKey(), srcTO: mr.Addr()}))
		e.driveUntilHeard()
		require.NoError(t, mr.Deregister())
		h, _, err := p.read()
		for err == nil && h.op == opReadResponse {
			h, _, err = p.read()
		}
		if err == nil {
			require.Equal(t, opTerminate, h.op)
		} else {
			require.Equal(t, io.ErrUnexpectedEOF, err) // in the middle of a frame
		}
		require.ErrorContains(t, e.awaitDisconnected().Err, "invalid STag")
		p.conn.Close()
		e.destroy()
	})
}

// driveUntilHeard drives the end until a frame has come.
func (e *side) driveUntilHeard() {
	q := e.qp.(*queuePair)
	heard := func() bool {
		q.tx.mu.Lock()
		defer q.tx.mu.Unlock()
		return q.tx.heard
	}
	for !heard() {
		e.drive(0)
	}
}

// A frame may come in any pieces, and any number of frames at once.
func TestAnyPieces(t *testing.T) {
	for _, crc := range []bool{false, true} {
		nic := openNIC(t, Config{CRC: crc})
		const receives = 256 // more than there are Sends: they may all come before one is reaped
		p, e := rawInitiator(t, nic, enhancedRequest, verbs.QPAttr{RecvDepth: receives})
		rng := rand.New(rand.NewPCG(1, 2))
		var stream []byte
		want := make([]byte, testRegion)
		msn := uint32(1)
		for range 400 {
			n := rng.IntN(3000)
			if rng.IntN(10) == 0 {
				n = rng.IntN(60_000)
			}
			data := make([]byte, n)
			for i := range data {
				data[i] = byte(rng.Uint32())
			}
			at := rng.IntN(testRegion/2 - n)
			copy(want[at:], data)
			stream = append(stream, p.tagged(opWrite, true, e.mr.RKey(), e.mr.Addr()+uint64(at), data)...)
			if rng.IntN(4) == 0 {
				stream = append(stream, p.untagged(opSend, false, msn, 0, data[:n/2%100])...)
				stream = append(stream, p.untagged(opSend, true, msn, uint32(n/2%100), data[:n%50])...)
				msn++
			}
		}
		stream = append(stream, p.untagged(opSend, true, msn, 0, []byte("the end"))...)

		for i := range receives {
			e.postRecv(uint64(i), testRegion/2, 200)
		}
		go func() {
			for len(stream) > 0 {
				n := min(len(stream), 1+rng.IntN(1+rng.IntN(40_000)))
				p.conn.Write(stream[:n])
				stream = stream[n:]
			}
		}()
		for i := uint64(0); ; i++ {
			wc := e.completion()
			require.Equal(t, verbs.WCSuccess, wc.Status)
			require.Equal(t, i, wc.ID)
			if string(e.mr.Bytes()[testRegion/2:][:wc.ByteLen]) == "the end" {
				break
			}
		}
		require.True(t, bytes.Equal(want[:testRegion/2], e.mr.Bytes()[:testRegion/2]))
		p.conn.Close()
		e.awaitDisconnected()
		e.destroy()
	}
}

// Requests that can never be sent are refused when they are posted.
func TestBadRequests(t *testing.T) {
	nic := openNIC(t, Config{})
	a, b := connectPair(t, nic, nic, verbs.QPAttr{SendDepth: 4, MaxInline: 16})
	other, err := nic.AllocPD()
	require.NoError(t, err)
	foreign, err := other.RegisterMemory(100, verbs.LocalWrite)
	require.NoError(t, err)
	readOnly, err := a.pd.RegisterMemory(100, verbs.RemoteRead)
	require.NoError(t, err)
	good := a.request(verbs.OpSend, 1, 0, 10)
	for name, c := range map[string]struct {
		change func(wr *verbs.SendWR)
		errno  syscall.Errno
	}{
		"opcode":         {func(wr *verbs.SendWR) { wr.Opcode = verbs.OpWriteImm }, syscall.EOPNOTSUPP},
		"unknown opcode": {func(wr *verbs.SendWR) { wr.Opcode = 99 }, syscall.EOPNOTSUPP},
		"pieces":         {func(wr *verbs.SendWR) { wr.NumSGE = 3 }, syscall.EINVAL},
		"pieces of Read": {func(wr *verbs.SendWR) { wr.Opcode, wr.NumSGE = verbs.OpRead, 2 }, syscall.EINVAL},
		"key":            {func(wr *verbs.SendWR) { wr.SGE[0].LKey ^= 1 }, syscall.EFAULT},
		"key of another": {func(wr *verbs.SendWR) { wr.SGE[0] = verbs.SGE{Addr: foreign.Addr(), Length: 1, LKey: foreign.LKey()} }, syscall.EFAULT},
		"before":         {func(wr *verbs.SendWR) { wr.SGE[0].Addr = a.mr.Addr() - 1 }, syscall.EFAULT},
		"beyond":         {func(wr *verbs.SendWR) { wr.SGE[0].Addr = a.mr.Addr() + testRegion - 9 }, syscall.EFAULT},
		"wraps":          {func(wr *verbs.SendWR) { wr.SGE[0].Addr = ^uint64(0) }, syscall.EFAULT},
		"too long":       {func(wr *verbs.SendWR) { wr.SGE[0].Length = 1 << 31 }, syscall.EINVAL},
		"inline":         {func(wr *verbs.SendWR) { wr.Flags |= verbs.FlagInline; wr.SGE[0].Length = 17 }, syscall.EINVAL},
		"inline Read":    {func(wr *verbs.SendWR) { wr.Flags |= verbs.FlagInline; wr.Opcode = verbs.OpRead }, syscall.EINVAL},
		"unwritable sink": {func(wr *verbs.SendWR) {
			wr.Opcode = verbs.OpRead
			wr.SGE[0] = verbs.SGE{Addr: readOnly.Addr(), Length: 1, LKey: readOnly.LKey()}
		}, syscall.EFAULT},
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			c.change(&bad)
			b.postRecv(1, 0, 10)
			n, err := a.qp.PostSend([]verbs.SendWR{good, bad, good})
			require.Equal(t, 1, n)
			require.ErrorIs(t, err, c.errno)
			a.want(1, verbs.WCSuccess, verbs.WCSend) // what was before it is not affected
			b.want(1, verbs.WCSuccess, verbs.WCRecv)
		})
	}
	require.NoError(t, foreign.Deregister())
	require.NoError(t, readOnly.Deregister())
	disconnectPair(a, b)
}

// What PostFrom cannot send at once it copies to the request's memory: the
// source may be used again, and all arrives.
func TestPostFrom(t *testing.T) {
	for _, cfg := range []Config{{}, {CRC: true}, {FrameSize: 1000}} {
		nic := openNIC(t, cfg)
		nic.sweeper.soon = time.Hour
		const messages, size = 24, 300_000
		attr := verbs.QPAttr{SendDepth: 2 * messages, RecvDepth: messages, MaxInline: 64}
		a, b := connectPair(t, nic, nic, attr)
		poster := a.qp.(verbs.SourcePoster)
		for i := range messages {
			b.postRecv(uint64(i), testRegion-4, 4)
		}
		// All messages have the same content and the same memory, and the
		// source is spoilt behind each.
		want := make([]byte, size)
		fillPattern(want, 3)
		src := make([]byte, size)
		waited := false
		for i := range messages {
			copy(src, want)
			wr := to(a.request(verbs.OpWrite, uint64(2*i), 0, size), b, (i%3)*size)
			if i%2 == 1 { // in two pieces
				wr.NumSGE = 2
				wr.SGE = [2]verbs.SGE{a.sge(400_000, 1000), a.sge(500_000, size-1000)}
			}
			n, err := poster.PostFrom([]verbs.SendWR{wr, a.request(verbs.OpSend, uint64(2*i+1), 0, 4)}, src)
			require.NoError(t, err)
			require.Equal(t, 2, n)
			waited = waited || a.qp.(*queuePair).backlog() > 0
			clear(src)
		}
		require.True(t, waited, "nothing was queued: the test is of no use")
		for i := range messages {
			b.want(uint64(i), verbs.WCSuccess, verbs.WCRecv)
		}
		for i := range 3 {
			require.Equal(t, want, b.mr.Bytes()[i*size:][:size])
		}
		for i := range 2 * messages {
			require.Equal(t, uint64(i), a.completion().ID)
		}

		for _, wr := range []verbs.SendWR{
			a.request(verbs.OpWrite, 1, 0, 99), a.request(verbs.OpRead, 1, 0, 100),
			{ID: 1, Opcode: verbs.OpSend, Flags: verbs.FlagInline, NumSGE: 1, SGE: [2]verbs.SGE{a.sge(0, 100)}},
		} {
			n, err := poster.PostFrom([]verbs.SendWR{wr}, src[:100])
			require.ErrorIs(t, err, syscall.EINVAL)
			require.Zero(t, n)
		}
		disconnectPair(a, b)
	}
}
