package rsocket

import (
	"net"
	"os"
	"syscall"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// A long write is sent in pieces, so that the device works while the rest is
// copied, and the peer can read the first while the second is under way. C's
// largest has 64 KiB too; it would accept more. C begins with shorter ones, but each
// piece costs both ends a message.
//
// A device that works in its caller does nothing meanwhile, and each piece
// costs it a system call: there they are longer.
const (
	longestPiece       = 64 << 10
	longestCallerPiece = 256 << 10
)

func pieceFor(info verbs.DeviceInfo) int {
	if info.CallerDriven {
		return longestCallerPiece
	}
	return longestPiece
}

// minDirect is from how many bytes on a buffer of the caller's is sent as a
// message of its own, where that spares a copy.
const minDirect = 1 << 10

// pollEvery is how many messages Writes that never had to wait may post without
// a look at what the peer says.
const pollEvery = 8

// Write hands all of p to the device, as far as the peer grants room for it, and
// waits where it does not. It returns how many bytes were handed over. Its
// errors are os.ErrDeadlineExceeded, net.ErrClosed, syscall.EPIPE after
// CloseWrite or when the peer has closed, a *ProtocolError, or a *ConnError. The
// first Write after the peer has closed may succeed: see afterend.go.
func (s *Stream) Write(p []byte) (int, error) {
	s.wlock.Lock()
	defer s.wlock.Unlock()
	s.gather[0] = p
	n, err := s.write(s.gather[:], len(p))
	s.gather[0] = nil
	return n, err
}

// WriteBuffers writes the contents of all buffers as one Write would, and takes
// what was written out of *v.
func (s *Stream) WriteBuffers(v *net.Buffers) (int64, error) {
	s.wlock.Lock()
	defer s.wlock.Unlock()
	total := 0
	for _, b := range *v {
		total += len(b)
	}
	n, err := s.write(*v, total)
	consume(v, n)
	return int64(n), err
}

// consume takes the first n bytes out of *v.
func consume(v *net.Buffers, n int) {
	for len(*v) > 0 {
		if first := len((*v)[0]); first > n {
			(*v)[0] = (*v)[0][n:]
			return
		} else {
			n -= first
		}
		(*v)[0] = nil
		*v = (*v)[1:]
	}
}

// write writes total bytes out of vec. Called with wlock held.
func (s *Stream) write(vec [][]byte, total int) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.closed || !s.enter() {
		return 0, net.ErrClosed
	}
	defer s.leave()
	s.writeLeft = total
	idle := s.wasIdle()
	if idle || s.sincePoll >= pollEvery || s.writeRoom() == 0 {
		s.sincePoll = 0
		s.look()
	}
	if err := s.writeError(); err != nil {
		return s.writeAfterEnd(0, total, idle, err)
	}
	src := source{vec: vec}
	for n < total {
		if s.sincePoll >= pollEvery {
			s.sincePoll = 0
			s.poll()
		}
		s.writeLeft = total - n
		s.await(&s.writer)
		if err := s.writeError(); err != nil {
			return s.writeAfterEnd(n, total, idle || clock()-s.lastUse > idleAfter, err)
		}
		k := s.writeRoom()
		var own []byte
		switch own = src.direct(s, k); {
		case own != nil:
			k = len(own)
		case k <= s.inline:
			src.read(s.staging.buf[:k])
		default:
			// The bytes at head belong to the holder of wlock.
			head := s.sq.head
			s.reserved = s.perMessage()
			s.mu.Unlock()
			src.fill(&s.writeRing, head, k)
			s.mu.Lock()
			s.reserved = 0
			if err := s.writeError(); err != nil {
				return s.writeAfterEnd(n, total, idle, err)
			}
			if !s.canPost() {
				// It has just ended; the bytes do not matter any more.
				src.unread(k)
				continue
			}
		}
		s.hold()
		s.flushGrants()
		s.postData(k, own)
		s.unhold()
		s.wrote()
		n += k
	}
	return n, nil
}

// postData sends the next k bytes: own, if it is not nil; those at head of the
// write ring; or those in staging if they are few enough.
func (s *Stream) postData(k int, own []byte) {
	wr := s.request(0)
	*wr = verbs.SendWR{}
	wr.RemoteAddr, wr.RKey = s.tx.take(k)
	s.sincePoll++
	m := newMessage(msgData, uint32(k))
	if k <= s.inline && own == nil {
		wr.Flags = verbs.FlagInline
		wr.NumSGE = s.staging.gather(&wr.SGE, 0, k)
		s.postWrite(m, 0)
		return
	}
	wr.NumSGE = s.writeRing.gather(&wr.SGE, s.sq.head, k)
	s.own = own
	s.postWrite(m, k)
	s.own = nil
}

// writeDone reports whether a Write need not wait.
func writeDone(s *Stream) bool { return s.writeRoom() > 0 || s.writeError() != nil }

// writeError is why a Write must fail, nil if it may go on.
func (s *Stream) writeError() error {
	st := &s.state
	switch {
	case st.closed:
		return net.ErrClosed
	case s.writer.expired:
		return os.ErrDeadlineExceeded
	case st.writeShut, st.peerClosed:
		return syscall.EPIPE
	case st.failed != nil:
		return st.failed
	}
	return st.lost
}

// writeRoom is how many of the writeLeft bytes may be sent in one message; 0 if
// it has to wait: for a window or credits, for slots, or for room in the write
// ring, and of that for enough to be worth a message.
func (s *Stream) writeRoom() int {
	if !s.canPost() || !s.slots(s.perMessage(), dataReserve) {
		return 0
	}
	n := min(s.writeLeft, s.tx.room(), s.piece)
	if n <= s.inline {
		return n
	}
	size := s.writeRing.size()
	free := size - int(s.sq.head-s.sq.tail)
	if free < min(n, size/8) {
		return 0
	}
	return min(n, free)
}

// A source is a vector of buffers being read.
type source struct {
	vec [][]byte
	i   int // buffer
	off int // byte of it
}

// fill copies n bytes to pos of a ring.
func (v *source) fill(r *ring, pos int64, n int) {
	for n > 0 {
		b := v.vec[v.i][v.off:]
		if len(b) == 0 {
			v.i, v.off = v.i+1, 0
			continue
		}
		k := min(n, len(b))
		r.write(pos, b[:k])
		v.off += k
		pos += int64(k)
		n -= k
	}
}

// direct returns up to n bytes that the stream can send from where they are, if
// there are so many in one place that it is worth it.
func (v *source) direct(s *Stream, n int) []byte {
	if s.direct == nil {
		return nil
	}
	for v.off == len(v.vec[v.i]) { // n > 0: there are more
		v.i, v.off = v.i+1, 0
	}
	b := v.vec[v.i][v.off:]
	if n = min(n, len(b)); n < minDirect {
		return nil
	}
	v.off += n
	return b[:n]
}

// read copies len(p) bytes to p.
func (v *source) read(p []byte) {
	for len(p) > 0 {
		k := copy(p, v.vec[v.i][v.off:])
		v.off += k
		p = p[k:]
		if len(p) > 0 {
			v.i, v.off = v.i+1, 0
		}
	}
}

// unread goes n bytes back.
func (v *source) unread(n int) {
	for n > v.off {
		n -= v.off
		v.i--
		v.off = len(v.vec[v.i])
	}
	v.off -= n
}
