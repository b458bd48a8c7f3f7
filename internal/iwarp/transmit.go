package iwarp

import (
	"sync"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// The transmit path
//
// Whoever has something to send frames it and writes it to the socket itself,
// with the transmit lock and without ever blocking. If the socket takes only a
// part, a goroutine, the flusher, waits for room and goes on, as long as there
// is anything to send; meanwhile others only queue.
//
//	PostSend ──────────▶ ring ─┐
//	Read Requests ─────▶ reads ┼▶ fill: frames ──▶ batch ──▶ pump: one system call
//	set-up ────────────▶ signs ┤                              ├─ all taken ─▶ next batch
//	violations ────────▶ last ─┘                              └─ full ─▶ flusher
//
// Messages are not interleaved: one is framed to its end before the next is
// begun. A request is sent when the socket has all of it; it completes when it
// is sent, a Read when its response has been placed, and all in order.
//
//	head ≤ sent ≤ next ≤ tail       requests, counted from the first
//	   completed│ sent │ framed │ posted
type transmitter struct {
	mu sync.Mutex

	ring             []verbs.SendWR
	inline           []byte // payload of requests that were posted inline and must wait
	head, sent       uint64
	next, tail       uint64
	offset           uint32 // bytes of ring[next] that have been framed
	readsDone, taken uint64 // Reads whose responses were placed; those that completed
	msn              [2]uint32
	cache            regionCache

	// PostFrom's payload, while it is posting, and which request's that is.
	source  []byte
	sourced uint64

	batch    *batch
	open     bool               // set up, and allowed to speak
	heard    bool               // the peer has spoken
	signs    int                // zero-length Writes to send
	rtrRead  bool               // a zero-length Read to send
	flushing bool               // there is a flusher
	flusher  func()             // flush, made once
	attempt  func(uintptr) bool // attemptWrite, made once

	outstanding readRing // our Reads whose responses have not been placed
	asked       readRing // the peer's Reads that have not been answered
	answered    uint32   // bytes of the oldest of them that have been framed
	answerNext  bool     // whose turn it is: a response's or a request's

	// How it ends: see closing.go.
	closing  bool   // what is queued up to stop is the last
	stop     uint64 // requests from this one on are not sent any more
	last     []byte // a Terminate frame, which goes before all that is queued
	halted   bool   // nothing more is framed
	dead     bool   // nothing more is written
	finished bool   // nothing is left: what was not sent has been flushed
	fin      bool   // and the peer has been told that nothing more comes
	failed   error  // why the socket takes nothing any more; nil if it does

	hostHas, hostKnown bool // what HostHas was when it ended

	badRequest uint64 // the request that made the queue pair fail, plus one

	payload framing
}

// firstFrame notes that the peer has spoken: an acceptor may from then on, and
// an initiator need not ask for it any more. Called with the receive lock held.
func (q *queuePair) firstFrame() {
	t := &q.tx
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heard = true
	q.stopNudging()
	if !t.open {
		t.open = true
		q.transmit()
	}
}

// transmit sends what can be sent, and sees to the rest. Called with the
// transmit lock held.
func (q *queuePair) transmit() {
	t := &q.tx
	if t.flushing || !t.open {
		return
	}
	if !q.pump() {
		t.flushing = true
		go t.flusher()
	}
}

// flush is the flusher.
func (q *queuePair) flush() {
	if q.wire.waitWritable(q.tx.attempt) == nil {
		return
	}
	// The socket has been closed, after which nothing is sent.
	q.tx.mu.Lock()
	defer q.tx.mu.Unlock()
	q.tx.flushing = false
}

// attemptWrite is the flusher's turn: it goes on until nothing is left.
func (q *queuePair) attemptWrite(uintptr) bool {
	t := &q.tx
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.pump() {
		t.flushing = false
		return true
	}
	return false
}

// pump writes until there is nothing to write, or reports false when the socket
// is full: when it has refused to take a byte, since that is what the poller
// needs to tell of room. Called with the transmit lock held.
func (q *queuePair) pump() bool {
	t := &q.tx
	for !t.dead {
		if t.batch == nil || t.batch.done() {
			if !q.fillBatch() {
				break
			}
		}
		n, err := q.writeBatch()
		switch {
		case err == errAgain:
			return false
		case err != nil:
			q.writeFailed(err)
		default:
			t.sent += uint64(t.batch.advance(n))
			q.retire()
		}
	}
	t.releaseBatch()
	if t.closing && !t.finished {
		q.flushSends()
	}
	return true
}

// writeBatch makes the system call. A region that the peer reads may be
// deregistered at any time, but not during the call.
func (q *queuePair) writeBatch() (int, error) {
	b := q.tx.batch
	if r := b.source; r != nil {
		r.mu.RLock()
		defer r.mu.RUnlock()
		if r.gone {
			return 0, errSourceGone
		}
	}
	return q.wire.write(b.rest(), b.record)
}

// writeFailed stops writing. The peer's last words may still be there to be
// read, and the end behind them, which tells more than the failed write does. A
// region that is gone under the peer's Read can be told to the peer only where a
// frame ends.
func (q *queuePair) writeFailed(err error) {
	t := &q.tx
	v, ok := err.(*violation)
	if !ok {
		t.dead, t.failed = true, err
		go q.readOn()
		return
	}
	t.halted, t.dead = true, t.batch.sent > 0
	t.releaseBatch()
	go q.violatedElsewhere(v)
}

func (t *transmitter) releaseBatch() {
	if t.batch != nil {
		putBatch(t.batch)
		t.batch = nil
	}
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// fillBatch frames what comes next into an empty batch, and reports false if
// there is nothing.
func (q *queuePair) fillBatch() bool {
	t := &q.tx
	if t.batch == nil {
		t.batch = batches.Get().(*batch)
	}
	b := t.batch
	b.reset()
	for b.room() && q.fillNext(b) {
		b.record = t.payload.apart
	}
	return b.size > 0
}

// fillNext adds one frame, or reports false if there is none to add, or none to
// add to this batch.
func (q *queuePair) fillNext(b *batch) bool {
	t := &q.tx
	switch {
	case t.last != nil:
		q.fillLast(b)
		return true
	case t.halted:
		return false
	case t.offset > 0: // in the middle of a request
		return q.fillRequest(b)
	case t.answered > 0: // in the middle of a response
		return q.fillResponse(b)
	case t.rtrRead:
		t.rtrRead = false
		q.fillReadRequest(b, outstandingRead{internal: true}, &verbs.SendWR{})
		return true
	case t.signs > 0:
		t.signs--
		b.frame(putTagged(b.header(), 0, true, opWrite, 0, 0), payload{}, q.crc)
		return true
	}
	// Requests and responses take turns.
	t.answerNext = !t.answerNext
	if t.answerNext {
		return q.fillResponse(b) || q.fillRequest(b)
	}
	return q.fillRequest(b) || q.fillResponse(b)
}

// fillLast adds the Terminate, behind which nothing comes.
func (q *queuePair) fillLast(b *batch) {
	t := &q.tx
	n := copy(b.header(), t.last)
	t.last = nil
	t.halted = true
	b.frame(n, payload{}, q.crc)
}

// fillRequest adds a frame of the next request.
func (q *queuePair) fillRequest(b *batch) bool {
	t := &q.tx
	if t.next == t.tail || t.closing && t.next >= t.stop {
		return false
	}
	wr := t.slot(t.next)
	fenced := wr.Flags&verbs.FlagFence != 0 && t.outstanding.n > 0
	if t.offset == 0 && (fenced || wr.Opcode == verbs.OpRead && t.outstanding.full()) {
		return false // goes on when a Read is done
	}
	if wr.Opcode == verbs.OpRead {
		q.fillReadRequest(b, outstandingRead{sink: wr.SGE[0]}, wr)
		t.next++
		b.endRequest()
		return true
	}
	limit := t.payload.tagged
	if wr.Opcode == verbs.OpSend {
		limit = t.payload.untagged
	}
	length := requestLength(wr)
	n := min(length-int(t.offset), limit)
	p0, p1, ok := q.pieces(wr, int(t.offset), n)
	if !ok {
		t.halted = true
		go q.localError(t.next)
		return false
	}
	last := int(t.offset)+n == length
	var headers int
	if wr.Opcode == verbs.OpWrite {
		headers = putTagged(b.header(), n, last, opWrite, wr.RKey, wr.RemoteAddr+uint64(t.offset))
	} else {
		op := opSend
		if wr.Flags&verbs.FlagSolicited != 0 {
			op = opSendSolicited
		}
		headers = putUntagged(b.header(), n, last, op, t.msn[queueSend], t.offset)
	}
	p := payload{data: [2][]byte{p0, p1}}
	if t.source != nil && t.next == t.sourced {
		p.home = p.data
		src := t.source[t.offset:][:n]
		p.data[0], p.data[1] = src[:len(p0)], src[len(p0):]
	}
	b.frame(headers, p, q.crc)
	t.offset += uint32(n)
	if last {
		if wr.Opcode == verbs.OpSend {
			t.msn[queueSend]++
		}
		t.offset = 0
		t.next++
		b.endRequest()
	}
	return true
}

func (t *transmitter) slot(i uint64) *verbs.SendWR { return &t.ring[i%uint64(len(t.ring))] }

// pieces are n bytes of a request's payload from an offset on.
func (q *queuePair) pieces(wr *verbs.SendWR, from, n int) (p0, p1 []byte, ok bool) {
	t := &q.tx
	if wr.Flags&flagStashed != 0 {
		p := t.stash(t.next)
		return p[from : from+n], nil, true
	}
	for i := range wr.SGE[:wr.NumSGE] {
		sge := &wr.SGE[i]
		if length := int(sge.Length); from >= length {
			from -= length
			continue
		}
		take := min(n, int(sge.Length)-from)
		p, ok := t.cache.local(q.pd, sge.LKey, sge.Addr+uint64(from), take)
		if !ok {
			return nil, nil, false
		}
		if p0 == nil {
			p0 = p
		} else {
			p1 = p
		}
		from, n = 0, n-take
	}
	return p0, p1, n == 0
}

// retire completes what is sent, in order: a Read, and what is behind it, when
// its response has been placed. Called with the transmit lock held.
func (q *queuePair) retire() {
	t := &q.tx
	for t.head < t.sent {
		wr := t.slot(t.head)
		code := verbs.WCSend
		switch wr.Opcode {
		case verbs.OpWrite:
			code = verbs.WCWrite
		case verbs.OpRead:
			if t.taken == t.readsDone {
				return
			}
			t.taken++
			code = verbs.WCRead
		}
		if q.attr.SignalAll || wr.Flags&verbs.FlagSignaled != 0 {
			q.cq.push(verbs.WC{ID: wr.ID, Opcode: code, ByteLen: uint32(requestLength(wr))}, false)
		}
		t.head++
	}
}
