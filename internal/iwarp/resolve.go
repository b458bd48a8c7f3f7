package iwarp

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"syscall"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// ResolveAddrInfo does what GetAddrInfo does.
func (i *identifier) ResolveAddrInfo(q cm.AddrInfoQuery) error {
	answers, err := i.GetAddrInfo(q)
	if err != nil {
		return err
	}
	i.answers = answers
	i.Deliver(cm.Event{Type: cm.AddrInfoResolved})
	return nil
}

// QueryAddrInfo takes the answer to ResolveAddrInfo.
func (i *identifier) QueryAddrInfo() ([]cm.AddrInfo, error) {
	answers := i.answers
	if answers == nil {
		return nil, syscall.ENOENT
	}
	i.answers = nil
	return answers, nil
}

// GetAddrInfo makes an address of a numeric one and of a service.
func (i *identifier) GetAddrInfo(q cm.AddrInfoQuery) ([]cm.AddrInfo, error) {
	if q.SA {
		return nil, fmt.Errorf("iWARP has no subnet administrator: %w", syscall.EOPNOTSUPP)
	}
	ip := netip.IPv6Unspecified()
	if q.Node != "" {
		var err error
		if ip, err = netip.ParseAddr(q.Node); err != nil {
			return nil, fmt.Errorf("%w: %w", err, syscall.EINVAL)
		}
	} else if !q.Passive {
		ip = netip.IPv6Loopback()
	}
	port := 0
	if q.Service != "" {
		var err error
		if port, err = net.DefaultResolver.LookupPort(i.ctx, "tcp", q.Service); err != nil {
			return nil, fmt.Errorf("%w: %w", err, syscall.EINVAL)
		}
	}
	addr := cm.Addr{AddrPort: netip.AddrPortFrom(ip.Unmap(), uint16(port))}
	if q.Passive {
		return []cm.AddrInfo{{Src: addr}}, nil
	}
	return []cm.AddrInfo{{Dst: addr}}, nil
}

// Bind notes the local address. Listen takes it into use.
func (i *identifier) Bind(local cm.Addr, v6only bool) error {
	if err := checkIP(local); err != nil {
		return err
	}
	i.bound, i.v6only = true, v6only
	i.setAddrs(local.AddrPort, netip.AddrPort{})
	return nil
}

func checkIP(a cm.Addr) error {
	if a.IB != nil || !a.AddrPort.IsValid() {
		return fmt.Errorf("not an IP address: %w", syscall.EAFNOSUPPORT)
	}
	return nil
}

// ResolveAddr finds the local address towards dst: the one that packets to it
// would have. Nothing is sent for that. It fails with ENETUNREACH without a
// route, and with EADDRNOTAVAIL if src is not an address of this host.
func (i *identifier) ResolveAddr(src, dst cm.Addr, timeoutMS int) error {
	if err := checkIP(dst); err != nil {
		return err
	}
	if !src.IsZero() {
		if err := checkIP(src); err != nil {
			return err
		}
		i.src = src.AddrPort
	}
	local, err := i.nic.routes.find(i.src.Addr(), dst.AddrPort)
	if err != nil {
		return err
	}
	i.setAddrs(netip.AddrPortFrom(local, i.src.Port()), dst.AddrPort)
	i.Deliver(cm.Event{Type: cm.AddrResolved})
	return nil
}

// ResolveRoute has nothing left to find: the kernel, when it was asked for the
// local address, chose the interface and the next hop by it, and will again.
func (i *identifier) ResolveRoute(timeoutMS int) error {
	if !i.LocalAddr().IsValid() || !i.RemoteAddr().IsValid() {
		return fmt.Errorf("the address has not been resolved: %w", syscall.EINVAL)
	}
	i.Deliver(cm.Event{Type: cm.RouteResolved})
	return nil
}

// SetRoute takes no path records: iWARP has none.
func (i *identifier) SetRoute(path []byte) error {
	return fmt.Errorf("iWARP has no path records: %w", syscall.EOPNOTSUPP)
}

// plainError takes from an error of package net what says the same as the stage
// in which it happened.
func plainError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	var file *fs.PathError // of a socket that is an os.File
	if errors.As(err, &file) {
		err = file.Err
	}
	return portableError(err)
}
