package rdmanet

import (
	"net"
	"strings"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// parseNetwork reads the name of a network.
func parseNetwork(network string) (cm.Network, error) {
	switch network {
	case "rdma", "tcp":
		return cm.AnyIP, nil
	case "rdma4", "tcp4":
		return cm.IPv4, nil
	case "rdma6", "tcp6":
		return cm.IPv6, nil
	case "ib":
		return cm.IB, nil
	}
	return 0, net.UnknownNetworkError(network)
}

// plainNetwork is package net's name for a network.
func plainNetwork(network string) string {
	if family, ok := strings.CutPrefix(network, "rdma"); ok {
		return "tcp" + family
	}
	return network
}

// names are the resolver's functions for the connection manager. The address
// families of its networks are the connection manager's business.
func names(r *net.Resolver) cm.Names {
	if r == nil {
		r = net.DefaultResolver
	}
	return cm.Names{LookupHost: r.LookupNetIP, LookupPort: r.LookupPort}
}
