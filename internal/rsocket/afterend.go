package rsocket

import "time"

// A Write after the peer's end
//
// Over TCP the first Write after the peer has closed succeeds: the kernel takes
// the bytes, the peer's host answers with a reset, and only the next Write fails.
// Some programs need that. A tls.Conn says goodbye when it closes, and net/smtp's
// Client.Quit returns an error if that fails, also if the server has closed first,
// as it should. Others need the opposite: a pool of connections must be told when
// it writes a command to a connection that the server has closed while it lay
// idle, with nothing written, so that it can take another connection.
//
// What tells the two apart is whether the program has been talking to the peer:
//
//	the connection was in use, or Read      the first Write is accepted, and
//	has returned io.EOF to the program      its bytes are dropped
//	it was idle for longer than idleAfter   EPIPE, nothing is written
//	later Writes                            EPIPE
//
// To know, a Write on an idle connection first takes what has come.

// idleAfter is how long a connection that nobody uses counts as in use. A goodbye
// follows the peer's last word within microseconds, or after some milliseconds of
// work, and a connection that a pool hands out again within this time has hardly
// been closed by its server, whose time-outs are seconds.
const idleAfter = 50 * time.Millisecond

// epoch is what clock counts from. time.Since, unlike time.Now, reads one clock.
var epoch = time.Now()

func clock() time.Duration { return time.Since(epoch) }

// wasIdle reports whether nobody has used the stream lately, and notes that
// somebody does now.
func (s *Stream) wasIdle() bool {
	now := clock()
	idle := now-s.lastUse > idleAfter
	s.lastUse = now
	return idle
}

// lookPolls bounds the polls of a look, against a peer that never pauses.
const lookPolls = 32

// look takes what has come. It polls again after a poll that found nothing: a
// device that works in its caller leaves out a read if the last one has emptied
// its socket.
func (s *Stream) look() {
	for n, misses := 0, 0; n < lookPolls && misses < 2 && !s.state.peerClosed; n++ {
		if s.poll() {
			misses = 0
		} else {
			misses++
		}
	}
}

// writeAfterEnd is what a Write of total bytes returns that has met err when it had
// written n. One that had waited for long counts as idle.
func (s *Stream) writeAfterEnd(n, total int, idle bool, err error) (int, error) {
	st := &s.state
	if !st.peerClosed || st.closed || st.writeShut || s.writer.expired || total == 0 {
		return n, err
	}
	told := s.endTold
	s.endTold = true
	if n > 0 || told || idle && !s.eofTold {
		return n, err
	}
	return total, nil
}
