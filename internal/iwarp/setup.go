package iwarp

import (
	"errors"
	"io"
	"net"
	"time"
)

// This file is both sides' I/O of a set-up: a frame is written at once, and
// read with a bound on the time. A timeout of 0 leaves the connection's deadline
// as it is.

// writeSetup writes a frame in one piece: a peer need not be able to take it in
// several.
func writeSetup(conn net.Conn, key string, f *setupFrame, timeout time.Duration) error {
	b := appendSetup(make([]byte, 0, setupHeaderSize+enhancedSize+len(f.private)), key, f)
	if timeout > 0 {
		if err := conn.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
			return err
		}
	}
	_, err := conn.Write(b)
	return err
}

// readSetup reads a frame, and returns too what came behind it. It fails with
// io.EOF if the peer says nothing before its end, and with an error that is a
// Timeout when the time is over.
func readSetup(conn net.Conn, key string, timeout time.Duration) (f setupFrame, surplus []byte, err error) {
	if timeout > 0 {
		if err := conn.SetReadDeadline(time.Now().Add(timeout)); err != nil {
			return f, nil, err
		}
	}
	b := make([]byte, 0, maxSetupFrame)
	for {
		n, err := conn.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		f, size, perr := parseSetup(b, key)
		switch {
		case perr == nil:
			return f, b[size:], nil
		case perr != errShort:
			return f, nil, perr
		case err == io.EOF && len(b) > 0:
			return f, nil, io.ErrUnexpectedEOF
		case err != nil:
			return f, nil, err
		}
	}
}

// isTimeout reports whether an error is about time.
func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// closeBehind closes a connection whose set-up was refused, in a goroutine of
// its own: what was said last gets across before, if the peer takes it in the
// time.
func (n *NIC) closeBehind(conn tcpConn) {
	if n.refused.Add(1) > maxLingering { // how long they take is their choice
		n.refused.Add(-1)
		conn.Close()
		return
	}
	timeout := n.cfg.CloseTimeout
	go func() {
		defer n.refused.Add(-1)
		defer conn.Close()
		if conn.CloseWrite() != nil || conn.SetReadDeadline(time.Now().Add(timeout)) != nil {
			return
		}
		_, _ = io.Copy(io.Discard, conn)
	}()
}
