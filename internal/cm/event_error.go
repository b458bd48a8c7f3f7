package cm

import (
	"fmt"
	"syscall"
)

// eventErrno is the errno that a failing event stands for.
//
// reject.go has the rejects. The status of the others is a negated errno; a
// positive one comes from the fabric and has no errno of its own.
func eventErrno(ev Event) syscall.Errno {
	switch ev.Type {
	case Rejected:
		return rejectErrno(ev.Status)
	case DeviceRemoval:
		return syscall.ENODEV
	case Disconnected:
		return syscall.ECONNRESET
	}
	switch {
	case ev.Status < 0:
		return syscall.Errno(-ev.Status)
	case ev.Type == AddrInfoError && ev.Status > 0:
		return syscall.Errno(ev.Status) // librdmacm does not negate it here
	}
	switch ev.Type {
	case AddrInfoError, AddrError, RouteError, Unreachable:
		return syscall.EHOSTUNREACH
	case ConnectError:
		return syscall.ECONNABORTED
	}
	return syscall.EPROTO
}

// eventCause is why an event says that something failed: what the provider knows
// of it, and the errno, unless the provider's error is that already.
func eventCause(errno syscall.Errno, ev Event) error {
	switch {
	case ev.Err == nil:
		return errno
	case errnoOf(ev.Err) == errno:
		return ev.Err
	}
	return fmt.Errorf("%w: %w", errno, ev.Err)
}

// eventNote is an event in words, for an error's text.
func eventNote(t EventType, status int) string {
	switch {
	case t == Rejected && status > 0:
		return fmt.Sprintf("%v, reason %d: %s", t, status, rejectReason(status))
	case status != 0:
		return fmt.Sprintf("%v, status %d", t, status)
	}
	return t.String()
}
