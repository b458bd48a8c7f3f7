package rdmanet

import (
	"net"
	"net/netip"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// Addr is what this package once had for the address of one end.
//
// Deprecated: use net.TCPAddr, which it is.
type Addr = net.TCPAddr

// IBAddr is one end of a connection of the network "ib", which has no IP address:
// a port of an InfiniBand device, and a service there.
type IBAddr struct {
	GID     netip.Addr // the port's GID; invalid where it is not known
	Service uint64     // the service ID; 0 for the end that dialed
}

var _ net.Addr = (*IBAddr)(nil)

// Network returns "ib".
func (a *IBAddr) Network() string { return "ib" }

// String returns the GID and the service, such as "[fe80::2:c903:a1:b2c3]:0x1061234".
func (a *IBAddr) String() string {
	if a == nil {
		return "<nil>"
	}
	return cm.FormatIBService(a.GID, a.Service)
}

// addrOf is the public form of an address, nil for none, so that it never
// becomes a typed nil in a net.Addr. An IPv4 address has 4 bytes, as that of an
// IPv4 socket of package net.
func addrOf(ap netip.AddrPort) net.Addr {
	if !ap.Addr().IsValid() {
		return nil
	}
	a := ap.Addr().Unmap()
	return &net.TCPAddr{IP: a.AsSlice(), Port: int(ap.Port()), Zone: a.Zone()}
}

// publicAddr is addrOf for addresses that may be those of InfiniBand services.
func publicAddr(a cm.Addr) net.Addr {
	if gid, service, ok := a.IBService(); ok {
		return &IBAddr{GID: gid, Service: service}
	}
	return addrOf(a.AddrPort)
}

// connAddr is the address of one end of a connection, which is never nil: an end
// without an IP address is a port of InfiniBand.
func connAddr(a cm.Addr, gid netip.Addr) net.Addr {
	if addr := publicAddr(a); addr != nil {
		return addr
	}
	return &IBAddr{GID: gid}
}

// localAddr reads Dialer.LocalAddr.
func localAddr(a net.Addr) (cm.Addr, error) {
	var own *net.TCPAddr
	switch a := a.(type) {
	case nil:
	case *net.TCPAddr:
		own = a
	default:
		return cm.Addr{}, &net.AddrError{Err: "mismatched local address type", Addr: a.String()}
	}
	if own == nil || len(own.IP) == 0 && own.Port == 0 {
		return cm.Addr{}, nil
	}
	ip := netip.IPv4Unspecified()
	if len(own.IP) != 0 {
		var ok bool
		if ip, ok = netip.AddrFromSlice(own.IP); !ok {
			return cm.Addr{}, &net.AddrError{Err: "non-IP address", Addr: own.String()}
		}
	}
	if own.Port < 0 || own.Port > 0xffff {
		return cm.Addr{}, &net.AddrError{Err: "invalid port", Addr: own.String()}
	}
	return cm.Addr{AddrPort: netip.AddrPortFrom(ip.Unmap().WithZone(own.Zone), uint16(own.Port))}, nil
}
