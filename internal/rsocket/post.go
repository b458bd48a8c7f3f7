package rsocket

import (
	"fmt"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// The slots of the send queue are shared so that nothing that must go out waits
// for what can wait: data leaves dataReserve slots free, grants leave
// lastReserve, and those are for one of each: SHUTDOWN, DISCONNECT, a keepalive
// or a nudge, and the Read that ends an iWARP connection.
const (
	dataReserve = 16
	lastReserve = 5
)

// perMessage is how many slots a Write with a message takes.
func (s *Stream) perMessage() int {
	if s.immediate {
		return 1
	}
	return 2
}

// slots reports whether n slots are free beside a reserve.
func (s *Stream) slots(n, reserve int) bool {
	return s.sq.used()+s.reserved+n+reserve <= s.sq.depth
}

// flush sends what the state of the stream asks for, beside data: grants,
// SHUTDOWN, DISCONNECT, and the Read that ends an iWARP connection. It is called
// after every change that could ask for one. Called with mu held.
func (s *Stream) flush() {
	s.hold()
	s.flushGrants()
	s.flushControl()
	s.unhold()
	s.attend()
}

// speak lets the acceptor of an iWARP connection speak, which waits for the dialer's
// first word, where no grant is that. Called with mu held.
func (s *Stream) speak() {
	if s.callerDriven && !s.cfg.Acceptor && s.sq.posted == 0 && s.canPost() {
		s.postGrant(0, 0)
	}
}

// flushGrants sends the grants that are due.
func (s *Stream) flushGrants() {
	for !s.state.closed && s.canPost() && s.slots(s.perMessage(), lastReserve) {
		offset, n := s.rx.nextWindow()
		if n == 0 && !s.rx.wantsLimit() || s.state.peerShut {
			break
		}
		s.postGrant(offset, n)
	}
}

// flushControl sends the last words, as far as they are due.
func (s *Stream) flushControl() {
	if s.state.writeShut && !s.state.shutPosted && s.canPost() {
		s.state.shutPosted = true
		s.postControl(ctrlShutdown)
	}
	if s.state.closed && !s.state.discPosted && s.canPost() {
		s.state.discPosted = true
		s.postControl(ctrlDisconnect)
	}
	s.flushRead()
}

// postGrant sends the credit limit, and with it a window of the read ring unless
// n is 0.
func (s *Stream) postGrant(offset, n int) {
	m := newMessage(msgCredits, uint32(s.rx.newLimit()))
	if n == 0 {
		s.postMessage(m)
		return
	}
	wr := s.request(0)
	*wr = verbs.SendWR{
		RemoteAddr: s.peerSGL.Addr + uint64(s.rx.entry*sglEntrySize),
		RKey:       s.peerSGL.Key,
		NumSGE:     1,
	}
	at := s.ctrlSlot(s.sq.posted)
	s.peerOrder.putEntry(s.ctrl.buf[at:], Segment{
		Addr: s.readRing.addr + uint64(offset),
		Key:  s.readRing.key,
		Len:  uint32(n),
	})
	s.ctrl.gather(&wr.SGE, int64(at), sglEntrySize)
	if sglEntrySize <= s.inline {
		wr.Flags = verbs.FlagInline
	}
	s.rx.grantWindow(n)
	s.postWrite(m, 0)
}

// postControl sends a control message. It is one of the last words of this
// side: Close waits for its completion.
func (s *Stream) postControl(value uint32) {
	s.signalNext = true
	s.postMessage(newMessage(msgControl, value))
	s.lastWord = s.sq.posted
}

// postMessage sends a message with no data.
func (s *Stream) postMessage(m message) {
	if s.immediate {
		*s.request(0) = verbs.SendWR{RemoteAddr: s.peerSGL.Addr, RKey: s.peerSGL.Key}
		s.postWrite(m, 0)
		return
	}
	s.prepareSend(s.request(0), m)
	s.post(1)
}

// postWrite sends a message with the Write that is prepared in request(0), but for
// what depends on the transport. The Write needs n bytes of the write ring.
func (s *Stream) postWrite(m message, n int) {
	wr := s.request(0)
	wr.ID = s.sq.add(n)
	if s.immediate {
		wr.Opcode = verbs.OpWriteImm
		wr.Imm = uint32(m)
		s.post(1)
		return
	}
	wr.Opcode = verbs.OpWrite
	if wr.Flags&verbs.FlagInline == 0 && !s.callerDriven {
		// siw may let TCP read the memory of a Write that asks for no
		// completion long after later requests have completed.
		wr.Flags |= verbs.FlagSignaled
		s.sq.signal()
	}
	s.prepareSend(s.request(1), m)
	s.post(2)
}

// prepareSend makes wr the Send that carries a message on iWARP.
func (s *Stream) prepareSend(wr *verbs.SendWR, m message) {
	id := s.sq.add(0)
	at := s.ctrlSlot(id)
	s.order.putUint32(s.ctrl.buf[at:], uint32(m))
	*wr = verbs.SendWR{ID: id, Opcode: verbs.OpSend, NumSGE: 1}
	s.ctrl.gather(&wr.SGE, int64(at), msgSize)
	if msgSize <= s.inline {
		wr.Flags = verbs.FlagInline
	}
}

// ctrlSlot is where the control memory of a request lies. It is free until the
// request is retired.
func (s *Stream) ctrlSlot(id uint64) int { return int(id%uint64(s.sq.depth)) * ctrlSize }

// request is the i-th of the next requests to be posted.
func (s *Stream) request(i int) *verbs.SendWR { return &s.swr[s.held+i] }

// post hands the next n requests to the device, or has them wait for others. The
// last asks for a completion if it must, or if it is time for one.
func (s *Stream) post(n int) {
	if s.signalNext || s.sq.wantsSignal(s.writeRing.size()) {
		s.signalNext = false
		s.request(n - 1).Flags |= verbs.FlagSignaled
		s.sq.signal()
	}
	before := s.held
	s.held += n
	switch {
	case s.own != nil: // the request that it belongs to has to be the first
		s.postHeld(before)
		s.postFrom(s.own)
	case !s.holding || s.held > maxHeld-2:
		s.postHeld(s.held)
	}
}

// hold makes what is posted wait for the unhold that follows under the same lock,
// so that it goes out together: to a device that works in its caller each post
// is a system call.
func (s *Stream) hold() { s.holding = s.callerDriven }

func (s *Stream) unhold() {
	s.holding = false
	s.postHeld(s.held)
}

// postHeld hands over the first n of the requests that are ready.
func (s *Stream) postHeld(n int) {
	if n == 0 {
		return
	}
	taken, err := s.qp.PostSend(s.swr[:n])
	s.posted(n, taken, err)
}

// postFrom hands over all that are ready. The payload of the first is own.
func (s *Stream) postFrom(own []byte) {
	taken, err := s.direct.PostFrom(s.swr[:s.held], own)
	s.posted(s.held, taken, err)
}

// posted takes n requests out of those that are ready.
func (s *Stream) posted(n, taken int, err error) {
	if err != nil || taken < n {
		s.unusable(fmt.Errorf("post to the send queue: %d of %d requests taken: %w", taken, n, err))
	}
	s.held = copy(s.swr[:], s.swr[n:s.held])
}

// unusable notes that the device takes no more work. Mostly that is because the
// connection has just ended, which its event will say; sweep fails the stream
// with err if not.
func (s *Stream) unusable(err error) {
	s.state.flushed = true
	if s.state.postErr == nil {
		s.state.postErr = err
	}
}

// repost posts the receives that are owed, as long as anything may still come.
func (s *Stream) repost() {
	st := &s.state
	for s.recvOwed > 0 && !s.over() && !st.disconnected && !st.flushed && st.failed == nil {
		if err := s.postReceives(); err != nil {
			s.unusable(err)
		}
	}
}

// postReceives posts a batch of the receives that are owed. They complete in
// order, so the places of the inbox are used in order too.
func (s *Stream) postReceives() error {
	n := min(s.recvOwed, len(s.rwr))
	receives := s.cfg.RecvDepth + spareReceives
	next := s.recvNext
	for i := range s.rwr[:n] {
		s.rwr[i] = verbs.RecvWR{ID: recvID | uint64(next)}
		if !s.immediate {
			s.rwr[i].SGE = verbs.SGE{
				Addr:   s.inbox.addr + uint64(next*msgSize),
				Length: msgSize,
				LKey:   s.inbox.key,
			}
		}
		next = (next + 1) % receives
	}
	taken, err := s.qp.PostRecv(s.rwr[:n])
	s.recvNext = (s.recvNext + taken) % receives
	s.recvOwed -= taken
	if err != nil || taken < n {
		return fmt.Errorf("post to the receive queue: %d of %d requests taken: %w", taken, n, err)
	}
	return nil
}
