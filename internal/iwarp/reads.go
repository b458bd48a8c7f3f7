package iwarp

import "github.com/rdmanet/rdmanet/internal/verbs"

// This file is RDMA Read, both ways: the Reads that we have outstanding, of
// which there are never more than the peer serves (ORD), and those of the peer
// that we have not answered, which we allow so many of (IRD).

// An outstandingRead is a Read of ours that waits for its response.
type outstandingRead struct {
	sink     verbs.SGE // where the response goes; of no length, nowhere
	internal bool      // of the set-up: nobody waits for it
}

// A readRing holds Reads in order, as many as were agreed. Our own use sink,
// those of the peer use request.
type readRing struct {
	entries []readEntry
	head, n int
}

type readEntry struct {
	own     outstandingRead
	request readRequest
}

func (r *readRing) init(depth int)     { r.entries = make([]readEntry, depth) }
func (r *readRing) full() bool         { return r.n == len(r.entries) }
func (r *readRing) oldest() *readEntry { return &r.entries[r.head] }

func (r *readRing) push(e readEntry) {
	r.entries[(r.head+r.n)%len(r.entries)] = e
	r.n++
}

func (r *readRing) pop() {
	r.head = (r.head + 1) % len(r.entries)
	r.n--
}

// fillReadRequest adds a Read Request.
func (q *queuePair) fillReadRequest(b *batch, own outstandingRead, wr *verbs.SendWR) {
	t := &q.tx
	rr := readRequest{
		sinkSTag: own.sink.LKey, sinkTO: own.sink.Addr, size: own.sink.Length,
		srcSTag: wr.RKey, srcTO: wr.RemoteAddr,
	}
	b.frame(putReadRequest(b.header(), t.msn[queueRead], &rr), payload{}, q.crc)
	t.msn[queueRead]++
	t.outstanding.push(readEntry{own: own})
}

// oldestRead is the Read that the next response answers.
func (q *queuePair) oldestRead() (outstandingRead, bool) {
	t := &q.tx
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.outstanding.n == 0 {
		return outstandingRead{}, false
	}
	return t.outstanding.oldest().own, true
}

// readDone completes the oldest Read, and lets go what waited for it.
func (q *queuePair) readDone() {
	t := &q.tx
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.outstanding.n == 0 {
		return // flushed meanwhile
	}
	if !t.outstanding.oldest().own.internal {
		t.readsDone++
	}
	t.outstanding.pop()
	q.retire()
	q.transmit()
}

// mayRespond reports whether the peer may have one more Read outstanding.
func (q *queuePair) mayRespond() bool {
	t := &q.tx
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.asked.full()
}

// respond queues the response to a Read Request. Called with the receive lock held.
func (q *queuePair) respond(rr *readRequest) {
	t := &q.tx
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closing {
		t.asked.push(readEntry{request: *rr})
		q.rx.asked = true
	}
}

// answer sends the responses that are queued.
func (q *queuePair) answer() {
	q.tx.mu.Lock()
	defer q.tx.mu.Unlock()
	q.transmit()
}

// fillResponse adds a frame of the oldest response. A batch reads one region of
// ours at most for the peer, since that one is held while it is written.
func (q *queuePair) fillResponse(b *batch) bool {
	t := &q.tx
	if t.asked.n == 0 {
		return false
	}
	rr := &t.asked.oldest().request
	n := min(int(rr.size-t.answered), t.payload.tagged)
	var p []byte
	if n > 0 {
		r, v := q.readSource(&t.cache, rr)
		if v == nil {
			if b.source != nil && b.source != r {
				return false
			}
			r.mu.RLock()
			defer r.mu.RUnlock()
			var ok bool
			if p, ok = r.slice(rr.srcTO+uint64(t.answered), n); !ok {
				v = errSourceGone
			}
		}
		if v != nil {
			t.halted = true
			go q.violatedElsewhere(v)
			return false
		}
		b.source = r
	}
	last := t.answered+uint32(n) == rr.size
	headers := putTagged(b.header(), n, last, opReadResponse, rr.sinkSTag, rr.sinkTO+uint64(t.answered))
	b.frame(headers, payload{data: [2][]byte{p}}, q.crc)
	t.answered += uint32(n)
	if last {
		t.answered = 0
		t.asked.pop()
	}
	return true
}
