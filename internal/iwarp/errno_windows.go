package iwarp

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/windows"
)

// Package syscall invents errnos such as ECONNREFUSED on Windows, and sockets
// fail with others there.
var portable = map[syscall.Errno]syscall.Errno{
	windows.WSAEACCES:        syscall.EACCES,
	windows.WSAEMFILE:        syscall.EMFILE,
	windows.WSAEADDRINUSE:    syscall.EADDRINUSE,
	windows.WSAEADDRNOTAVAIL: syscall.EADDRNOTAVAIL,
	windows.WSAEAFNOSUPPORT:  syscall.EAFNOSUPPORT,
	windows.WSAENETDOWN:      syscall.ENETDOWN,
	windows.WSAENETUNREACH:   syscall.ENETUNREACH,
	windows.WSAENETRESET:     syscall.ENETRESET,
	windows.WSAECONNABORTED:  syscall.ECONNABORTED,
	windows.WSAECONNRESET:    syscall.ECONNRESET,
	windows.WSAENOBUFS:       syscall.ENOBUFS,
	windows.WSAETIMEDOUT:     syscall.ETIMEDOUT,
	windows.WSAECONNREFUSED:  syscall.ECONNREFUSED,
	windows.WSAEHOSTUNREACH:  syscall.EHOSTUNREACH,
}

// portableError gives an error of a socket the errno that package syscall has
// for it.
func portableError(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		if known, ok := portable[errno]; ok {
			return fmt.Errorf("%w: %w", known, err)
		}
	}
	return err
}
