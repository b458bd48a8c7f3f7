package iwarp

import (
	"io"
	"net"
	"time"
)

// A listener may serve peers that speak no MPA as well. They show by their first
// bytes, which are looked at and not taken, so that the connection which is handed
// over is TCP's own, with all of what the peer has said still to be read.

// peekPause is how long a peer that has said a part of the key gets for the rest
// before it is looked at again, at first and at most.
const (
	peekPause    = time.Millisecond
	maxPeekPause = 100 * time.Millisecond
)

// speaksPlain waits for a peer's first bytes, and reports whether they are no
// beginning of an MPA request. It fails with io.EOF if the peer says nothing before
// its end, with io.ErrUnexpectedEOF if it ends within the key, and with an error that
// is a Timeout when the connection's read deadline is over.
//
// A part of the key is looked at again and again, since it makes the socket
// readable whether more comes or not. Where the platform does not show the end behind
// it, the deadline decides.
func (l *listener) speaksPlain(conn tcpConn) (bool, error) {
	var b [len(requestKey)]byte
	for pause := peekPause; ; pause = min(2*pause, maxPeekPause) {
		ended := conn.ended() // before the look: nothing can come behind that is not seen
		n, err := peek(conn, b[:])
		switch {
		case err != nil:
			return false, err
		case n == 0:
			return false, io.EOF
		case string(b[:n]) != requestKey[:n]:
			return true, nil
		case n == len(requestKey):
			return false, nil
		case ended:
			return false, io.ErrUnexpectedEOF
		case pause == peekPause:
			l.partly(conn)
		}
		if !l.sleep(pause) {
			return false, net.ErrClosed
		}
	}
}
