package iwarp

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// The receive path
//
// No goroutine reads for a connection. Whoever wants something of it reads:
// Poll, the goroutine in Wait, and now and then the sweeper, each with the
// receive lock and without ever blocking in the socket.
//
//	socket ──▶ step: one system call ──▶ consume ──▶ place.go: check, then place
//	             │                                     ├─ Write, Read Response ─▶ region
//	             ├─ payload: into its region           ├─ Send ─▶ posted receive ─▶ completion
//	             └─ all else: into the buffer          ├─ Read Request ─▶ transmit path
//	                                                   └─ Terminate ─▶ end
//
// A frame's headers are checked as a whole, and where its payload may go, before
// a byte of it is placed. What of the payload is in the buffer by then is
// copied; the rest is read straight into its place, and the trailer and the next
// frame's headers into the buffer with the same system call. Small frames come
// many to a call and are copied. Where frames have a CRC, a frame comes into the
// buffer as a whole and is placed once the CRC has been checked.
type receiver struct {
	mu sync.Mutex

	attempt func(uintptr) bool // attemptRead, made once
	quiet   bool               // the goroutine in Wait is reading: it needs no wake-up
	driven  bool               // somebody other than the sweeper has read since its last look
	drained bool               // the last read found less than it had room for: see poll
	heard   bool               // a frame has come
	eof     error              // what reading the socket has come to in the end; io.EOF is FIN

	// buf is what was read and not yet consumed, buf.b[r:w]. An idle
	// connection has no buffer.
	buf  *buffer
	r, w int
	mean int // of the payload of tagged frames, a moving average

	// The frame whose headers have been consumed.
	inFrame bool
	frame   header
	dst     []byte  // where the rest of its payload goes
	region  *region // which dst is of

	asked  bool // Read Requests have come that wait for the end of consume
	cache  regionCache
	recv   pendingReceive
	answer readAnswer
	msn    [2]uint32 // the next message numbers, of Sends and of Read Requests

	terminate     termination // of the peer's Terminate
	terminateRead bool        // it is about a Read of ours
	offender      []byte      // the headers of a frame that violates the protocol
}

// A pendingReceive is the posted receive that a Send is being placed in.
type pendingReceive struct {
	active bool
	wr     verbs.RecvWR
	got    uint32
}

// A readAnswer is the Read whose response is being placed.
type readAnswer struct {
	active bool
	read   outstandingRead
	got    uint32
}

// A buffer holds the longest frame. Connections share them: one has a buffer
// only while there is something in it.
type buffer struct{ b [maxFrame + 2048]byte }

var buffers = sync.Pool{New: func() any { return new(buffer) }}

const (
	// bulkPayload is from which mean payload on it is cheaper to read headers
	// and payload separately than to copy the payload.
	bulkPayload = 12 << 10

	// lookahead is how much is read behind a payload, or for a frame's
	// headers, in bulk: a trailer, the message that announces the data, and
	// the headers of the next.
	lookahead = 256

	// pollReads bounds the system calls of one Poll, and sweepReads those of
	// other readers at one time.
	pollReads  = 16
	sweepReads = 64
)

// What a step has come to.
type progress uint8

const (
	readFull  progress = iota // as much as was asked for: there may be more
	readShort                 // less than was asked for
	readNone                  // there was nothing
	readOver                  // the connection has ended
)

// poll reads what has come, for Poll. If the read before has emptied the socket
// it believes that once: the next thing that such a caller does is to wait, which
// begins with a read, and a read that finds nothing costs a tenth of the time
// that a small message takes from one end to the other.
func (q *queuePair) poll() {
	if !q.rx.mu.TryLock() {
		return // somebody else is reading, and Poll does not block
	}
	defer q.rx.mu.Unlock()
	q.drive()
	if q.rx.drained {
		q.rx.drained = false
		return
	}
	for range pollReads {
		if q.step() != readFull || q.cq.pending() {
			break
		}
	}
	q.rx.release()
}

// attemptRead reads what has come, for the goroutine in Wait, and reports
// whether it should leave. It returns false only with the socket empty: the
// poller tells of what comes after that, and of nothing that was there before.
func (q *queuePair) attemptRead(uintptr) bool {
	if q.cq.leaving() {
		return true
	}
	q.rx.mu.Lock()
	q.drive()
	q.rx.quiet = true
	empty := false
	for n := 1; !empty && !q.cq.leaving(); n++ {
		p := q.step()
		empty = p == readNone || p == readOver
		if n%pollReads == 0 { // a peer that never pauses must not keep others out
			q.rx.quiet = false
			q.rx.mu.Unlock()
			q.rx.mu.Lock()
			q.rx.quiet = true
		}
	}
	q.rx.quiet = false
	q.rx.release()
	q.rx.mu.Unlock()
	// Another goroutine's Poll may have taken the completion that ended the loop.
	return !empty || q.cq.leaving()
}

// What a sweep has found.
type swept uint8

const (
	sweptIdle    swept = iota // nobody reads: it did
	sweptDriven               // somebody has read since the last sweep
	sweptAwaited              // a goroutine waits, and reads when something comes
)

// sweep reads what has come if nobody has read lately, nor waits for it.
func (q *queuePair) sweep() swept {
	if q.cq.waitsFor(q) {
		return sweptAwaited
	}
	if !q.rx.mu.TryLock() {
		return sweptDriven
	}
	defer q.rx.mu.Unlock()
	if q.rx.driven {
		q.rx.driven = false
		return sweptDriven
	}
	q.readSome()
	return sweptIdle
}

// drive notes that somebody reads. Called with the receive lock held.
func (q *queuePair) drive() {
	q.rx.driven = true
	if q.cold.Load() {
		q.nic.sweeper.warm(q)
	}
}

// readOn reads what has come, in a goroutine of its own, because of something
// that happened elsewhere: writing has failed, and reading tells why.
func (q *queuePair) readOn() {
	for more := true; more; {
		q.rx.mu.Lock()
		more = q.readSome()
		q.rx.mu.Unlock()
	}
}

// readSome reads until there is nothing more, but not for ever: it reports
// whether there may be more. Called with the receive lock held.
func (q *queuePair) readSome() bool {
	defer q.rx.release()
	for range sweepReads {
		if p := q.step(); p == readNone || p == readOver {
			return false
		}
	}
	return true
}

// step makes one system call and deals with what it brought. Called with the
// receive lock held.
func (q *queuePair) step() progress {
	if q.ended.Load() {
		return readOver
	}
	n, asked, err := q.fill()
	q.rx.drained = err == nil && n < asked
	switch {
	case err == errAgain:
		return readNone
	case err != nil:
		q.lost(err)
		return readOver
	}
	if v := q.consume(); v != nil {
		q.violated(v)
		return readOver
	}
	switch {
	case q.ended.Load():
		return readOver
	case n < asked:
		return readShort
	}
	return readFull
}

// fill reads once, and says how much it got of how much it had room for.
func (q *queuePair) fill() (n, asked int, err error) {
	r := &q.rx
	if r.buf == nil {
		r.buf = buffers.Get().(*buffer)
		r.r, r.w = 0, 0
	}
	if len(r.dst) > 0 { // consume has used up the buffer
		return q.fillPayload()
	}
	if r.r > 0 && (r.r == r.w || !q.crc) { // little is left, or nothing
		r.compact()
	}
	room := len(r.buf.b) - r.w
	if q.crc && room < maxFrame {
		r.compact()
		room = len(r.buf.b) - r.w
	}
	if !q.crc && r.mean >= bulkPayload {
		room = min(room, lookahead)
	}
	n, err = q.wire.read(nil, r.buf.b[r.w:r.w+room])
	if err == nil {
		r.w += n
	}
	return n, room, err
}

// fillPayload reads straight into the region.
func (q *queuePair) fillPayload() (n, asked int, err error) {
	r := &q.rx
	r.region.mu.RLock()
	defer r.region.mu.RUnlock()
	if r.region.gone {
		return 0, 0, errRegionGone
	}
	spill := r.buf.b[:]
	if r.mean >= bulkPayload {
		spill = spill[:lookahead]
	}
	asked = len(r.dst) + len(spill)
	n, err = q.wire.read(r.dst, spill)
	if err != nil {
		return 0, asked, err
	}
	placed := min(n, len(r.dst))
	r.dst = r.dst[placed:]
	r.r, r.w = 0, n-placed
	return n, asked, nil
}

// compact moves what is left to the buffer's front.
func (r *receiver) compact() {
	r.w = copy(r.buf.b[:], r.buf.b[r.r:r.w])
	r.r = 0
}

// release gives the buffer back if there is nothing in it.
func (r *receiver) release() {
	if r.buf != nil && r.r == r.w {
		buffers.Put(r.buf)
		r.buf = nil
		r.r, r.w = 0, 0
	}
}

// consume deals with what is in the buffer, as far as it goes. What the peer asked
// for in it is answered at the end: one system call for each of its Reads would be
// far more than they cost the peer.
func (q *queuePair) consume() *violation {
	v := q.consumeFrames()
	if q.rx.asked {
		q.rx.asked = false
		q.answer()
	}
	return v
}

func (q *queuePair) consumeFrames() *violation {
	r := &q.rx
	for !q.ended.Load() {
		if !r.inFrame {
			if ok, v := q.beginFrame(); !ok {
				return v
			}
		}
		if len(r.dst) > 0 {
			if v := r.place(); v != nil {
				return v
			}
			if len(r.dst) > 0 {
				return nil
			}
		}
		rest := trailer(r.frame.ulpdu)
		if r.w-r.r < rest {
			return nil
		}
		r.r += rest
		r.inFrame, r.region = false, nil
		q.endFrame(&r.frame)
	}
	return nil
}

// beginFrame checks the frame at the front of the buffer and decides where its
// payload goes. It reports false if more is needed first, or with a violation.
func (q *queuePair) beginFrame() (bool, *violation) {
	r := &q.rx
	b := r.buf.b[r.r:r.w]
	if len(b) < 4 {
		return false, nil
	}
	if q.crc {
		ulpdu := int(b[0])<<8 | int(b[1])
		n := lengthSize + ulpdu + trailer(ulpdu)
		if len(b) < n {
			return false, nil
		}
		if !crcMatches(b[:n]) {
			return false, errCRC
		}
	}
	size, v := sizeOf(b)
	if v == nil && len(b) < size {
		return false, nil
	}
	if v == nil {
		r.frame, v = parseHeader(b)
	}
	if v == nil {
		v = q.accept(&r.frame, b[:size])
	}
	if v != nil {
		r.offender = append(r.offender[:0], b[:min(len(b), maxHeader)]...)
		return false, v
	}
	r.r += size
	r.inFrame = true
	if r.frame.op.tagged() {
		r.mean += (r.frame.payload - r.mean) / 4
	}
	if !r.heard {
		r.heard = true
		q.firstFrame()
	}
	return true, nil
}

// place copies payload from the buffer into the region.
func (r *receiver) place() *violation {
	r.region.mu.RLock()
	defer r.region.mu.RUnlock()
	if r.region.gone {
		return errRegionGone
	}
	n := copy(r.dst, r.buf.b[r.r:r.w])
	r.dst = r.dst[n:]
	r.r += n
	return nil
}

// lost ends the connection because reading has: by the peer's FIN, by a reset,
// or because of a region that is gone.
func (q *queuePair) lost(err error) {
	r := &q.rx
	if v, ok := err.(*violation); ok {
		q.violated(v)
		return
	}
	if err == io.EOF {
		// A reset is told once: to a write, if one comes first, and then a
		// read finds an end that no FIN has made.
		q.tx.mu.Lock()
		if failed := q.tx.failed; failed != nil && !errors.Is(failed, syscall.EPIPE) {
			err = failed
		}
		q.tx.mu.Unlock()
	}
	r.eof = err
	switch {
	case err == io.EOF && (r.inFrame || r.r < r.w):
		q.end(ending{err: errTruncated})
	case err == io.EOF:
		q.end(ending{err: errPeerClosed, clean: true})
	default:
		var call *os.SyscallError
		if errors.As(err, &call) {
			err = call.Err // which call it was says nothing
		}
		q.end(ending{err: fmt.Errorf("the TCP connection broke: %w", err)})
	}
}
