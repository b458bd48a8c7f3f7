//go:build unix

package iwarp

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func socketsSupported() error { return nil }

// A socket is a TCP socket behind an os.File. A net.TCPConn would do, but it
// makes a new error for each wait that a deadline ends, and waits are ended that
// way on the data path.
type socket struct {
	file *os.File
	raw  syscall.RawConn
	fd   int // used under the connection's locks: see wire
}

var _ wire = (*socket)(nil)

// newSocket takes over a connection, also if it fails.
func newSocket(conn tcpConn) (wire, error) {
	file, err := fileOf(conn)
	if err != nil {
		return nil, fmt.Errorf("duplicate socket: %w", err)
	}
	s := &socket{file: file, fd: -1}
	if s.raw, err = file.SyscallConn(); err == nil {
		// Not File.Fd, which would make the socket a blocking one.
		err = s.raw.Control(func(fd uintptr) { s.fd = int(fd) })
	}
	if err == nil {
		err = file.SetDeadline(time.Time{}) // that of the set-up; fails if the poller has not taken it
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("wait for socket: %w", err)
	}
	return s, nil
}

func (s *socket) waitReadable(try func(uintptr) bool) error { return s.raw.Read(try) }

func (s *socket) waitWritable(try func(uintptr) bool) error { return s.raw.Write(try) }

func (s *socket) setReadDeadline(t time.Time) error { return s.file.SetReadDeadline(t) }

func (s *socket) finish() error { return unix.Shutdown(s.fd, unix.SHUT_WR) }

func (s *socket) segmentSize() int {
	n, err := unix.GetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG)
	if err != nil {
		return 0
	}
	return n
}

func (s *socket) close() error { return s.file.Close() }

// wouldBlock makes a system call's error one of a wire.
func wouldBlock(n int, err error) (int, error) {
	if err == unix.EAGAIN {
		return 0, errAgain
	}
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	return n, nil
}
