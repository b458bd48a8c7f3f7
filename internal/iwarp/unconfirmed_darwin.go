package iwarp

import "golang.org/x/sys/unix"

func (s *socket) unconfirmed() (some, known bool) {
	n, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_NWRITE)
	return n > 0, err == nil
}
