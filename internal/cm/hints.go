package cm

import (
	"fmt"
	"syscall"
)

// hint is what a person can do about a failure, where that is known; else "".
// It is put behind the cause in parentheses.
func hint(stage Stage, errno syscall.Errno, status int, dst, local Addr) string {
	host, at := dst.String(), dst.String()
	if dst.AddrPort.IsValid() {
		host = dst.AddrPort.Addr().String()
	}
	switch stage {
	case StageAddr:
		switch errno {
		case syscall.ENODEV:
			return fmt.Sprintf("is %s reachable over an RDMA device?", host)
		case syscall.ENETUNREACH:
			return fmt.Sprintf("there is no IP route to %s", host)
		case syscall.EADDRNOTAVAIL:
			if !local.IsZero() {
				return fmt.Sprintf("is the local address %v one of this host's RDMA devices?", local)
			}
		case syscall.ETIMEDOUT, syscall.EHOSTUNREACH:
			return fmt.Sprintf("does a host have the address %s?", host)
		}
	case StageRoute:
		switch errno {
		case syscall.ENODEV, syscall.ENXIO:
			return fmt.Sprintf("is %s reachable over an RDMA device?", host)
		}
	case StageConnect:
		switch errno {
		case syscall.ECONNREFUSED:
			if status <= 0 { // a positive reason speaks for itself
				return fmt.Sprintf("does anybody listen on %s?", at)
			}
		case syscall.ETIMEDOUT:
			return fmt.Sprintf("does %s have an RDMA device?", host)
		case syscall.ENOMEM, syscall.EPERM:
			return memlockHint
		}
	case StageBind, StageListen:
		switch errno {
		case syscall.ENODEV, syscall.EADDRNOTAVAIL:
			return fmt.Sprintf("is %s an address of one of this host's RDMA devices?", host)
		}
	case StageAccept:
		switch errno {
		case syscall.ENOMEM, syscall.EPERM:
			return memlockHint
		}
	}
	return ""
}

const memlockHint = "the limit of locked memory may be too low: see ulimit -l"
