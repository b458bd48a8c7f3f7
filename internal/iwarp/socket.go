package iwarp

import (
	"io"
	"time"
)

// A wire is the TCP socket of a connection as the data path needs it: never
// blocking by itself, and waited for apart from that. Tests have one of their
// own.
//
// read is called with the connection's receive lock held, write with its
// transmit lock, and close with both; the two waits with neither. That is why
// an implementation may use its descriptor as a plain number.
type wire interface {
	// read reads into dst, and what does not fit there into spill. It fails
	// with errAgain when there is nothing to read, and with io.EOF at the end.
	read(dst, spill []byte) (int, error)

	// write writes the slices one after the other, perhaps less than all. It
	// fails with errAgain when there is no room. A record is not joined, on its
	// way, with what is written after it, where the platform knows how.
	write(vec [][]byte, record bool) (int, error)

	// waitReadable calls try, as syscall.RawConn.Read does, until it returns
	// true: first at once, and then whenever the socket may have become
	// readable. It fails when the read deadline is over or the socket is
	// closed.
	waitReadable(try func(uintptr) bool) error

	// waitWritable is the same for writing, without a deadline.
	waitWritable(try func(uintptr) bool) error

	setReadDeadline(t time.Time) error

	// finish tells the peer that nothing more will be written.
	finish() error

	// unsent reports whether something that was written has not left this
	// host; false where the platform cannot tell.
	unsent() bool

	// silence is how long ago the peer's TCP last confirmed something, and
	// false where the platform cannot tell.
	silence() (time.Duration, bool)

	// acknowledged reports whether the peer's TCP has all that was written,
	// and what finish says; false where the platform cannot tell.
	acknowledged() bool

	// unconfirmed reports whether the peer's TCP has not confirmed all that was
	// written, and known whether the platform can tell.
	unconfirmed() (some, known bool)

	// segmentSize is TCP's maximum segment size.
	segmentSize() int

	close() error
}

// maxVec is how many slices write is given at most. Up to that many the vectors
// of golang.org/x/sys stay on the stack.
const maxVec = 8

// end translates what a read that returned no bytes means.
func end(n int, err error) (int, error) {
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return n, err
}
