//go:build unix

package iwarp

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// peek waits until there is something to read, or the end, and copies it without
// taking it. It copies nothing at the end.
func peek(conn syscall.Conn, b []byte) (n int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peekErr error
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, _, peekErr = unix.Recvfrom(int(fd), b, unix.MSG_PEEK)
			if peekErr != unix.EINTR {
				return peekErr != unix.EAGAIN
			}
		}
	})
	if err != nil {
		return 0, err
	}
	if peekErr != nil {
		return 0, os.NewSyscallError("recvfrom", peekErr)
	}
	return n, nil
}
