package cm

import (
	"errors"
	"fmt"
	"syscall"
)

// A failure is what is known of a failed step when a person is to be told what to
// do about it.
type failure struct {
	stage      Stage
	call       string
	errno      syscall.Errno
	status     int
	err        error // the cause; nil if time is over
	dst, local Addr
	way        way
	plain      string // DialRequest.PlainAdvice
}

// A way is what carries a dial, as far as a hint depends on it.
type way uint8

const (
	wayFabric       way = iota // InfiniBand, RoCE, or a device that is not known yet
	wayIWARP                   // an iWARP device: TCP, out of this host's sight
	wayTCP                     // a TCP connection of this host's, which is not there yet
	wayTCPConnected            // and which is there
)

// hint is what a person can do about a failure, where that is known; else "".
// It is put behind the cause in parentheses. Each must be true wherever it can
// appear: what only a provider can know is said by the provider's own error.
func (f *failure) hint() string {
	switch f.stage {
	case StageAddr:
		return f.addrHint()
	case StageRoute:
		switch f.errno {
		case syscall.ENODEV, syscall.ENXIO:
			return fmt.Sprintf("is %s reachable over an RDMA device?", f.host())
		}
	case StageConnect:
		if f.call == callConnect {
			return f.connectHint()
		}
	case StageBind, StageListen:
		return f.bindHint()
	}
	return ""
}

func (f *failure) addrHint() string {
	switch f.errno {
	case syscall.ENODEV:
		return fmt.Sprintf("is %s reachable over an RDMA device?", f.host())
	case syscall.ENETUNREACH:
		return fmt.Sprintf("there is no IP route to %s", f.host())
	case syscall.EADDRNOTAVAIL:
		return f.localHint()
	case syscall.ETIMEDOUT, syscall.EHOSTUNREACH:
		if f.way < wayTCP { // which asks nobody at this stage
			return fmt.Sprintf("does a host have the address %s?", f.host())
		}
	}
	return ""
}

func (f *failure) connectHint() string {
	if errors.Is(f.err, ErrNotRDMA) {
		return f.plain
	}
	switch f.errno {
	case syscall.ECONNREFUSED:
		switch {
		case f.status == 0, f.status == -int(syscall.ECONNREFUSED):
			return fmt.Sprintf("does anybody listen on %s?", f.dst)
		case f.status == -int(syscall.ECONNRESET) && f.way == wayIWARP:
			return join("it has rejected the request, or speaks no RDMA", f.plain)
		}
	case syscall.EINVAL, syscall.EPROTO:
		if f.status < 0 && f.way == wayIWARP { // what Linux says of an answer that is no MPA reply
			return join("the answer made no sense to the device: does "+f.dst.String()+" speak RDMA?", f.plain)
		}
	case syscall.ETIMEDOUT:
		switch f.way {
		case wayFabric:
			return fmt.Sprintf("does %s have an RDMA device?", f.host())
		case wayTCPConnected:
			return join("the peer has taken the TCP connection and not answered: it may speak no RDMA", f.plain)
		case wayIWARP:
			return join("is "+f.host()+" up, and does it speak RDMA?", f.plain)
		}
		return fmt.Sprintf("is %s up, and does it let TCP through to the port?", f.host())
	case syscall.EHOSTUNREACH:
		if f.way == wayTCP {
			return fmt.Sprintf("does a host have the address %s?", f.host())
		}
	case syscall.ENETUNREACH:
		return fmt.Sprintf("there is no IP route to %s", f.host())
	case syscall.EADDRNOTAVAIL:
		return f.localHint()
	}
	return ""
}

// bindHint is about dst, which is a local address here.
func (f *failure) bindHint() string {
	if f.dst.AddrPort.Addr().IsUnspecified() {
		return ""
	}
	switch f.errno {
	case syscall.ENODEV:
		return fmt.Sprintf("is %s an address of one of this host's RDMA devices?", f.host())
	case syscall.EADDRNOTAVAIL:
		return fmt.Sprintf("is %s an address of this host?", f.host())
	}
	return ""
}

// localHint is about the address to dial from, if one was asked for.
func (f *failure) localHint() string {
	if !f.local.AddrPort.IsValid() || f.local.AddrPort.Addr().IsUnspecified() {
		return ""
	}
	return fmt.Sprintf("is the local address %s one of this host's?", f.local.AddrPort.Addr())
}

func (f *failure) host() string {
	if f.dst.AddrPort.IsValid() {
		return f.dst.AddrPort.Addr().String()
	}
	return f.dst.String()
}

// join makes one hint of two, the second of which may be missing.
func join(a, b string) string {
	if b == "" {
		return a
	}
	return a + "; " + b
}
