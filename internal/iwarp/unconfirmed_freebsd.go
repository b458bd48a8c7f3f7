package iwarp

import "golang.org/x/sys/unix"

// fionwrite is FIONWRITE of sys/filio.h.
const fionwrite = 0x40046677

func (s *socket) unconfirmed() (some, known bool) {
	n, err := unix.IoctlGetInt(s.fd, fionwrite)
	return n > 0, err == nil
}
