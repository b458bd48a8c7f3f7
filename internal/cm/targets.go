package cm

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"time"
)

// Network says which addresses a name may stand for.
type Network uint8

// The networks.
const (
	AnyIP Network = iota
	IPv4
	IPv6
	IB // an InfiniBand service, which the subnet administrator resolves
)

// lookupName is what Go's resolver calls the network.
func (n Network) lookupName() string {
	switch n {
	case IPv4:
		return "ip4"
	case IPv6:
		return "ip6"
	}
	return "ip"
}

// portName is what Go's resolver calls the network of a service.
func (n Network) portName() string {
	switch n {
	case IPv4:
		return "tcp4"
	case IPv6:
		return "tcp6"
	}
	return "tcp"
}

// has reports whether an address belongs to the network.
func (n Network) has(a netip.Addr) bool {
	switch n {
	case IPv4:
		return a.Is4()
	case IPv6:
		return a.Is6()
	}
	return true
}

// Names is how host names and service names are resolved. A nil function is
// that of net.DefaultResolver. Numbers and numeric addresses need neither.
type Names struct {
	// LookupHost is as net.Resolver.LookupNetIP; network is "ip", "ip4" or
	// "ip6".
	LookupHost func(ctx context.Context, network, host string) ([]netip.Addr, error)
	// LookupPort is as net.Resolver.LookupPort; network is "tcp", "tcp4" or
	// "tcp6".
	LookupPort func(ctx context.Context, network, service string) (int, error)
}

// resolve turns host and service into addresses. An empty host gives one
// address that is invalid, with the port. The caller does not wait for a
// resolver that does not heed ctx.
func (n Names) resolve(ctx context.Context, network Network, host, service string, trace *Trace) ([]netip.AddrPort, error) {
	port, portErr := parsePort(service)
	ip, ipErr := netip.ParseAddr(host)
	if portErr == nil && (ipErr == nil || host == "") {
		return filter(network, host, []netip.Addr{ip}, port)
	}
	info := StageInfo{Stage: StageAddrInfo, Call: callLookup}
	addrs, err, left := await(ctx, func() ([]netip.AddrPort, error) {
		began := time.Now()
		trace.start(info)
		addrs, err := n.lookup(ctx, network, host, service)
		if err != nil {
			err = lookupError(ctx, err)
		}
		trace.done(info, began, Event{}, err)
		return addrs, err
	}, func([]netip.AddrPort) {})
	if left {
		return nil, lookupError(ctx, nil)
	}
	return addrs, err
}

// lookup asks the resolver, in the goroutine that calls it.
func (n Names) lookup(ctx context.Context, network Network, host, service string) ([]netip.AddrPort, error) {
	port, err := parsePort(service)
	if err != nil {
		lookupPort := n.LookupPort
		if lookupPort == nil {
			lookupPort = net.DefaultResolver.LookupPort
		}
		number, err := lookupPort(ctx, network.portName(), service)
		if err != nil {
			return nil, err
		}
		if number < 0 || number > 65535 {
			return nil, &net.AddrError{Err: "invalid port", Addr: service}
		}
		port = uint16(number)
	}
	ip, err := netip.ParseAddr(host)
	ips := []netip.Addr{ip}
	if err != nil && host != "" {
		lookupHost := n.LookupHost
		if lookupHost == nil {
			lookupHost = net.DefaultResolver.LookupNetIP
		}
		if ips, err = lookupHost(ctx, network.lookupName(), host); err != nil {
			return nil, err
		}
	}
	return filter(network, host, ips, port)
}

// filter keeps the addresses of the network. An invalid one, which stands for
// an empty host, belongs to all. The IPv6 wildcard alone stands for IPv4's, too, as
// in package net: a host may be able to listen on it and have no IPv6 address.
func filter(network Network, host string, ips []netip.Addr, port uint16) ([]netip.AddrPort, error) {
	if len(ips) == 1 && ips[0].WithZone("") == netip.IPv6Unspecified() {
		ips = []netip.Addr{ips[0], netip.IPv4Unspecified()}
	}
	var addrs []netip.AddrPort
	for _, ip := range ips {
		ip = ip.Unmap() // Go's resolver gives IPv4 addresses in IPv6 form
		if !ip.IsValid() || network.has(ip) {
			addrs = append(addrs, netip.AddrPortFrom(ip, port))
		}
	}
	if len(addrs) == 0 {
		return nil, noSuitable(host)
	}
	return addrs, nil
}

// noSuitable is the error where none of the addresses of a host is of the family
// of the network, or of that of the local address.
func noSuitable(addr string) error {
	return &StageError{Stage: StageAddrInfo, Call: callLookup,
		Err: &net.AddrError{Err: "no suitable address found", Addr: addr}}
}

// parsePort parses a numeric service; an empty one is port 0, as in package
// net.
func parsePort(service string) (uint16, error) {
	if service == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(service, 10, 16)
	return uint16(n), err
}

// lookupError wraps what the resolver said, or the end of the context.
func lookupError(ctx context.Context, err error) error {
	if se, ok := err.(*StageError); ok {
		return se
	}
	if ctx.Err() != nil {
		err = newContextError(ctx)
	}
	return &StageError{Stage: StageAddrInfo, Call: callLookup, Err: err}
}

// reachable are the addresses to dial: those that the local address can reach,
// with a loopback address in place of one that stands for this host.
func (r *DialRequest) reachable(addrs []netip.AddrPort) ([]target, error) {
	var targets []target
	for i, ap := range addrs {
		dst := Addr{AddrPort: netip.AddrPortFrom(loopback(r.Network, r.Local, ap.Addr()), ap.Port())}
		if i > 0 && ap.Addr().IsUnspecified() && len(targets) > 0 && targets[0].dst.AddrPort == dst.AddrPort {
			continue // the wildcards of both families stand for one address
		}
		if _, ok := sourceFor(r.Local, dst); ok {
			targets = append(targets, target{dst: dst})
		}
	}
	if len(targets) == 0 {
		return nil, noSuitable(r.Local.String())
	}
	return targets, nil
}

// loopback is the address that stands for this host when a dial names none. Its
// family is that of the network, or else of the local address, or else of the
// wildcard that was named.
func loopback(network Network, local Addr, a netip.Addr) netip.Addr {
	if a.IsValid() && !a.IsUnspecified() {
		return a
	}
	v6 := a.Is6()
	if from := local.Addr().Unmap(); from.IsValid() && !from.IsUnspecified() {
		v6 = from.Is6()
	}
	if network == IPv6 || v6 && network != IPv4 {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// sourceFor is the local address for a destination: local itself if the two are
// of one family, the wildcard of the destination's family with local's port if
// local is a wildcard, and zero if local says nothing. It reports false if
// local cannot reach dst.
func sourceFor(local, dst Addr) (Addr, bool) {
	switch {
	case local.IsZero():
		return Addr{}, true
	case local.IB != nil || dst.IB != nil:
		// An IP address has named the InfiniBand port when the service
		// was resolved; the connection's own source is of dst's family.
		if local.IB == nil {
			return Addr{}, true
		}
		return local, dst.IB != nil
	}
	from, to := local.Addr().Unmap(), dst.Addr()
	if from.IsUnspecified() {
		if local.Port() == 0 {
			return Addr{}, true
		}
		from = netip.IPv6Unspecified()
		if to.Is4() {
			from = netip.IPv4Unspecified()
		}
	}
	return Addr{AddrPort: netip.AddrPortFrom(from, local.Port())}, from.Is4() == to.Is4()
}
