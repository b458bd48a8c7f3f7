package iwarp

import (
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// peek waits until there is something to read, or the end, and copies it without
// taking it. It copies nothing at the end.
func peek(conn syscall.Conn, b []byte) (n int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peekErr error
	waited := false
	err = raw.Read(func(fd uintptr) bool {
		if !waited { // the socket blocks: only what is readable is looked at
			waited = true
			return false
		}
		buf := windows.WSABuf{Len: uint32(len(b)), Buf: &b[0]}
		var got uint32
		flags := uint32(windows.MSG_PEEK)
		peekErr = windows.WSARecv(windows.Handle(fd), &buf, 1, &got, &flags, nil, nil)
		n = int(got)
		return true
	})
	if err != nil {
		return 0, err
	}
	if peekErr != nil {
		return 0, os.NewSyscallError("wsarecv", peekErr)
	}
	return n, nil
}
