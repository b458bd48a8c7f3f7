package simqp

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// A QP is a simulated queue pair. Two goroutines work for it, from Connect to
// Destroy: one takes what is posted and puts it on the wire, the other carries
// what is on the wire out at the peer. With immediate data the wire holds one
// request, and without as many as a socket's buffers would.
type QP struct {
	f    *Fabric
	dev  *Device
	pd   *pd
	cq   *cq
	attr verbs.QPAttr
	rand *rand.Rand // of the goroutine that sends
	wg   sync.WaitGroup

	// OnEvent is called when the connection is over, on a goroutine of its
	// own. Set it before Connect.
	OnEvent func(cause error)

	// SpeaksFirst allows an iWARP acceptor to send before it has received,
	// as C programs do. Set it before Connect.
	SpeaksFirst bool

	mu       sync.Mutex
	cond     sync.Cond
	peer     *QP
	reads    int // Reads that may be outstanding
	state    qpState
	mute     bool // it must not send yet
	vanished bool // nothing that is sent arrives, and nobody says so
	told     bool // OnEvent has been called
	closing  bool // the connection ends when the wire is empty
	sq       fifo[request]
	posted   int // requests that take a slot
	unseen   int // of these, carried out without a completion
	wire     fifo[request]
	rq       fifo[verbs.RecvWR]
	free     [][]byte // payload buffers not in use

	// placing is held by whoever touches the memory of this queue pair
	// from the peer's side.
	placing sync.Mutex
	dead    bool // guarded by placing: destroyed
}

type qpState uint8

const (
	stateInit qpState = iota
	stateReady
	stateError
	stateDestroyed
)

// A request is a posted send with its payload, once that has been read.
type request struct {
	verbs.SendWR
	payload []byte
}

// wireDepth is how many requests fit on the wire without immediate data.
const wireDepth = 8

// CreateQP makes a queue pair.
func (d *Device) CreateQP(p verbs.PD, c verbs.CQ, attr verbs.QPAttr) (*QP, error) {
	if attr.SendDepth > d.MaxQPWR || attr.RecvDepth > d.MaxQPWR {
		return nil, fmt.Errorf("simqp: depth beyond the device's: %w", syscall.EINVAL)
	}
	q := &QP{f: d.fabric, dev: d, pd: p.(*pd), cq: c.(*cq), attr: attr, rand: d.fabric.newRand()}
	q.cond.L = &q.mu
	q.cq.qps.Add(1)
	d.qps.Add(1)
	return q, nil
}

// Connect joins two queue pairs. Each may have that many Reads outstanding. On
// iWARP the acceptor must not send before it has received something (RFC 5044,
// section 7.1): siw's dialer fails else.
func Connect(dialer, acceptor *QP, reads int) {
	a, b := dialer, acceptor
	b.mute = !b.immediate() && !b.SpeaksFirst
	for _, q := range []*QP{a, b} {
		q.mu.Lock()
		q.state = stateReady
		q.reads = reads
		q.mu.Unlock()
	}
	a.peer, b.peer = b, a
	for _, q := range []*QP{a, b} {
		q.wg.Add(2)
		q.f.wg.Add(2)
		go q.send()
		go q.carry()
	}
}

func (q *QP) immediate() bool { return q.f.opts.Transport.HasImmediate() }

// MaxInline implements verbs.QP.
func (q *QP) MaxInline() int { return max(0, min(q.attr.MaxInline, q.f.opts.MaxInline)) }

// PostSend implements verbs.QP.
func (q *QP) PostSend(wrs []verbs.SendWR) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, wr := range wrs {
		switch q.state {
		case stateInit, stateDestroyed:
			return i, syscall.EINVAL
		case stateError:
			q.cq.push(verbs.WC{ID: wr.ID, Status: verbs.WCWRFlushErr}, true)
			continue
		}
		if q.posted == q.attr.SendDepth {
			q.f.fault("send queue of %d overflows", q.attr.SendDepth)
			return i, syscall.ENOMEM
		}
		if q.mute {
			q.f.fault("%s: the acceptor sends first", q.dev.name)
		}
		r := request{SendWR: wr}
		if err := q.check(&r); err != nil {
			q.f.fault("%v", err)
			return i, syscall.EINVAL
		}
		q.posted++
		q.sq.push(r)
	}
	q.cond.Broadcast()
	return len(wrs), nil
}

// check says what is wrong with a request, and reads its payload if it is inline.
func (q *QP) check(r *request) error {
	if r.Opcode == verbs.OpWriteImm && !q.immediate() {
		return fmt.Errorf("a Write with immediate data on %v", q.f.opts.Transport)
	}
	if r.Opcode == verbs.OpRead {
		if q.reads == 0 {
			return fmt.Errorf("a Read posted where none may be outstanding")
		}
		if r.NumSGE != 1 {
			return fmt.Errorf("a Read of %d elements, which siw refuses", r.NumSGE)
		}
	}
	n := 0
	for _, e := range r.SGE[:r.NumSGE] {
		if q.pd.find(e.Addr, int(e.Length), e.LKey, false, 0) == nil {
			return fmt.Errorf("%d bytes at %#x are not in the region of key %#x", e.Length, e.Addr, e.LKey)
		}
		n += int(e.Length)
	}
	if r.Flags&verbs.FlagInline != 0 {
		if n > q.MaxInline() {
			return fmt.Errorf("%d bytes inline, %d allowed", n, q.MaxInline())
		}
		r.payload = q.read(r)
	}
	return nil
}

// read reads the payload of a request. Called with mu held.
func (q *QP) read(r *request) []byte {
	p := []byte{}
	if n := len(q.free); n > 0 {
		p = q.free[n-1][:0]
		q.free = q.free[:n-1]
	}
	for _, e := range r.SGE[:r.NumSGE] {
		p = append(p, q.pd.find(e.Addr, int(e.Length), e.LKey, false, 0)...)
	}
	return p
}

// PostRecv implements verbs.QP.
func (q *QP) PostRecv(wrs []verbs.RecvWR) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, wr := range wrs {
		if q.state == stateDestroyed {
			return i, syscall.EINVAL
		}
		if q.rq.len() == q.attr.RecvDepth {
			q.f.fault("receive queue of %d overflows", q.attr.RecvDepth)
			return i, syscall.ENOMEM
		}
		if q.state == stateError {
			q.cq.push(verbs.WC{ID: wr.ID, Status: verbs.WCWRFlushErr}, false)
			continue
		}
		q.rq.push(wr)
	}
	return len(wrs), nil
}

// SetError implements verbs.QP. The peer finds out as it would: its work fails,
// or the connection breaks.
func (q *QP) SetError() error {
	q.flush()
	if !q.immediate() && q.peer != nil {
		q.peer.flush()
		q.tell(syscall.ECONNRESET)
		q.peer.tell(syscall.ECONNRESET)
	}
	return nil
}

// flush moves the queue pair to the error state and flushes what is posted.
func (q *QP) flush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != stateReady {
		return
	}
	q.state = stateError
	for q.sq.len() > 0 {
		q.cq.push(verbs.WC{ID: q.sq.pop().ID, Status: verbs.WCWRFlushErr}, true)
	}
	for q.rq.len() > 0 {
		q.cq.push(verbs.WC{ID: q.rq.pop().ID, Status: verbs.WCWRFlushErr}, false)
	}
	q.wire.clear()
	q.cond.Broadcast()
}

// tell calls OnEvent, once.
func (q *QP) tell(cause error) {
	q.mu.Lock()
	told := q.told
	q.told = true
	q.mu.Unlock()
	if !told && q.OnEvent != nil {
		go q.OnEvent(cause)
	}
}

// Disconnect ends the connection as rdma_disconnect does, and as the kernel does
// for a process that dies. On iWARP what is on the wire still arrives, unless
// the peer has something on the wire too: then it is lost. A device that works in
// its caller reads on until the peer has all.
func (q *QP) Disconnect() {
	p := q.peer
	if q.immediate() {
		q.flush()
		q.tell(nil)
		p.tell(nil)
		return
	}
	p.mu.Lock()
	reset := !q.dev.CallerDriven && (p.wire.len() > 0 || p.sq.len() > 0)
	p.mu.Unlock()
	q.mu.Lock()
	q.closing = true
	if reset {
		q.wire.clear()
	}
	q.sq.clear()
	q.cond.Broadcast()
	q.mu.Unlock()
	q.tell(nil)
}

// Vanish makes the hosts of both ends unreachable for each other.
func (q *QP) Vanish() {
	for _, e := range []*QP{q, q.peer} {
		e.mu.Lock()
		e.vanished = true
		e.cond.Broadcast()
		e.mu.Unlock()
	}
}

// Destroy implements verbs.QP. What is on the wire of a device that works in its
// caller still arrives after a Disconnect.
func (q *QP) Destroy() error {
	q.mu.Lock()
	for q.dev.CallerDriven && q.closing && q.state == stateReady && q.wire.len() > 0 && !q.vanished {
		q.cond.Wait()
	}
	q.mu.Unlock()
	q.placing.Lock()
	q.dead = true
	q.placing.Unlock()
	q.mu.Lock()
	if q.state == stateDestroyed {
		q.mu.Unlock()
		return fmt.Errorf("simqp: queue pair destroyed twice")
	}
	q.state = stateDestroyed
	q.sq.clear()
	q.rq.clear()
	q.wire.clear()
	q.cond.Broadcast()
	q.mu.Unlock()
	if p := q.peer; p != nil && !q.immediate() {
		p.flush()
		p.tell(nil)
	}
	q.wg.Wait()
	q.cq.qps.Add(-1)
	q.dev.qps.Add(-1)
	return nil
}

// dawdle is the random schedule.
func (q *QP) dawdle(r *rand.Rand) {
	if q.f.opts.Seed == 0 {
		return
	}
	switch r.IntN(8) {
	case 0:
		if d := q.f.opts.Delay; d > 0 {
			time.Sleep(time.Duration(r.Int64N(int64(d))))
		}
	case 1, 2:
		runtime.Gosched()
	}
}
