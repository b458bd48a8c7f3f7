package iwarp

import (
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// How a connection ends
//
// A TCP socket must not be closed while bytes of the peer are unread or still on
// their way: it would answer with a reset, which takes with it what the peer had
// not got yet. And siw loses a frame whose segment brings the FIN with it. So
// whatever ends a connection, these steps are taken, from end on by a goroutine
// of the connection's own (shutdown), for Config.CloseTimeout at the most:
//
//	end       receives are flushed, frames are not processed any more;
//	          what is queued is sent (graceful), or a Terminate, or nothing
//	shutdown  when all of that has left this host: FIN
//	          what comes is read and thrown away, up to the peer's FIN
//	          the socket is closed
//
// The Disconnected event comes at once, and means that the connection is over;
// after disconnect, where it was not over before, it comes when the peer has
// answered with its own FIN, or its TCP has confirmed ours: then all that was
// sent has arrived there. It also comes, with the status -ETIMEDOUT, when time
// is up.

// An ending is why, and how, a connection ends.
type ending struct {
	err        error      // why, for people
	clean      bool       // the peer closed it, as it may
	violation  *violation // what the peer did; it is told
	readStatus bool       // the peer ended it because of the oldest Read
	graceful   bool       // what is queued is still sent
	silent     bool       // the queue pair is being destroyed
}

// end moves the queue pair to the error state. The first ending counts. Called
// with the receive lock held.
func (q *queuePair) end(why ending) {
	r, t := &q.rx, &q.tx
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.ended.Load() {
		return
	}
	status := verbs.WCSuccess
	q.reason = why
	q.readRefused = why.readStatus
	var term *terminated
	switch {
	case why.violation != nil:
		q.vendorError = why.violation.vendorError()
		status = why.violation.status
	case errors.As(why.err, &term):
		q.vendorError = term.vendorError()
	}
	q.ended.Store(true)
	q.stopNudging()
	r.inFrame, r.dst, r.region = false, nil, nil
	r.r = r.w // what was read and not looked at is of no interest
	q.flushReceives(status)

	t.hostHas, t.hostKnown = q.hostHas()
	t.closing = true
	switch {
	case !q.started || !t.open && why.violation == nil || t.dead:
		q.abandonSends()
	case why.violation != nil:
		t.stop, t.offset = t.next, 0
		t.last = make([]byte, maxTerminate)
		t.last = t.last[:putTerminate(t.last, why.violation.termination, r.offender)]
		t.open = true // this much may be said even before the peer has spoken
	case why.graceful:
		t.stop = t.tail
	default:
		q.abandonSends()
	}
	if !q.started {
		return
	}
	q.cq.detach(q)
	q.nic.sweeper.remove(q)
	if !why.graceful && !why.silent {
		q.tell(why.status(), why.err, true)
	}
	q.transmit()
	q.finish()
	go q.shutdown()
}

// abandonSends flushes what has not been sent. Called with the transmit lock
// held.
func (q *queuePair) abandonSends() {
	t := &q.tx
	t.dead, t.closing, t.last = true, true, nil
	t.releaseBatch()
	q.flushSends()
}

// status is the status of the Disconnected event.
func (e *ending) status() int {
	if e.clean || e.graceful || e.err == errErrorState {
		return 0
	}
	return -int(errnoOf(e.err, syscall.ECONNRESET))
}

// tell delivers the Disconnected event, once: by way of the NIC's goroutine if
// the caller holds locks.
func (q *queuePair) tell(status int, err error, locked bool) {
	if q.told.Swap(true) {
		return
	}
	ev := cm.Event{Type: cm.Disconnected, Status: status}
	if status != 0 {
		ev.Err = err
	}
	if locked {
		q.nic.events.post(q.id, ev)
	} else {
		q.id.Deliver(ev)
	}
}

var errUnconfirmed = errors.New("the peer has not confirmed the end of the connection in time")

// shutdown closes the socket of a connection that has ended.
func (q *queuePair) shutdown() {
	q.nic.lingering.enter(q)
	defer q.nic.lingering.leave(q)
	q.cq.release(q)
	bound := time.Now().Add(q.nic.cfg.CloseTimeout)
	const first, longest = time.Millisecond, 50 * time.Millisecond
	over := false
	for pause := first; !over; pause = min(2*pause, longest) {
		q.tx.mu.Lock()
		finished := q.finish()
		q.tx.mu.Unlock()
		if finished && pause > first && !q.told.Load() && q.wire.acknowledged() {
			q.tell(0, nil, false)
		}
		now := time.Now()
		if !now.Before(bound) {
			break
		}
		wake := bound
		if next := now.Add(pause); next.Before(bound) && (!finished || !q.told.Load()) {
			wake = next
		}
		// Returns with the peer's end, or when it is time to look again. No
		// Wait is parked on the socket any more, so the deadline is free.
		_ = q.wire.setReadDeadline(wake)
		over = q.wire.waitReadable(q.discard) == nil && q.rxOver()
	}

	q.rx.mu.Lock()
	q.tx.mu.Lock()
	q.abandonSends()
	eof := q.rx.eof
	q.tx.mu.Unlock()
	q.rx.mu.Unlock()
	switch {
	case !over:
		q.tell(-int(syscall.ETIMEDOUT), errUnconfirmed, false)
	case eof != io.EOF:
		q.tell(-int(errnoOf(eof, syscall.ECONNRESET)), eof, false)
	default:
		q.tell(0, nil, false)
	}
	_ = q.wire.close() // all that could be done for the peer has been
}

// Silence asks TCP.
func (q *queuePair) Silence() (time.Duration, bool) {
	t := &q.tx
	t.mu.Lock()
	defer t.mu.Unlock()
	if !q.started || q.ended.Load() {
		return 0, false
	}
	return q.wire.silence()
}

// HostHas asks TCP, or says what TCP said when the connection ended.
func (q *queuePair) HostHas() (all, known bool) {
	t := &q.tx
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.ended.Load() {
		return t.hostHas, t.hostKnown
	}
	return q.hostHas()
}

// hostHas reports whether the peer's host has all requests. Called with the
// transmit lock held, before the connection ends.
func (q *queuePair) hostHas() (all, known bool) {
	if !q.started {
		return false, false
	}
	some, known := q.wire.unconfirmed()
	return !some && q.tx.sent == q.tx.tail, known
}

// finish tells the peer, once, that nothing more comes, when all that is to be
// sent has left this host. It reports whether that has been done. Called with
// the transmit lock held.
func (q *queuePair) finish() bool {
	t := &q.tx
	if !t.fin && t.finished && (q.reason.clean || !q.wire.unsent()) {
		t.fin = true
		_ = q.wire.finish() // fails if the connection is broken, and then is not needed
	}
	return t.fin
}

// discard reads and throws away what comes, and reports whether it is to be asked
// again at once, or not any more. It returns false only with the socket empty, as
// attemptRead does.
func (q *queuePair) discard(uintptr) bool {
	q.rx.mu.Lock()
	defer q.rx.mu.Unlock()
	r := &q.rx
	b := buffers.Get().(*buffer)
	defer buffers.Put(b)
	for n := 0; r.eof == nil && n < sweepReads; n++ {
		_, err := q.wire.read(nil, b.b[:])
		if err == errAgain {
			return false
		}
		r.eof = err
	}
	return true
}

// rxOver reports whether the socket has no more.
func (q *queuePair) rxOver() bool {
	q.rx.mu.Lock()
	defer q.rx.mu.Unlock()
	return q.rx.eof != nil
}
