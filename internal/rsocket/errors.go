package rsocket

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// ErrNotDelivered is what every DeliveryError is to errors.Is.
var ErrNotDelivered = errors.New("not all that was written is known to have reached the peer")

var (
	errTimeRanOut error = &closeCause{"the time that Close may take is over; delivery goes on"}
	errNotAwaited error = &closeCause{"Close was told not to wait; delivery goes on"}
)

type closeCause struct{ text string }

func (e *closeCause) Error() string { return e.text }
func (e *closeCause) Timeout() bool { return true }

// A DeliveryError is Close's error when it is not known that the peer's device
// has all that Write accepted.
type DeliveryError struct {
	Cause error // why the connection failed, or why Close did not wait longer
}

func (e *DeliveryError) Error() string { return ErrNotDelivered.Error() + ": " + e.Cause.Error() }

// Unwrap returns ErrNotDelivered and the cause.
func (e *DeliveryError) Unwrap() []error { return []error{ErrNotDelivered, e.Cause} }

// Timeout is the cause's. It is true where time ran out, or the peer did not
// answer.
func (e *DeliveryError) Timeout() bool {
	t, ok := e.Cause.(interface{ Timeout() bool })
	return ok && t.Timeout()
}

// Temporary is false: the connection is closed.
func (e *DeliveryError) Temporary() bool { return false }

// A ProtocolError says what the peer did that the rsockets protocol forbids. It
// ends the connection.
type ProtocolError struct{ Reason string }

func protocolErrorf(format string, args ...any) error {
	return &ProtocolError{fmt.Sprintf(format, args...)}
}

func (e *ProtocolError) Error() string { return "the peer broke the rsockets protocol: " + e.Reason }

// Unwrap makes it an EPROTO for errors.Is.
func (e *ProtocolError) Unwrap() error { return syscall.EPROTO }

// A ConnError says how a connection was lost. Errno is the errno with which a
// TCP connection would have ended: ECONNRESET, ETIMEDOUT, another of the network;
// EPROTO where the peer violated the device's protocol; or EIO for a failure of
// this side.
type ConnError struct {
	Errno  syscall.Errno
	Reason string
	Cause  error // nil if there is none
}

func (e *ConnError) Error() string {
	if e.Reason == "" && errors.Is(e.Cause, e.Errno) {
		return e.Cause.Error() // which has the errno, in words at least
	}
	text := e.Errno.Error()
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the errno and the cause.
func (e *ConnError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Errno}
	}
	return []error{e.Errno, e.Cause}
}

// Timeout reports whether the peer did not answer in time.
func (e *ConnError) Timeout() bool { return e.Errno.Timeout() }

// Temporary is false: the connection is lost.
func (e *ConnError) Temporary() bool { return false }

// lostError is the end of a connection that the connection manager has told of, with
// what it knows about it, which may be nothing.
func lostError(cause error) error {
	errno := syscall.ECONNRESET
	var e syscall.Errno
	if errors.As(cause, &e) {
		errno = e
	}
	return &ConnError{errno, "", cause}
}

// completionError is what a failed completion says about the connection.
func completionError(status verbs.WCStatus) error {
	switch status {
	case verbs.WCRetryExcErr, verbs.WCRespTimeoutErr:
		return &ConnError{syscall.ETIMEDOUT, "the peer's device does not answer", statusError(status)}
	case verbs.WCRNRRetryExcErr:
		return &ConnError{syscall.ETIMEDOUT, "the peer posts no receives", statusError(status)}
	case verbs.WCRemAccessErr, verbs.WCRemInvReqErr, verbs.WCRemOpErr:
		return &ConnError{syscall.ECONNRESET, "the peer's device refused a request", statusError(status)}
	case verbs.WCRemAbortErr, verbs.WCWRFlushErr:
		return &ConnError{syscall.ECONNRESET, "", statusError(status)}
	}
	return &ConnError{syscall.EIO, "the RDMA device failed", statusError(status)}
}

type statusError verbs.WCStatus

func (e statusError) Error() string { return verbs.WCStatus(e).String() }
