package rdmanet

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// zoneResolver knows a name with a link-local address, as /etc/hosts may.
type zoneResolver struct{}

func (zoneResolver) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("fe80::1"), netip.MustParseAddr("2001:db8::1")}, nil
}

func (zoneResolver) LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error) {
	return []net.IPAddr{{IP: net.ParseIP("fe80::1"), Zone: "eth0"}, {IP: net.ParseIP("2001:db8::1")}, {IP: net.IPv4(10, 0, 0, 7)}}, nil
}

func TestLookupHostKeepsZones(t *testing.T) {
	ips, err := lookupHost(t.Context(), zoneResolver{}, "ip6", "zoned.test")
	require.NoError(t, err)
	require.Equal(t, []netip.Addr{netip.MustParseAddr("fe80::1%eth0"), netip.MustParseAddr("2001:db8::1")}, ips)
}
