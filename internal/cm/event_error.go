package cm

import (
	"fmt"
	"syscall"
)

// eventErrno is the errno that a failing event stands for.
//
// Any reject is a refusal: InfiniBand and RoCE give a positive reason, iWARP a
// negated errno that says how the peer closed TCP. The status of the others is
// a negated errno; a positive one comes from the fabric and has no errno of its
// own.
func eventErrno(ev Event) syscall.Errno {
	switch ev.Type {
	case Rejected:
		return syscall.ECONNREFUSED
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

// rejectReason puts a reject reason of the InfiniBand communication manager
// into words (InfiniBand Architecture, volume 1, 12.6.7.2).
func rejectReason(status int) string {
	if status > 0 && status < len(rejectReasons) && rejectReasons[status] != "" {
		return rejectReasons[status]
	}
	return "unknown"
}

var rejectReasons = [...]string{
	1:  "no queue pair available",
	2:  "no end-to-end context available",
	3:  "no resources available",
	4:  "the peer's communication manager timed out",
	5:  "unsupported request",
	6:  "invalid communication ID",
	7:  "invalid communication instance",
	8:  "nobody listens there",
	9:  "invalid transport service type",
	10: "stale connection",
	11: "reliable datagram domain does not exist",
	12: "primary port GID rejected",
	13: "primary port LID rejected",
	14: "invalid primary service level",
	15: "invalid primary traffic class",
	16: "invalid primary hop limit",
	17: "invalid primary packet rate",
	18: "alternate port GID rejected",
	19: "alternate port LID rejected",
	20: "invalid alternate service level",
	21: "invalid alternate traffic class",
	22: "invalid alternate hop limit",
	23: "invalid alternate packet rate",
	24: "port and communication manager redirected",
	25: "port redirected",
	26: "invalid path MTU",
	27: "insufficient responder resources",
	28: "rejected by the application",
	29: "receiver-not-ready retry count rejected",
	30: "duplicate local communication ID",
	31: "invalid class version",
	32: "invalid primary flow label",
	33: "invalid alternate flow label",
	35: "vendor option not supported",
}
