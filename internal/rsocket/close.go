package rsocket

import (
	"net"
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
// the peer is told, with DISCONNECT, behind all that was written. Then it waits
// as Linger does, for at most timeout, and returns ErrNotDelivered if that was
// not enough. When it has returned, the connection may be disconnected, but the
// memory is in use until Release. The second Close returns net.ErrClosed.
func (s *Stream) Close(timeout time.Duration) error {
	s.mu.Lock()
	if s.state.closed {
		s.mu.Unlock()
		return net.ErrClosed
	}
	s.state.closed = true
	s.discard()
	s.flush()
	s.stopTimers()
	s.wakeAll()
	s.mu.Unlock()
	sweeper.remove(s)
	return s.Linger(timeout)
}

// Linger waits, after Close, for at most timeout, until the peer's device has
// all that was written, or until the connection has ended in another way. On
// iWARP, where a completion only says that TCP has taken the bytes, that is known
// by the answer to a Read behind them, if the peer serves Reads; if not, the
// connection's end is waited for, which comes when the peer closes too.
func (s *Stream) Linger(timeout time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.state.established || !s.enter() {
		return nil
	}
	defer s.leave()
	w := &s.closer
	s.setDeadline(w, time.Now().Add(timeout))
	s.poll()
	s.await(w)
	if w.timer != nil {
		w.timer.Stop()
	}
	if !s.delivered() && !s.ended() {
		return ErrNotDelivered
	}
	return nil
}

// closeDone reports whether Linger need not wait.
func closeDone(s *Stream) bool {
	return s.delivered() || s.ended() || s.closer.expired || s.state.released
}

// ended reports whether waiting for our own work is of no use any more.
func (s *Stream) ended() bool {
	st := &s.state
	return st.peerClosed || st.disconnected || st.flushed || st.failed != nil
}

// delivered reports whether the peer's device has all that we sent, our last
// word included.
func (s *Stream) delivered() bool {
	if !s.state.discPosted && !s.over() || s.sq.retired < s.lastWord {
		return false
	}
	return s.immediate || s.finalRead.done
}

// A finalRead is the zero-length Read that ends an iWARP connection.
type finalRead struct {
	posted, done bool
	id           uint64
}

// flushRead posts the Read that ends an iWARP connection, behind our last word,
// when the peer serves one more. It takes no receive of the peer, so that it may
// be posted also after SHUTDOWNs both ways.
func (s *Stream) flushRead() {
	r := &s.finalRead
	if s.immediate || r.posted || !s.state.closed || s.ended() || s.lastWord == 0 || !s.state.discPosted && !s.over() {
		return
	}
	outstanding := 0
	if s.probe.outstanding {
		outstanding = 1
	}
	if s.peerReads <= outstanding {
		return
	}
	r.posted = true
	r.id = s.postEmpty(verbs.OpRead)
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
