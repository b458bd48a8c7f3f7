package rdmacore

import (
	"fmt"
	"syscall"
)

// An Error is a call of librdmacm or libibverbs that has failed.
type Error struct {
	Call string // the function's name

	// Code is the errno of the call; or a negative code of getaddrinfo(3),
	// as rdma_resolve_addrinfo(3) and rdma_getaddrinfo(3) hand it out; or
	// 0 where the call has failed without saying why.
	Code int

	Hint string // what a person can do about it, if anything is known
}

func (e *Error) Error() string {
	var why string
	switch {
	case e.Code > 0:
		why = syscall.Errno(e.Code).Error()
	case e.Code == -1:
		// librdmacm negates what it does not know to be negative already
		why = "error -1 (EAI_BADFLAGS, or librdmacm lost the reason)"
	case e.Code < 0:
		why = fmt.Sprintf("error %d", e.Code)
		if name := eaiNames[e.Code]; name != "" {
			why += " (" + name + ")"
		}
	default:
		why = "failed without saying why"
	}
	if e.Hint != "" {
		why += " (" + e.Hint + ")"
	}
	return e.Call + ": " + why
}

// Unwrap is the errno, for errors.Is and errors.As; nil where there is none.
func (e *Error) Unwrap() error {
	if e.Code > 0 {
		return syscall.Errno(e.Code)
	}
	return nil
}

// The codes of getaddrinfo(3), as glibc and musl number them.
var eaiNames = map[int]string{
	-2: "EAI_NONAME: not a numeric address", -3: "EAI_AGAIN: temporary failure in name resolution",
	-4: "EAI_FAIL: failure in name resolution", -5: "EAI_NODATA: no address associated with the name",
	-6: "EAI_FAMILY: address family not supported", -7: "EAI_SOCKTYPE: socket type not supported",
	-8: "EAI_SERVICE: no such service", -10: "EAI_MEMORY: out of memory",
	-11: "EAI_SYSTEM: system error", -12: "EAI_OVERFLOW: argument too long",
}

// An UnavailableError says why this program cannot use RDMA devices here.
type UnavailableError struct {
	Reason string // what is missing
	Advice string // what a person can do about it
	Err    error  // the error behind it; nil if there is none
}

func (e *UnavailableError) Error() string {
	s := "RDMA devices cannot be used: " + e.Reason
	if e.Advice != "" {
		s += " (" + e.Advice + ")"
	}
	return s
}

func (e *UnavailableError) Unwrap() error { return e.Err }
