package cm

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
)

// Members of struct sockaddr_ib (rdma/rdma_cma.h of Linux), in bytes.
const (
	sibAddr = 8  // the port's GID
	sibSID  = 24 // the service ID, in network order
	sibSize = 48
)

// IBService is what a sockaddr_ib names: a port, by its GID, and a service by its
// ID. It reports false for an address that is none.
func (a Addr) IBService() (gid netip.Addr, service uint64, ok bool) {
	if len(a.IB) != sibSize {
		return netip.Addr{}, 0, false
	}
	gid = netip.AddrFrom16([16]byte(a.IB[sibAddr:]))
	return gid, binary.BigEndian.Uint64(a.IB[sibSID:]), true
}

// FormatIBService is the text of a port and a service, with the service as the
// network ib takes it.
func FormatIBService(gid netip.Addr, service uint64) string {
	host := ""
	if gid.IsValid() {
		host = gid.String()
	}
	return net.JoinHostPort(host, fmt.Sprintf("%#x", service))
}
