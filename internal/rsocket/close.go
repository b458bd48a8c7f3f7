package rsocket

import (
	"net"
	"syscall"
	"time"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// CloseWrite tells the peer that no more data comes, behind all that was
// written. A Write that waits ends with EPIPE. The peer may go on sending.
func (s *Stream) CloseWrite() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &s.state
	switch {
	case st.closed:
		return net.ErrClosed
	case st.writeShut:
		return nil
	}
	st.writeShut = true
	s.flush()
	s.wakeAll()
	switch {
	case st.peerClosed:
		return nil
	case st.failed != nil:
		return st.failed
	}
	return st.lost
}

// Close ends the stream: what waits in Read or Write returns net.ErrClosed, and
// the peer is told, with DISCONNECT, behind all that was written.
//
// Close returns at once if the peer's device is known to have all that Write
// accepted. Otherwise it waits until that is known, until the connection has
// ended in another way, or for timeout; a timeout of 0 or less is no wait. If it
// is still not known, Close returns an error that is ErrNotDelivered and holds
// the connection's failure, if there was one. A peer that has sent DISCONNECT
// takes nothing more, and then Close returns nil.
//
// When Close has returned, the device may still be at work: see Linger. The
// second Close returns net.ErrClosed.
func (s *Stream) Close(timeout time.Duration) error {
	s.mu.Lock()
	st := &s.state
	if st.closed {
		s.mu.Unlock()
		return net.ErrClosed
	}
	s.look()
	if !s.hasArrived() {
		s.askHost() // DISCONNECT would be one more thing to be confirmed
	}
	st.closed = true
	s.discard()
	s.flush()
	s.stopTimers()
	s.wakeAll()
	s.mu.Unlock()
	sweeper.remove(s)

	s.mu.Lock()
	defer s.mu.Unlock()
	if timeout > 0 && !s.hasArrived() && s.enter() {
		s.awaitArrival(time.Now().Add(timeout))
		s.leave()
	}
	return s.undelivered(timeout > 0)
}

// While Close waits, it asks a HostTeller again and again: first after
// firstLook, then after twice as long, and so on up to longestLook. Linger does
// the same, and polls at these times.
const (
	firstLook   = time.Millisecond
	longestLook = 20 * time.Millisecond
)

// awaitArrival waits until all that was written has arrived, until the connection
// has ended, or until the time is over. Called with mu held, inside an operation.
func (s *Stream) awaitArrival(end time.Time) {
	w := &s.closer
	for pause := firstLook; ; pause = min(2*pause, longestLook) {
		next := end
		if s.teller != nil {
			if t := time.Now().Add(pause); t.Before(end) {
				next = t
			}
		}
		s.setDeadline(w, next)
		s.await(w)
		if !s.hasArrived() {
			s.askHost()
		}
		s.closer.expired = false
		if closeDone(s) || next == end {
			break
		}
	}
	if w.timer != nil { // none if the time was over before it was set
		w.timer.Stop()
	}
	if !s.state.released {
		s.look() // the end may have overtaken what tells of the arrival
	}
}

// Linger goes on, behind the caller of Close, until the peer's device has also
// the last word, until the connection has ended in another way, or for timeout.
// It looks now and then and does not drive: many may linger at a time.
func (s *Stream) Linger(timeout time.Duration) error {
	end := time.Now().Add(timeout)
	for pause := firstLook; ; pause = min(2*pause, longestLook) {
		over, err := s.lookBehind()
		left := time.Until(end)
		if over || left <= 0 {
			return err
		}
		time.Sleep(min(pause, left))
	}
}

// lookBehind is one look of Linger's. It reports whether there is nothing left to
// wait for.
func (s *Stream) lookBehind() (over bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.released {
		return true, nil
	}
	s.look()
	s.askHost()
	s.parting = true
	s.flushRead()
	return s.delivered() || s.ended() && !s.eventDue(), s.undelivered(true)
}

// Parted reports whether Linger would return at once, and no operation is under
// way that Release would wait for.
func (s *Stream) Parted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ops > 0 || s.state.released {
		return false
	}
	s.poll()
	return s.delivered() || s.ended()
}

// closeDone reports whether Close, which has found that it must wait, need not any
// more. If it can, it waits for the last word too, which is right behind what was
// written: the program may exit next, and the peer is to read io.EOF.
func closeDone(s *Stream) bool {
	if s.ended() && !s.eventDue() || s.closer.expired || s.state.released || s.delivered() {
		return true
	}
	return s.hasArrived() && !s.immediate && !s.finalRead
}

// eventDue reports whether the connection has ended, and the event that says how is
// on its way.
func (s *Stream) eventDue() bool {
	st := &s.state
	return st.flushed && !st.peerClosed && !st.disconnected && st.failed == nil
}

// ended reports whether waiting for our own work is of no use any more.
func (s *Stream) ended() bool {
	st := &s.state
	return st.peerClosed || st.disconnected || st.flushed || st.failed != nil
}

// peerLeft reports whether the peer has ended the connection in order: what it has
// not taken by then it does not want. It has when it has sent DISCONNECT, and when
// the connection has ended, without an error, after SHUTDOWNs both ways. On iWARP
// a peer answers DISCONNECT by closing the connection, often before its device has
// answered the Read behind it, and a C dialer's answers none: so the end after our
// DISCONNECT counts too, unless the host tells more. That a process was killed at
// that very moment cannot be told from it.
func (s *Stream) peerLeft() bool {
	st := &s.state
	switch {
	case st.peerClosed:
		return true
	case !st.disconnected || st.cause != nil || st.failed != nil:
		return false
	}
	return s.over() || st.discPosted && !s.immediate && !s.askHost()
}

// delivered reports whether the peer's device has all that we sent, our last
// word included. Of a device that works in its caller it is enough that TCP has
// taken the last word: its Destroy lets TCP deliver that.
func (s *Stream) delivered() bool {
	if !s.state.discPosted && !s.over() || !s.hasArrived() {
		return false
	}
	return s.arrival.known >= s.lastWord || s.callerDriven && s.sq.retired >= s.lastWord
}

// undelivered is the error that Close returns; waited says whether it had time.
// Called with mu held.
func (s *Stream) undelivered(waited bool) error {
	st := &s.state
	switch {
	case s.hasArrived() || s.peerLeft():
		return nil
	case st.failed != nil:
		return &DeliveryError{st.failed}
	case st.disconnected:
		s.settle()
		if st.lost != nil {
			return &DeliveryError{st.lost}
		}
		return &DeliveryError{&ConnError{syscall.ECONNRESET, "", st.cause}}
	case st.flushed:
		return &DeliveryError{&ConnError{syscall.ECONNRESET, "the queue pair was flushed", st.postErr}}
	case waited:
		return &DeliveryError{errTimeRanOut}
	}
	return &DeliveryError{errNotAwaited}
}

// flushRead posts the Read that ends an iWARP connection, behind our last word,
// when the peer serves one more. It takes no receive of the peer, so that it may
// be posted also after SHUTDOWNs both ways. If all that was written has arrived it is
// about the last word alone: then Close leaves it to Linger, and a device that works in
// its caller needs none (see delivered).
func (s *Stream) flushRead() {
	if s.immediate || s.finalRead || !s.state.closed || s.ended() || s.lastWord == 0 || !s.state.discPosted && !s.over() ||
		s.hasArrived() && (s.callerDriven || !s.parting) {
		return
	}
	outstanding := 0
	if s.probe.outstanding {
		outstanding = 1
	}
	if s.peerReads <= outstanding {
		return
	}
	s.finalRead = true
	s.postEmpty(verbs.OpRead)
}

// postEmpty posts a Write or Read of no bytes, which the peer does not notice,
// and asks for its completion.
func (s *Stream) postEmpty(op verbs.Opcode) (id uint64) {
	id = s.sq.add(0)
	wr := s.request(0)
	*wr = verbs.SendWR{ID: id, Opcode: op}
	if op == verbs.OpRead {
		// siw wants an element, of no bytes, to read into, and iWARP one
		// that the peer may write.
		wr.RemoteAddr, wr.RKey = s.peerSGL.Addr, s.peerSGL.Key
		wr.NumSGE = 1
		wr.SGE[0] = verbs.SGE{Addr: s.readRing.addr, LKey: s.mem.remote.LKey()}
	}
	s.signalNext = true
	s.post(1)
	s.attend()
	return id
}
