package rsocket

import (
	"net"
	"time"
)

// SetDeadline sets both deadlines, as net.Conn has it.
func (s *Stream) SetDeadline(t time.Time) error {
	return s.setDeadlines(t, &s.reader, &s.writer)
}

// SetReadDeadline sets the deadline of Reads, those under way included.
func (s *Stream) SetReadDeadline(t time.Time) error {
	return s.setDeadlines(t, &s.reader)
}

// SetWriteDeadline sets the deadline of Writes, those under way included.
func (s *Stream) SetWriteDeadline(t time.Time) error {
	return s.setDeadlines(t, &s.writer)
}

func (s *Stream) setDeadlines(t time.Time, ws ...*waiter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.closed {
		return net.ErrClosed
	}
	for _, w := range ws {
		s.setDeadline(w, t)
	}
	return nil
}

// setDeadline sets w's deadline; the zero time is none. Called with mu held.
func (s *Stream) setDeadline(w *waiter, t time.Time) {
	w.deadline = t
	w.expired = false
	if t.IsZero() {
		if w.timer != nil {
			w.timer.Stop()
		}
		return
	}
	left := time.Until(t)
	switch {
	case left <= 0:
		s.expire(w)
	case w.timer == nil:
		w.timer = time.AfterFunc(left, func() { s.checkDeadline(w) })
	default:
		w.timer.Reset(left)
	}
}

// checkDeadline is the timer of a deadline. The deadline may have changed while
// it waited for mu: what counts is what it is by then.
func (s *Stream) checkDeadline(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.deadline.IsZero() || w.expired {
		return
	}
	if left := time.Until(w.deadline); left > 0 {
		w.timer.Reset(left)
		return
	}
	s.expire(w)
}

func (s *Stream) expire(w *waiter) {
	w.expired = true
	w.wake()
	if s.driving {
		s.cq.Wake()
	}
}

// stopTimers stops the timers that serve Reads and Writes.
func (s *Stream) stopTimers() {
	for _, t := range []*time.Timer{s.reader.timer, s.writer.timer, s.nudge} {
		if t != nil {
			t.Stop()
		}
	}
}
