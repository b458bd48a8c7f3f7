package rsocket

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// recvID marks the ID of a receive; the rest is its place in the inbox. The ID
// of a send is its number in the sendQueue.
const recvID = 1 << 63

// poll takes a batch of completions and acts on them. It reports whether there
// was any. While the driver lingers it does nothing: what comes is the driver's.
// Called with mu held.
func (s *Stream) poll() bool {
	if s.lingering {
		return false
	}
	n, err := s.cq.Poll(s.wc[:])
	if err != nil {
		s.fail(&ConnError{syscall.EIO, "poll the completion queue", err})
	}
	if n == 0 {
		return false
	}
	s.act(n)
	return true
}

// act acts on the first n completions of wc. A flushed completion alone is not the
// end: the connection manager's event says why, and comes soon; sweep sees to it
// that nobody waits for ever if it does not. Called with mu held.
func (s *Stream) act(n int) {
	for i := range s.wc[:n] {
		wc := &s.wc[i]
		if wc.ID&recvID != 0 {
			s.dispatchRecv(wc)
		} else {
			s.dispatchSend(wc)
		}
	}
	if s.recvOwed >= repostBatch {
		s.repost()
	}
	s.flush()
	s.wakeReady()
}

// dispatchSend acts on the completion of something we sent.
func (s *Stream) dispatchSend(wc *verbs.WC) {
	if wc.Status == verbs.WCWRFlushErr {
		s.state.flushed = true
		return
	}
	if wc.Status != verbs.WCSuccess {
		s.fail(s.sendError(wc.Status))
		return
	}
	if !s.sq.retire(wc.ID) {
		s.fail(&ConnError{syscall.EIO, fmt.Sprintf("the device completed request %d of %d", wc.ID, s.sq.posted), nil})
		return
	}
	// On iWARP the completion of a Write or a Send says only that TCP took it.
	if s.immediate || wc.Opcode == verbs.WCRead {
		s.heardFrom++
	}
	if s.probe.outstanding && wc.ID == s.probe.id {
		s.probe.outstanding = false
	}
	switch {
	case s.immediate:
		s.arrived(s.sq.retired)
	case wc.Opcode == verbs.WCRead:
		s.arrived(wc.ID)
	}
}

// dispatchRecv acts on a message of the peer.
func (s *Stream) dispatchRecv(wc *verbs.WC) {
	switch wc.Status {
	case verbs.WCSuccess:
	case verbs.WCWRFlushErr:
		s.state.flushed = true
		return
	case verbs.WCLocLenErr:
		s.fail(protocolErrorf("it sent a message of more than %d bytes", msgSize))
		return
	default:
		s.fail(completionError(wc.Status))
		return
	}
	s.recvOwed++
	s.recvs++
	s.heardFrom++
	if s.state.violated || s.state.peerClosed {
		return
	}
	m, written, err := s.readMessage(wc)
	if err == nil {
		err = s.dispatch(m, written)
	}
	if err != nil {
		s.fail(err)
	}
}

// sendError is what a failed completion of something we sent says. With iWARP the
// failure of this side's queue pair while it sends is that of its TCP connection,
// which the peer, or its host, has reset: siw knows no other word for it.
func (s *Stream) sendError(status verbs.WCStatus) error {
	if !s.immediate && status == verbs.WCLocQPOpErr {
		return &ConnError{syscall.ECONNRESET, "", statusError(status)}
	}
	return completionError(status)
}

// readMessage takes the message out of a completed receive, and how many bytes
// the Write that brought it has written, -1 if that is not known.
func (s *Stream) readMessage(wc *verbs.WC) (m message, written int, err error) {
	if s.immediate {
		if wc.Opcode != verbs.WCRecvImm {
			return 0, 0, protocolErrorf("it sent %d bytes without immediate data", wc.ByteLen)
		}
		return message(wc.Imm), int(wc.ByteLen), nil
	}
	if wc.Opcode != verbs.WCRecv || wc.ByteLen != msgSize {
		return 0, 0, protocolErrorf("it sent a message of %d bytes, want %d", wc.ByteLen, msgSize)
	}
	at := int(wc.ID&^recvID) * msgSize
	return message(s.peerOrder.uint32(s.inbox.buf[at:])), -1, nil
}

// dispatch acts on a message. written is how many bytes were written with it, -1
// if that is not known.
func (s *Stream) dispatch(m message, written int) error {
	switch m.typ() {
	case msgData:
		n := int(m.value())
		if written >= 0 && written != n {
			return protocolErrorf("it wrote %d bytes and announced %d", written, n)
		}
		if s.state.peerShut {
			return protocolErrorf("it sent data after SHUTDOWN")
		}
		if err := s.rx.data(n); err != nil {
			return err
		}
		if s.state.readShut || s.state.closed {
			s.discard()
		}
		return nil

	case msgCredits:
		if written > 0 && written != sglEntrySize {
			return protocolErrorf("it wrote %d bytes with a grant, want %d", written, sglEntrySize)
		}
		if err := s.tx.setLimit(m.credits()); err != nil {
			return err
		}
		if s.tx.allTaken() {
			s.arrived(s.arrival.data)
		}
		return s.takeWindow()

	case msgControl:
		if written > 0 {
			return protocolErrorf("it wrote %d bytes with %v", written, m)
		}
		switch m.value() {
		case ctrlDisconnect:
			s.state.peerClosed = true
			return nil
		case ctrlShutdown:
			s.state.peerShut = true
			return nil
		case ctrlKeepAlive:
			return nil
		}
	}
	return protocolErrorf("it sent an unknown message: %v", m)
}

// takeWindow takes the window that the next entry of our target SGL holds, if
// it holds one. The peer writes there whenever it likes, so it is read word by
// word, once, and erased before the window's first byte is sent: only after that
// does an honest peer write the entry again.
func (s *Stream) takeWindow() error {
	if !s.tx.wantsEntry() {
		return nil
	}
	const words = sglEntrySize / 4
	entry := s.sgl[s.tx.entry*words:][:words]
	var b [sglEntrySize]byte
	for i := range entry {
		binary.NativeEndian.PutUint32(b[i*4:], atomic.LoadUint32(&entry[i]))
	}
	w := s.order.entry(b[:])
	if w.Len == 0 {
		return nil
	}
	atomic.StoreUint32(&entry[words-1], 0)
	return s.tx.addWindow(w)
}

// discard throws away what has been received and not read.
func (s *Stream) discard() {
	if !s.copying {
		s.rx.read = s.rx.received
	}
}
