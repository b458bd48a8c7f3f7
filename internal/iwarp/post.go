package iwarp

import (
	"fmt"
	"sync"
	"syscall"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// flagStashed marks, in the ring, a request whose inline payload has been copied
// out of its memory.
const flagStashed verbs.SendFlags = 1 << 7

// maxInline is the most that a queue pair takes inline.
const maxInline = copyLimit

// PostSend queues the requests and sends what can be sent at once.
func (q *queuePair) PostSend(wrs []verbs.SendWR) (int, error) {
	q.tx.mu.Lock()
	defer q.tx.mu.Unlock()
	return q.postSend(wrs)
}

// PostFrom is PostSend, but the first request's payload is src, which is copied
// to the request's memory only as far as it cannot be sent at once.
func (q *queuePair) PostFrom(wrs []verbs.SendWR, src []byte) (int, error) {
	t := &q.tx
	t.mu.Lock()
	defer t.mu.Unlock()
	wr := &wrs[0]
	if wr.Opcode == verbs.OpRead || wr.Flags&verbs.FlagInline != 0 || wr.NumSGE > verbs.MaxSGE || requestLength(wr) != len(src) {
		return 0, fmt.Errorf("the first request does not send %d bytes of registered memory: %w", len(src), syscall.EINVAL)
	}
	t.source, t.sourced = src, t.tail
	n, err := q.postSend(wrs)
	q.copySource()
	t.source = nil
	return n, err
}

// copySource copies what has not been sent of the payload of PostFrom's request.
func (q *queuePair) copySource() {
	t := &q.tx
	if t.batch != nil {
		t.batch.copyBorrowed()
	}
	if t.finished || t.next > t.sourced || t.sourced >= t.tail {
		return // not one of its bytes waits to be framed
	}
	src := t.source
	from := 0
	if t.next == t.sourced {
		from = int(t.offset)
	}
	p0, p1, _ := q.pieces(t.slot(t.sourced), from, len(src)-from) // checked when posted
	copy(p1, src[from+copy(p0, src[from:]):])
}

// postSend is PostSend with the transmit lock held.
func (q *queuePair) postSend(wrs []verbs.SendWR) (int, error) {
	t := &q.tx
	switch {
	case q.destroyed.Load():
		return 0, errDestroyed
	case !q.started:
		return 0, fmt.Errorf("the queue pair is not connected: %w", syscall.ENOTCONN)
	}
	if q.ended.Load() {
		t.hostHas = false
	}
	first := t.tail
	var err error
	for i := range wrs {
		if err = q.checkRequest(&wrs[i]); err != nil {
			break
		}
		slot := t.slot(t.tail)
		*slot = wrs[i]
		slot.Flags &^= flagStashed
		t.tail++
	}
	if t.finished {
		q.flushSends()
	} else {
		q.transmit()
		q.stashInline(first)
	}
	return int(t.tail - first), err
}

// checkRequest refuses what can never be sent.
func (q *queuePair) checkRequest(wr *verbs.SendWR) error {
	t := &q.tx
	length := uint64(0)
	for i := range wr.SGE[:min(wr.NumSGE, verbs.MaxSGE)] {
		length += uint64(wr.SGE[i].Length)
	}
	switch {
	case t.tail-t.head == uint64(len(t.ring)):
		return fmt.Errorf("the send queue is full: %w", syscall.ENOMEM)
	case wr.NumSGE > verbs.MaxSGE || wr.Opcode == verbs.OpRead && wr.NumSGE > 1:
		return fmt.Errorf("the request has %d pieces of memory: %w", wr.NumSGE, syscall.EINVAL)
	case length > maxRegion:
		return fmt.Errorf("the request is %d bytes long, of at most %d: %w", length, maxRegion, syscall.EINVAL)
	case wr.Flags&verbs.FlagInline != 0 && (length > uint64(q.attr.MaxInline) || wr.Opcode == verbs.OpRead):
		return fmt.Errorf("%d bytes cannot be sent inline: %w", length, syscall.EINVAL)
	}
	switch wr.Opcode {
	case verbs.OpSend, verbs.OpWrite:
	case verbs.OpRead:
		if len(t.outstanding.entries) == 0 {
			return fmt.Errorf("the peer serves no RDMA Reads: %w", syscall.EINVAL)
		}
	default:
		return fmt.Errorf("iWARP has no operation %d: %w", wr.Opcode, syscall.EOPNOTSUPP)
	}
	for i := range wr.SGE[:wr.NumSGE] {
		sge := &wr.SGE[i]
		if sge.Length == 0 {
			continue
		}
		r := t.cache.find(&q.nic.regions, sge.LKey)
		if r == nil || r.pd != q.pd || wr.Opcode == verbs.OpRead && r.access&verbs.LocalWrite == 0 {
			return fmt.Errorf("key %#x is not that of a region for this: %w", sge.LKey, syscall.EFAULT)
		}
		if _, ok := r.slice(sge.Addr, int(sge.Length)); !ok {
			return fmt.Errorf("%d bytes at %#x are not within the region: %w", sge.Length, sge.Addr, syscall.EFAULT)
		}
	}
	return nil
}

// requestLength is the length of a request's payload.
func requestLength(wr *verbs.SendWR) int {
	n := 0
	for i := range wr.SGE[:wr.NumSGE] {
		n += int(wr.SGE[i].Length)
	}
	return n
}

// stashInline copies the payload of requests that were posted inline and have to
// wait, from the given one on.
func (q *queuePair) stashInline(from uint64) {
	t := &q.tx
	for i := max(from, t.next); i < t.tail; i++ {
		wr := t.slot(i)
		if wr.Flags&verbs.FlagInline == 0 {
			continue
		}
		if t.inline == nil {
			t.inline = make([]byte, len(t.ring)*q.attr.MaxInline)
		}
		at := t.stash(i)
		for k := range wr.SGE[:wr.NumSGE] {
			sge := &wr.SGE[k]
			p, _ := t.cache.local(q.pd, sge.LKey, sge.Addr, int(sge.Length)) // checked when posted
			at = at[copy(at, p):]
		}
		wr.Flags |= flagStashed
	}
}

// stash is where a request's inline payload is copied to.
func (t *transmitter) stash(i uint64) []byte {
	size := len(t.inline) / len(t.ring)
	at := int(i%uint64(len(t.ring))) * size
	return t.inline[at : at+size]
}

// flushSends ends all requests that have not completed. Called with the transmit
// lock held, when nothing is sent any more.
func (q *queuePair) flushSends() {
	t := &q.tx
	if q.destroyed.Load() {
		t.head = t.tail
	}
	for ; t.head < t.tail; t.head++ {
		wr := t.slot(t.head)
		status := verbs.WCWRFlushErr
		switch {
		case t.badRequest == t.head+1:
			status = verbs.WCLocProtErr
		case q.readRefused && wr.Opcode == verbs.OpRead:
			status = verbs.WCRemAccessErr
			q.readRefused = false
		}
		q.push(verbs.WC{ID: wr.ID, Status: status, VendorErr: q.vendorError}, false)
	}
	t.sent, t.next, t.offset = t.tail, t.tail, 0
	t.outstanding.n, t.asked.n, t.answered = 0, 0, 0
	t.finished = true
}

// push adds a completion, unless the queue pair is being destroyed.
func (q *queuePair) push(wc verbs.WC, quiet bool) {
	if !q.destroyed.Load() {
		q.cq.push(wc, quiet)
	}
}

// A receiveQueue holds posted receives.
type receiveQueue struct {
	mu      sync.Mutex
	ring    []verbs.RecvWR
	head, n int
	flushed bool // receives are not waited with any more
}

// PostRecv queues the receives.
func (q *queuePair) PostRecv(wrs []verbs.RecvWR) (int, error) {
	r := &q.rq
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.destroyed.Load() {
		return 0, errDestroyed
	}
	for i, wr := range wrs {
		switch {
		case r.flushed:
			q.push(verbs.WC{ID: wr.ID, Status: verbs.WCWRFlushErr}, false)
		case r.n == len(r.ring):
			return i, fmt.Errorf("the receive queue is full: %w", syscall.ENOMEM)
		default:
			r.ring[wrap(r.head+r.n, len(r.ring))] = wr
			r.n++
		}
	}
	return len(wrs), nil
}

// pop takes the oldest receive.
func (r *receiveQueue) pop() (verbs.RecvWR, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == 0 {
		return verbs.RecvWR{}, false
	}
	wr := r.ring[r.head]
	r.head = wrap(r.head+1, len(r.ring))
	r.n--
	return wr, true
}

// flushReceives ends all receives, the one that was being filled first, which
// may have an end of its own. Called with the receive lock held.
func (q *queuePair) flushReceives(status verbs.WCStatus) {
	if cur := &q.rx.recv; cur.active {
		cur.active = false
		if status == verbs.WCSuccess {
			status = verbs.WCWRFlushErr
		}
		q.push(verbs.WC{ID: cur.wr.ID, Status: status, VendorErr: q.vendorError}, false)
	}
	r := &q.rq
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flushed = true
	if q.destroyed.Load() {
		r.n = 0
		return
	}
	q.cq.mu.Lock()
	defer q.cq.mu.Unlock()
	for ; r.n > 0; r.n-- {
		q.cq.add(verbs.WC{ID: r.ring[r.head].ID, Status: verbs.WCWRFlushErr}, false)
		r.head = wrap(r.head+1, len(r.ring))
	}
}

var errDestroyed = fmt.Errorf("the queue pair is destroyed: %w", syscall.EINVAL)

// giveBackRings lets the rings serve another queue pair. Called once, when
// nothing uses them any more.
func (q *queuePair) giveBackRings() {
	q.tx.mu.Lock()
	sendRings.put(q.tx.ring)
	q.tx.ring = nil
	q.tx.mu.Unlock()
	q.rq.mu.Lock()
	recvRings.put(q.rq.ring)
	q.rq.ring = nil
	q.rq.mu.Unlock()
}
