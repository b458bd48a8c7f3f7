//go:build !unix

package iwarp

import (
	"net"
	"net/netip"
	"syscall"
)

// route asks the kernel which local address reaches dst, from src if that is
// valid, by connecting a UDP socket, which sends nothing.
func route(src netip.Addr, dst netip.AddrPort) (netip.Addr, error) {
	var local *net.UDPAddr
	if src.IsValid() {
		local = net.UDPAddrFromAddrPort(netip.AddrPortFrom(src, 0))
	}
	if dst.Port() == 0 {
		dst = netip.AddrPortFrom(dst.Addr(), 9) // some systems refuse to connect to port 0
	}
	conn, err := net.DialUDP("udp", local, net.UDPAddrFromAddrPort(dst))
	if err != nil {
		return netip.Addr{}, plainError(err)
	}
	defer conn.Close()
	addr, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok {
		return netip.Addr{}, syscall.EADDRNOTAVAIL
	}
	return addr.AddrPort().Addr().Unmap(), nil
}
