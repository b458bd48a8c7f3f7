//go:build linux && cgo

package rdmacore

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// Sizes of the socket addresses that the connection manager takes.
const (
	sockaddrInSize  = 16 // struct sockaddr_in
	sockaddrIn6Size = 28 // struct sockaddr_in6
	sockaddrIBSize  = 48 // struct sockaddr_ib
	afIB            = 27
)

// sockaddr is addr as a struct sockaddr of its family. An IPv6 address that
// stands for an IPv4 one is treated as that, as package net does.
func sockaddr(addr cm.Addr) ([]byte, error) {
	if addr.IB != nil {
		if len(addr.IB) != sockaddrIBSize || binary.NativeEndian.Uint16(addr.IB) != afIB {
			return nil, &net.AddrError{Err: "not a struct sockaddr_ib", Addr: fmt.Sprintf("%x", addr.IB)}
		}
		return addr.IB, nil
	}
	if !addr.AddrPort.IsValid() {
		return nil, &net.AddrError{Err: "no address", Addr: addr.AddrPort.String()}
	}
	ip := addr.Addr().Unmap()
	if ip.Is4() {
		b := make([]byte, sockaddrInSize)
		binary.NativeEndian.PutUint16(b[0:], syscall.AF_INET)
		binary.BigEndian.PutUint16(b[2:], addr.Port())
		a := ip.As4()
		copy(b[4:], a[:])
		return b, nil
	}
	scope, err := scopeOf(ip.Zone())
	if err != nil {
		return nil, err
	}
	b := make([]byte, sockaddrIn6Size)
	binary.NativeEndian.PutUint16(b[0:], syscall.AF_INET6)
	binary.BigEndian.PutUint16(b[2:], addr.Port())
	a := ip.As16()
	copy(b[8:], a[:])
	binary.NativeEndian.PutUint32(b[24:], scope)
	return b, nil
}

// parseSockaddr reads a struct sockaddr. What it does not know is the zero Addr;
// an IPv6 address that stands for an IPv4 one is that.
func parseSockaddr(b []byte) cm.Addr {
	if len(b) < 2 {
		return cm.Addr{}
	}
	switch family := binary.NativeEndian.Uint16(b); {
	case family == syscall.AF_INET && len(b) >= sockaddrInSize:
		ip := netip.AddrFrom4([4]byte(b[4:8]))
		return cm.Addr{AddrPort: netip.AddrPortFrom(ip, binary.BigEndian.Uint16(b[2:]))}
	case family == syscall.AF_INET6 && len(b) >= sockaddrIn6Size:
		ip := netip.AddrFrom16([16]byte(b[8:24])).WithZone(zoneOf(binary.NativeEndian.Uint32(b[24:]))).Unmap()
		return cm.Addr{AddrPort: netip.AddrPortFrom(ip, binary.BigEndian.Uint16(b[2:]))}
	case family == afIB && len(b) >= sockaddrIBSize:
		return cm.Addr{IB: append([]byte(nil), b[:sockaddrIBSize]...)}
	}
	return cm.Addr{}
}

// scopeOf is the index of the interface that a zone names, by name or number.
func scopeOf(zone string) (uint32, error) {
	if zone == "" {
		return 0, nil
	}
	if ifi, err := net.InterfaceByName(zone); err == nil {
		return uint32(ifi.Index), nil
	}
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil && n > 0 {
		return uint32(n), nil
	}
	return 0, &net.AddrError{Err: "no such network interface", Addr: zone}
}

// zoneOf is the name of an interface, or its number where it has none any more.
func zoneOf(scope uint32) string {
	if scope == 0 {
		return ""
	}
	if ifi, err := net.InterfaceByIndex(int(scope)); err == nil {
		return ifi.Name
	}
	return strconv.FormatUint(uint64(scope), 10)
}
