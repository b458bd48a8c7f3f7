package iwarp

import "golang.org/x/sys/unix"

func (s *socket) unconfirmed() (some, known bool) {
	n, err := unix.IoctlGetInt(s.fd, unix.TIOCOUTQ) // on a socket it is SIOCOUTQ
	return n > 0, err == nil
}
