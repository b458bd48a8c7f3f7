//go:build unix

package iwarp

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// route asks the kernel which local address reaches dst, from src if that is
// valid, by connecting a UDP socket, which sends nothing. Package net could do it
// too; it takes ten times as long, and this is a part of every dial.
func route(src netip.Addr, dst netip.AddrPort) (netip.Addr, error) {
	family := unix.AF_INET6
	if dst.Addr().Unmap().Is4() {
		family = unix.AF_INET
	}
	syscall.ForkLock.RLock() // no child inherits it
	fd, err := unix.Socket(family, unix.SOCK_DGRAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return netip.Addr{}, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	if src.IsValid() {
		if err := unix.Bind(fd, sockaddr(family, netip.AddrPortFrom(src, 0))); err != nil {
			return netip.Addr{}, os.NewSyscallError("bind", err)
		}
	}
	// Without it the route to a broadcast address is EACCES, which TCP never says.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1)
	if dst.Port() == 0 {
		dst = netip.AddrPortFrom(dst.Addr(), 9) // some systems refuse to connect to port 0
	}
	if err := unix.Connect(fd, sockaddr(family, dst)); err != nil {
		return netip.Addr{}, os.NewSyscallError("connect", err)
	}
	local, err := unix.Getsockname(fd)
	if err != nil {
		return netip.Addr{}, os.NewSyscallError("getsockname", err)
	}
	ip := fromSockaddr(local).Addr()
	if !ip.IsValid() {
		return netip.Addr{}, unix.EAFNOSUPPORT
	}
	return ip, nil
}

// fromSockaddr is the address without the mapping of IPv4 into IPv6; invalid if
// it is none of IP.
func fromSockaddr(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		ip := netip.AddrFrom16(sa.Addr)
		if sa.ZoneId != 0 {
			ip = ip.WithZone(zoneName(sa.ZoneId))
		}
		return netip.AddrPortFrom(ip.Unmap(), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

func sockaddr(family int, a netip.AddrPort) unix.Sockaddr {
	if family == unix.AF_INET {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().Unmap().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16(), ZoneId: zoneID(a.Addr().Zone())}
}

func zoneID(zone string) uint32 {
	if zone == "" {
		return 0
	}
	if ifi, err := net.InterfaceByName(zone); err == nil {
		return uint32(ifi.Index)
	}
	n, err := strconv.ParseUint(zone, 10, 32)
	if err != nil {
		return 0 // the kernel refuses it
	}
	return uint32(n)
}

func zoneName(id uint32) string {
	if ifi, err := net.InterfaceByIndex(int(id)); err == nil {
		return ifi.Name
	}
	return strconv.FormatUint(uint64(id), 10)
}
