package iwarp

import (
	"fmt"
	"math"
	"sync/atomic"
	"syscall"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// A queuePair is a verbs.QP, and the connection that it is one end of: an RDMAP
// stream over a TCP socket.
//
//	        start            end                       close
//	idle ──────────▶ live ──────────▶ ended ─────────────────────▶ closed
//	  receives can     all works       flushed; a goroutine of      the socket
//	  be posted                        its own sends what is left,  is closed
//	                                   FIN, and waits for the peer's
//
// The locks, in the order in which they are taken: the receive lock (rx.mu), the
// transmit lock (tx.mu), that of the receive queue, a region's, that of the
// completion queue, those of the NIC. end takes the first two.
type queuePair struct {
	nic  *NIC
	id   *identifier
	pd   *protectionDomain
	cq   *completionQueue
	attr verbs.QPAttr

	// Set by start, under both locks, and not changed after it.
	started bool
	wire    wire
	crc     bool

	rx receiver
	rq receiveQueue
	tx transmitter

	ended     atomic.Bool // changes under both locks
	destroyed atomic.Bool
	told      atomic.Bool // Disconnected has been posted

	// Why it ended. Set by end, under both locks.
	reason      ending
	vendorError uint32
	readRefused bool // the oldest Read is what the peer ended the connection for

	nudge nudger

	older, newer *queuePair // among those that linger, guarded by that list's lock

	swept int         // its place in the NIC's sweeper, guarded by that one's lock
	cold  atomic.Bool // it is swept seldom; changes under that lock
}

// newQueuePair makes a queue pair for an identifier.
func newQueuePair(id *identifier, pd verbs.PD, cq verbs.CQ, attr verbs.QPAttr) (*queuePair, error) {
	p, ok := pd.(*protectionDomain)
	if !ok || p.nic != id.nic {
		return nil, fmt.Errorf("the protection domain is another device's: %w", syscall.EINVAL)
	}
	c, ok := cq.(*completionQueue)
	if !ok {
		return nil, fmt.Errorf("the completion queue is another device's: %w", syscall.EINVAL)
	}
	if attr.SendDepth < 0 || attr.SendDepth > maxQPWR || attr.RecvDepth < 0 || attr.RecvDepth > maxQPWR {
		return nil, fmt.Errorf("queues of %d and %d requests, of at most %d: %w", attr.SendDepth, attr.RecvDepth, maxQPWR, syscall.EINVAL)
	}
	attr.MaxInline = min(max(attr.MaxInline, 0), maxInline)
	if err := c.use(+1); err != nil {
		return nil, err
	}
	p.use.Add(1)
	q := &queuePair{nic: id.nic, id: id, pd: p, cq: c, attr: attr}
	q.tx.ring = sendRings.get(max(attr.SendDepth, 1))
	q.rq.ring = recvRings.get(max(attr.RecvDepth, 1))
	q.rx.attempt = q.attemptRead
	q.tx.attempt = q.attemptWrite
	q.tx.flusher = q.flush
	q.tx.stop = math.MaxUint64
	for _, msn := range []*[2]uint32{&q.rx.msn, &q.tx.msn} {
		msn[queueSend], msn[queueRead] = 1, 1
	}
	return q, nil
}

// start connects the queue pair: from here on there are frames on the wire.
// surplus is what was read of them already. The event is delivered before
// anybody reads, so that it comes before that of the connection's end. It fails
// if the queue pair has been destroyed meanwhile, and then the wire is the
// caller's.
func (q *queuePair) start(w wire, a agreement, surplus []byte, established cm.Event) error {
	q.rx.mu.Lock()
	q.tx.mu.Lock()
	if q.started || q.ended.Load() {
		q.tx.mu.Unlock()
		q.rx.mu.Unlock()
		return fmt.Errorf("the queue pair is gone: %w", syscall.EINVAL)
	}
	q.started = true
	q.wire = w
	q.crc = a.crc
	q.tx.payload = q.nic.framing(w, a)
	q.tx.outstanding.init(a.ord)
	q.tx.asked.init(a.ird)
	q.tx.rtrRead = a.rtr == ReadRTR && a.initiator
	q.tx.open = a.initiator
	q.tx.mu.Unlock()
	q.rx.mu.Unlock()
	q.id.Deliver(established)

	q.rx.mu.Lock()
	if q.ended.Load() { // by the user, already
		q.rx.mu.Unlock()
		return nil
	}
	q.cq.attach(q)
	q.nic.sweeper.add(q)
	if len(surplus) > 0 {
		q.rx.buf = buffers.Get().(*buffer)
		q.rx.w = copy(q.rx.buf.b[:], surplus)
		if v := q.consume(); v != nil {
			q.violated(v)
		}
		q.rx.release()
	}
	q.rx.mu.Unlock()
	if a.initiator {
		q.beginNudging(a.rtr)
	}
	return nil
}

// framing is how a connection's bytes are divided.
type framing struct {
	tagged, untagged int  // the most payload in a frame
	apart            bool // each frame goes in a system call of its own
}

// minMSS is the smallest MSS that frames keep to. Every link that IPv6 may use
// leaves TCP more than that; a peer that claims less has chosen it, and each of our
// frames would cost us a system call.
const minMSS = 1024

func (n *NIC) framing(w wire, a agreement) framing {
	limit, apart := n.cfg.FrameSize, false
	if a.crc || n.cfg.FrameMSS {
		switch mss := w.segmentSize(); {
		case mss == 0: // the platform cannot tell
			apart = a.crc
		case mss >= minMSS:
			apart, limit = a.crc, min(limit, mss)
		}
	}
	fit := func(header int) int {
		p := min(limit-header-crcSize, lengthSize+maxULPDU-header)
		return max(p, minFramePayload) &^ 3 // no padding within a message
	}
	return framing{fit(taggedSize), fit(untaggedSize), apart}
}

// MaxInline is how many bytes can be posted inline.
func (q *queuePair) MaxInline() int { return q.attr.MaxInline }

// SetError moves the queue pair to the error state, which ends its connection.
func (q *queuePair) SetError() error {
	q.rx.mu.Lock()
	defer q.rx.mu.Unlock()
	q.end(ending{err: errErrorState})
	return nil
}

// Destroy destroys the queue pair. The TCP connection is closed behind the
// caller.
func (q *queuePair) Destroy() error {
	if q.destroyed.Swap(true) {
		return fmt.Errorf("the queue pair is destroyed already: %w", syscall.EINVAL)
	}
	q.rx.mu.Lock()
	q.end(ending{err: errErrorState, silent: true})
	q.tx.mu.Lock()
	q.abandonSends() // nothing is read from registered memory any more
	q.tx.mu.Unlock()
	q.rx.mu.Unlock()
	q.cq.release(q)
	q.giveBackRings()
	q.pd.use.Add(-1)
	return q.cq.use(-1)
}

// disconnect ends the connection in order: what is queued is sent, then FIN.
func (q *queuePair) disconnect() {
	q.rx.mu.Lock()
	defer q.rx.mu.Unlock()
	q.end(ending{err: errErrorState, graceful: true})
}

// localError ends the connection because of a request whose memory is not
// there. It runs in a goroutine of its own.
func (q *queuePair) localError(request uint64) {
	q.rx.mu.Lock()
	defer q.rx.mu.Unlock()
	q.tx.mu.Lock()
	q.tx.badRequest = request + 1
	q.tx.mu.Unlock()
	q.end(ending{err: fmt.Errorf("a request's memory is not registered: %w", syscall.EFAULT)})
}

// violated ends the connection because of something that the peer did. Called
// with the receive lock held.
func (q *queuePair) violated(v *violation) { q.end(ending{err: v, violation: v}) }

// violatedElsewhere is violated for code that holds the transmit lock, as a
// goroutine of its own.
func (q *queuePair) violatedElsewhere(v *violation) {
	q.rx.mu.Lock()
	defer q.rx.mu.Unlock()
	q.rx.offender = q.rx.offender[:0] // the frame that it was about has gone
	q.violated(v)
}
