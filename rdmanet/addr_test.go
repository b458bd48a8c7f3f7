package rdmanet

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
)

func TestAddr(t *testing.T) {
	for _, tc := range []struct {
		addr *Addr
		text string
		ap   string
	}{
		{&Addr{IP: net.IPv4(10, 0, 0, 7), Port: 9000}, "10.0.0.7:9000", "10.0.0.7:9000"},
		{&Addr{IP: net.ParseIP("2001:db8::1"), Port: 1}, "[2001:db8::1]:1", "[2001:db8::1]:1"},
		{&Addr{IP: net.ParseIP("fe80::1"), Port: 2, Zone: "ib0"}, "[fe80::1%ib0]:2", "[fe80::1%ib0]:2"},
		{&Addr{Port: 3}, ":3", "invalid AddrPort"},
		{&Addr{IP: net.IPv4(10, 0, 0, 7), Port: 70000}, "10.0.0.7:70000", "invalid AddrPort"},
		{nil, "<nil>", "invalid AddrPort"},
	} {
		require.Equal(t, tc.text, tc.addr.String())
		require.Equal(t, tc.ap, tc.addr.AddrPort().String())
	}
	require.Equal(t, "rdma", (&Addr{}).Network())
}

func TestAddrOf(t *testing.T) {
	require.Nil(t, addrOf(netip.AddrPort{}))
	for _, s := range []string{"10.0.0.7:9000", "[2001:db8::1]:1", "[fe80::1%ib0]:2"} {
		require.Equal(t, s, addrOf(netip.MustParseAddrPort(s)).String())
	}
	require.Equal(t, "10.0.0.7:1", addrOf(netip.MustParseAddrPort("[::ffff:10.0.0.7]:1")).String())
}

func TestLocalAddr(t *testing.T) {
	want := cm.Addr{AddrPort: netip.MustParseAddrPort("10.0.0.7:5")}
	for _, a := range []net.Addr{
		&Addr{IP: net.IPv4(10, 0, 0, 7), Port: 5},
		&net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 5},
	} {
		got, err := localAddr(a)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, a := range []net.Addr{nil, (*Addr)(nil), (*net.TCPAddr)(nil), &Addr{}} {
		got, err := localAddr(a)
		require.NoError(t, err)
		require.True(t, got.IsZero())
	}
	for _, a := range []net.Addr{&net.UDPAddr{}, &Addr{IP: net.IP{1, 2, 3}, Port: 1}, &Addr{IP: net.IPv4zero, Port: -1}} {
		_, err := localAddr(a)
		var ae *net.AddrError
		require.ErrorAs(t, err, &ae)
	}
}
