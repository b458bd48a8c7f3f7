package simqp

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// send takes what is posted and puts it on the wire.
func (q *QP) send() {
	defer q.wg.Done()
	defer q.f.wg.Done()
	depth := wireDepth
	if q.immediate() {
		depth = 1
	}
	for {
		q.mu.Lock()
		for q.state == stateReady && (q.sq.len() == 0 || q.wire.len() >= depth) {
			q.cond.Wait()
		}
		if q.state != stateReady {
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()

		q.dawdle(q.rand)

		q.mu.Lock()
		if q.state != stateReady || q.sq.len() == 0 {
			q.mu.Unlock()
			continue
		}
		r := q.sq.pop()
		if r.payload == nil && r.Opcode != verbs.OpRead && !q.readLate(&r) {
			r.payload = q.read(&r)
		}
		q.wire.push(r)
		q.cond.Broadcast()
		q.mu.Unlock()
		if !q.immediate() && r.Opcode != verbs.OpRead {
			q.complete(&r)
		}
	}
}

// carry carries out at the peer what is on the wire.
func (q *QP) carry() {
	defer q.wg.Done()
	defer q.f.wg.Done()
	random := q.f.newRand()
	var done []request // carried out, completion not yet pushed
	for {
		r, what := q.next(len(done) > 0)
		switch what {
		case stop:
			return
		case idle:
			done = q.completeAll(done)
			continue
		case finish:
			q.flush()
			q.peer.flush()
			q.peer.tell(nil)
			return
		case unanswered:
			q.giveUp(&r)
			return
		}
		q.dawdle(random)
		if q.readLate(&r) {
			q.mu.Lock()
			r.payload = q.read(&r)
			q.mu.Unlock()
		}
		status := q.deliver(&r, random)
		if status == verbs.WCRetryExcErr {
			q.giveUp(&r)
			return
		}
		q.mu.Lock()
		if q.wire.len() > 0 {
			q.wire.pop()
		}
		if r.payload != nil {
			q.free = append(q.free, r.payload)
			r.payload = nil
		}
		q.cond.Broadcast()
		q.mu.Unlock()
		if status != verbs.WCSuccess {
			q.completeAll(done)
			q.refuse(&r, status)
			return
		}
		if q.immediate() || r.Opcode == verbs.OpRead {
			done = append(done, r)
		}
		if q.f.opts.Seed == 0 || random.IntN(3) == 0 || len(done) > 8 {
			done = q.completeAll(done)
		}
	}
}

// readLate reports whether the memory of a request is read as late as it arrives at
// the peer, long after later requests have completed. On iWARP that is so for a Write
// that asks for no completion: siw hands its pages to TCP, and copies only those of
// which somebody wants to know when they are free. A device that works in its caller
// copies them all.
func (q *QP) readLate(r *request) bool {
	return !q.immediate() && !q.dev.CallerDriven && r.Opcode == verbs.OpWrite && !q.attr.SignalAll &&
		r.Flags&(verbs.FlagSignaled|verbs.FlagInline) == 0
}

type action uint8

const (
	carryOut   action = iota
	idle              // nothing on the wire
	finish            // nothing on the wire, and the connection is to end
	unanswered        // the peer is gone
	stop
)

// next is what carry does next, and with which request. With eager, it does not
// wait for the wire to have something on it.
func (q *QP) next(eager bool) (request, action) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case q.state != stateReady:
			return request{}, stop
		case q.vanished && q.immediate() && q.wire.len() > 0:
			return q.wire.front(), unanswered
		case !q.vanished && q.wire.len() > 0:
			return q.wire.front(), carryOut
		case q.closing && q.wire.len() == 0:
			return request{}, finish
		case eager:
			return request{}, idle
		}
		q.cond.Wait()
	}
}

// refuse ends a connection whose peer's device refuses a request.
func (q *QP) refuse(r *request, status verbs.WCStatus) {
	q.mu.Lock()
	if q.state == stateReady {
		q.cq.push(verbs.WC{ID: r.ID, Status: status}, true)
	}
	q.mu.Unlock()
	q.flush()
	if !q.immediate() {
		q.peer.flush()
		q.peer.tell(syscall.ECONNRESET)
		q.tell(syscall.ECONNRESET)
	}
}

// giveUp ends a connection whose peer does not answer.
func (q *QP) giveUp(r *request) {
	deadline := time.Now().Add(q.f.opts.Retry)
	for time.Now().Before(deadline) {
		q.mu.Lock()
		ready := q.state == stateReady
		q.mu.Unlock()
		if !ready {
			return
		}
		time.Sleep(min(q.f.opts.Retry/20, 5*time.Millisecond))
	}
	q.mu.Lock()
	if q.state == stateReady {
		q.cq.push(verbs.WC{ID: r.ID, Status: verbs.WCRetryExcErr}, true)
	}
	q.mu.Unlock()
	q.flush()
}

func (q *QP) completeAll(done []request) []request {
	for i := range done {
		q.complete(&done[i])
	}
	return done[:0]
}

// complete ends a request that was carried out.
func (q *QP) complete(r *request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state == stateDestroyed {
		return
	}
	q.unseen++
	if r.Flags&verbs.FlagSignaled == 0 && !q.attr.SignalAll {
		return
	}
	q.posted -= q.unseen
	q.unseen = 0
	op := verbs.WCWrite
	switch r.Opcode {
	case verbs.OpSend:
		op = verbs.WCSend
	case verbs.OpRead:
		op = verbs.WCRead
	}
	q.cq.push(verbs.WC{ID: r.ID, Opcode: op}, true)
}

// deliver carries a request out at the peer.
func (q *QP) deliver(r *request, random *rand.Rand) verbs.WCStatus {
	p := q.peer
	p.placing.Lock()
	defer p.placing.Unlock()
	p.mu.Lock()
	ready := p.state == stateReady
	p.mute = false
	p.mu.Unlock()
	if p.dead || !ready {
		return verbs.WCRetryExcErr
	}
	switch r.Opcode {
	case verbs.OpRead:
		return verbs.WCSuccess // of no bytes: nothing to check, nothing to move
	case verbs.OpWrite, verbs.OpWriteImm:
		if len(r.payload) > 0 {
			dst := p.pd.find(r.RemoteAddr, len(r.payload), r.RKey, true, verbs.RemoteWrite)
			if dst == nil {
				return verbs.WCRemAccessErr
			}
			half := len(r.payload) / 2
			if q.f.opts.Seed != 0 && half > 64 {
				place(dst[:half], r.payload[:half])
				q.dawdle(random)
				place(dst[half:], r.payload[half:])
			} else {
				place(dst, r.payload)
			}
		}
		if r.Opcode == verbs.OpWrite {
			return verbs.WCSuccess
		}
		recv, status := p.takeReceive()
		if status != verbs.WCSuccess {
			return status
		}
		p.cq.push(verbs.WC{ID: recv.ID, Opcode: verbs.WCRecvImm, Imm: r.Imm, ByteLen: uint32(len(r.payload))}, false)
		return verbs.WCSuccess
	}
	recv, status := p.takeReceive()
	if status != verbs.WCSuccess {
		return status
	}
	if len(r.payload) > int(recv.SGE.Length) {
		p.cq.push(verbs.WC{ID: recv.ID, Status: verbs.WCLocLenErr}, false)
		return verbs.WCRemInvReqErr
	}
	if len(r.payload) > 0 {
		dst := p.pd.find(recv.SGE.Addr, len(r.payload), recv.SGE.LKey, false, verbs.LocalWrite)
		if dst == nil {
			panic(fmt.Sprintf("simqp: receive of %d bytes outside its region", recv.SGE.Length))
		}
		copy(dst, r.payload)
	}
	p.cq.push(verbs.WC{ID: recv.ID, Opcode: verbs.WCRecv, ByteLen: uint32(len(r.payload))}, false)
	return verbs.WCSuccess
}

// takeReceive takes the oldest posted receive. That there is none is a fault
// while the connection is in use: RoCE would make it wait for long, iWARP ends
// the connection.
func (q *QP) takeReceive() (verbs.RecvWR, verbs.WCStatus) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.state != stateReady:
		return verbs.RecvWR{}, verbs.WCRetryExcErr
	case q.rq.len() == 0:
		if !q.closing {
			q.f.fault("%s: a message arrives and no receive is posted", q.dev.name)
		}
		return verbs.RecvWR{}, verbs.WCRNRRetryExcErr
	}
	return q.rq.pop(), verbs.WCSuccess
}
