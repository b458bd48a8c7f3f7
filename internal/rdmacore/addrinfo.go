//go:build linux && cgo

package rdmacore

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// ResolveAddrInfo hands librdmacm a numeric node only (RAI_NUMERICHOST), so that
// it does not ask a name server inside the call.
func (id *identifier) ResolveAddrInfo(q cm.AddrInfoQuery) error {
	const call = "rdma_resolve_addrinfo"
	if C.rn_has_addrinfo() == 0 {
		return fmt.Errorf("%s: this librdmacm does not have it: %w", call, errors.ErrUnsupported)
	}
	node, service, free := cQuery(q)
	defer free()
	return callError(call, id.blocked.here(func() int {
		return int(C.rn_resolve_addrinfo(id.c, node, service, queryFlags(q)))
	}))
}

func (id *identifier) QueryAddrInfo() ([]cm.AddrInfo, error) {
	const call = "rdma_query_addrinfo"
	if C.rn_has_addrinfo() == 0 {
		return nil, fmt.Errorf("%s: this librdmacm does not have it: %w", call, errors.ErrUnsupported)
	}
	var list *C.struct_rn_addrinfo
	if code := C.rn_query_addrinfo(id.c, &list); code != 0 {
		return nil, callError(call, code)
	}
	defer C.rn_freeaddrinfo(list)
	return goAddrInfo(list), nil
}

// GetAddrInfo fails with errors.ErrUnsupported for a query of the subnet
// administrator where librdmacm does not know the flag.
func (id *identifier) GetAddrInfo(q cm.AddrInfoQuery) ([]cm.AddrInfo, error) {
	const call = "rdma_getaddrinfo"
	if q.SA && C.rn_has_addrinfo() == 0 {
		return nil, fmt.Errorf("%s: this librdmacm cannot ask a subnet administrator: %w", call, errors.ErrUnsupported)
	}
	node, service, free := cQuery(q)
	defer free()
	var list *C.struct_rn_addrinfo
	code := id.blocked.here(func() int {
		return int(C.rn_getaddrinfo(node, service, queryFlags(q), &list))
	})
	if code != 0 {
		return nil, callError(call, code)
	}
	defer C.rn_freeaddrinfo(list)
	return goAddrInfo(list), nil
}

func cQuery(q cm.AddrInfoQuery) (node, service *C.char, free func()) {
	if q.Node != "" {
		node = C.CString(q.Node)
	}
	if q.Service != "" {
		service = C.CString(q.Service)
	}
	return node, service, func() {
		C.free(unsafe.Pointer(node))
		C.free(unsafe.Pointer(service))
	}
}

func queryFlags(q cm.AddrInfoQuery) (flags C.int) {
	if q.Passive {
		flags |= C.RN_RAI_PASSIVE
	}
	if q.SA {
		return flags | C.RN_RAI_SA
	}
	return flags | C.RN_RAI_NUMERICHOST
}

func goAddrInfo(list *C.struct_rn_addrinfo) (infos []cm.AddrInfo) {
	for ai := list; ai != nil; ai = ai.ai_next {
		infos = append(infos, cm.AddrInfo{
			Src:         goSockaddr(ai.ai_src_addr, ai.ai_src_len),
			Dst:         goSockaddr(ai.ai_dst_addr, ai.ai_dst_len),
			Route:       goBytes(ai.ai_route, ai.ai_route_len),
			ConnectData: goBytes(ai.ai_connect, ai.ai_connect_len),
		})
	}
	return infos
}

func goSockaddr(sa *C.struct_sockaddr, size C.socklen_t) cm.Addr {
	return parseSockaddr(goBytes(unsafe.Pointer(sa), C.size_t(size)))
}

func goBytes(p unsafe.Pointer, n C.size_t) []byte {
	if p == nil || n == 0 {
		return nil
	}
	return C.GoBytes(p, C.int(n))
}
