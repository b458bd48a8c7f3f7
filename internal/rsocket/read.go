package rsocket

import (
	"io"
	"net"
	"os"
)

// Read reads what has come, or waits until something has. Its errors are io.EOF
// at the peer's end of the stream or after CloseRead, os.ErrDeadlineExceeded,
// net.ErrClosed, a *ProtocolError, or a *ConnError. What was received before an
// error is read before it is reported, but after a deadline nothing is.
func (s *Stream) Read(p []byte) (int, error) {
	s.rlock.Lock()
	defer s.rlock.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.closed || !s.enter() {
		return 0, net.ErrClosed
	}
	defer s.leave()
	if len(p) == 0 {
		return 0, nil
	}
	s.await(&s.reader)
	if err := s.readError(); err != nil {
		if err == io.EOF && !s.state.readShut {
			s.eofTold = true
		}
		return 0, err
	}
	s.lastUse = clock()
	return s.drain(p), nil
}

// readDone reports whether a Read need not wait.
func readDone(s *Stream) bool { return s.rx.readable() > 0 || s.readError() != nil }

// readError is why a Read must fail, nil if it may go on.
func (s *Stream) readError() error {
	st := &s.state
	switch {
	case st.closed:
		return net.ErrClosed
	case s.reader.expired:
		return os.ErrDeadlineExceeded
	case st.readShut:
		return io.EOF
	case s.rx.readable() > 0:
		return nil
	case st.peerShut, st.peerClosed:
		return io.EOF
	case st.failed != nil:
		return st.failed
	}
	return st.lost
}

// drain copies what is readable into p, without mu, and grants the room anew
// piece by piece. The bytes are safe meanwhile: they are not granted, and only
// the holder of rlock takes them out.
func (s *Stream) drain(p []byte) (n int) {
	for {
		k := min(len(p)-n, s.rx.readable(), s.rx.ring/ringParts)
		if k == 0 || s.state.closed {
			return n
		}
		pos := s.rx.read
		s.copying = true
		s.mu.Unlock()
		s.readRing.read(p[n:n+k], pos)
		s.mu.Lock()
		s.copying = false
		s.rx.read += int64(k)
		n += k
		if s.state.readShut {
			s.discard()
		}
		s.flush()
	}
}

// CloseRead ends reading: Read returns io.EOF, and what the peer still sends is
// taken and thrown away. The peer is not told; the protocol has no word for it.
func (s *Stream) CloseRead() error {
	s.mu.Lock()
	if s.state.closed {
		s.mu.Unlock()
		return net.ErrClosed
	}
	if s.state.readShut {
		s.mu.Unlock()
		return nil
	}
	s.state.readShut = true
	s.discard()
	s.flush()
	s.wakeAll()
	s.mu.Unlock()
	sweeper.soon(s)
	return nil
}
