package rdmanet

import (
	"net"
	"net/netip"
	"strconv"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// Addr is the address of one end of an RDMA connection: an IP address that
// belongs to an interface with an RDMA device, and a port of the connection
// manager's TCP port space, which on RoCE and InfiniBand is apart from TCP's own.
type Addr struct {
	IP   net.IP
	Port int
	Zone string // IPv6 scoped addressing zone: the name of an interface
}

var _ net.Addr = (*Addr)(nil)

// Network returns "rdma".
func (a *Addr) Network() string { return "rdma" }

// String returns host:port, as net.TCPAddr does.
func (a *Addr) String() string {
	if a == nil {
		return "<nil>"
	}
	host := ""
	if len(a.IP) != 0 {
		host = a.IP.String()
	}
	if a.Zone != "" {
		host += "%" + a.Zone
	}
	return net.JoinHostPort(host, strconv.Itoa(a.Port))
}

// AddrPort returns the address as a netip.AddrPort. It is invalid if IP or Port
// is.
func (a *Addr) AddrPort() netip.AddrPort {
	if a == nil || a.Port < 0 || a.Port > 0xffff {
		return netip.AddrPort{}
	}
	ip, ok := netip.AddrFromSlice(a.IP)
	if !ok {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip.Unmap().WithZone(a.Zone), uint16(a.Port))
}

// addrOf is the public form of an address, nil for none, so that it never
// becomes a typed nil in a net.Addr.
func addrOf(ap netip.AddrPort) net.Addr {
	if !ap.Addr().IsValid() {
		return nil
	}
	a := ap.Addr().Unmap()
	return &Addr{IP: a.AsSlice(), Port: int(ap.Port()), Zone: a.Zone()}
}

// localAddr reads Dialer.LocalAddr.
func localAddr(a net.Addr) (cm.Addr, error) {
	var own *Addr
	switch a := a.(type) {
	case nil:
		return cm.Addr{}, nil
	case *Addr:
		own = a
	case *net.TCPAddr:
		if a != nil {
			own = &Addr{IP: a.IP, Port: a.Port, Zone: a.Zone}
		}
	default:
		return cm.Addr{}, &net.AddrError{Err: "local address is neither *rdmanet.Addr nor *net.TCPAddr", Addr: a.String()}
	}
	if own == nil {
		return cm.Addr{}, nil
	}
	if len(own.IP) == 0 && own.Port == 0 {
		return cm.Addr{}, nil
	}
	ap := own.AddrPort()
	if !ap.IsValid() {
		return cm.Addr{}, &net.AddrError{Err: "local address needs a valid IP and port", Addr: own.String()}
	}
	return cm.Addr{AddrPort: ap}, nil
}
