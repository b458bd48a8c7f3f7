package rdmanet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
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
	return cm.Names{LookupPort: r.LookupPort, LookupHost: func(ctx context.Context, network, host string) ([]netip.Addr, error) {
		return lookupHost(ctx, r, network, host)
	}}
}

// lookupHost is r.LookupNetIP, which loses the zones of link-local addresses,
// with the zones.
func lookupHost(ctx context.Context, r hostResolver, network, host string) ([]netip.Addr, error) {
	ips, err := r.LookupNetIP(ctx, network, host)
	if err != nil || !slices.ContainsFunc(ips, needsZone) {
		return ips, err
	}
	full, err := r.LookupIPAddr(ctx, host)
	if err != nil {
		return nil, err
	}
	for i, ip := range ips {
		for _, a := range full {
			if needsZone(ip) && a.Zone != "" && a.IP.Equal(ip.AsSlice()) {
				ips[i] = ip.WithZone(a.Zone)
			}
		}
	}
	return ips, nil
}

func needsZone(ip netip.Addr) bool { return ip.Is6() && ip.IsLinkLocalUnicast() && ip.Zone() == "" }

// A hostResolver is a *net.Resolver.
type hostResolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error)
}

// errMissingAddress is package net's word for a dial of no address.
var errMissingAddress = errors.New("missing address")

// splitDial splits the address of a dial, as package net does.
func splitDial(address string) (host, service string, err error) {
	if address == "" {
		return "", "", errMissingAddress
	}
	return net.SplitHostPort(address)
}

// splitListen splits the address of a listener, where none is all addresses and
// any port.
func splitListen(address string) (host, service string, err error) {
	if address == "" {
		return "", "", nil
	}
	return net.SplitHostPort(address)
}

// unresolved reports whether a dial or a listener failed before it had an
// address. Its *net.OpError then has none, as package net's.
func unresolved(err error) bool {
	var stage *cm.StageError
	if errors.As(err, &stage) {
		return stage.Stage == cm.StageAddrInfo && stage.Call == "lookup"
	}
	var addr *net.AddrError
	var network net.UnknownNetworkError
	return err == errMissingAddress || errors.As(err, &addr) || errors.As(err, &network)
}
