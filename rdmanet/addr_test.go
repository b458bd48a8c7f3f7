package rdmanet

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
)

func TestAddrOf(t *testing.T) {
	require.Nil(t, addrOf(netip.AddrPort{}))
	require.Nil(t, publicAddr(cm.Addr{}))
	for _, s := range []string{"10.0.0.7:9000", "[2001:db8::1]:1", "[fe80::1%ib0]:2", "[::]:3"} {
		want, err := net.ResolveTCPAddr("tcp", s)
		require.NoError(t, err)
		got := addrOf(netip.MustParseAddrPort(s)).(*net.TCPAddr)
		require.True(t, want.IP.Equal(got.IP))
		require.Equal(t, want.Port, got.Port)
		require.Equal(t, want.Zone, got.Zone)
		require.Equal(t, s, got.String())
	}
	require.Equal(t, "10.0.0.7:1", addrOf(netip.MustParseAddrPort("[::ffff:10.0.0.7]:1")).String())
}

// ibAddr is a struct sockaddr_ib.
func ibAddr(gid netip.Addr, service uint64) cm.Addr {
	b := make([]byte, 48)
	ip := gid.As16()
	copy(b[8:], ip[:])
	binary.BigEndian.PutUint64(b[24:], service)
	return cm.Addr{IB: b}
}

// TestConnAddr checks that no end of a connection is without an address.
func TestConnAddr(t *testing.T) {
	gid := netip.MustParseAddr("fe80::2:c903:a1:b2c3")
	for _, tc := range []struct {
		addr          cm.Addr
		gid           netip.Addr
		network, text string
	}{
		{cm.Addr{AddrPort: netip.MustParseAddrPort("10.0.0.7:9000")}, gid, "tcp", "10.0.0.7:9000"},
		{ibAddr(gid, 0x1061234), netip.Addr{}, "ib", "[fe80::2:c903:a1:b2c3]:0x1061234"},
		{cm.Addr{}, gid, "ib", "[fe80::2:c903:a1:b2c3]:0x0"},
		{cm.Addr{}, netip.Addr{}, "ib", ":0x0"},
	} {
		got := connAddr(tc.addr, tc.gid)
		require.Equal(t, tc.network, got.Network())
		require.Equal(t, tc.text, got.String())
	}
	require.Equal(t, "<nil>", (*IBAddr)(nil).String())
}

func TestLocalAddr(t *testing.T) {
	for _, tc := range []struct {
		local *net.TCPAddr
		want  string
	}{
		{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 5}, "10.0.0.7:5"},
		{&net.TCPAddr{IP: net.IP{10, 0, 0, 7}, Port: 5}, "10.0.0.7:5"},
		{&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "ib0"}, "[fe80::1%ib0]:0"},
		{&net.TCPAddr{Port: 5}, "0.0.0.0:5"},
		{&net.TCPAddr{IP: net.IPv6unspecified, Port: 5}, "[::]:5"},
	} {
		got, err := localAddr(tc.local)
		require.NoError(t, err)
		require.Equal(t, cm.Addr{AddrPort: netip.MustParseAddrPort(tc.want)}, got)
	}
	for _, a := range []net.Addr{nil, (*net.TCPAddr)(nil), &net.TCPAddr{}} {
		got, err := localAddr(a)
		require.NoError(t, err)
		require.True(t, got.IsZero())
	}
	for _, a := range []net.Addr{&net.UDPAddr{}, (*net.UnixAddr)(nil), &net.TCPAddr{IP: net.IP{1, 2, 3}, Port: 1}, &net.TCPAddr{IP: net.IPv4zero, Port: -1}} {
		_, err := localAddr(a)
		var ae *net.AddrError
		require.ErrorAs(t, err, &ae)
	}
}

// TestTCPAddr checks that the addresses of connections and listeners are those
// that programs assert, and that asking for them makes no new ones.
func TestTCPAddr(t *testing.T) { eachTarget(t, testTCPAddr) }

func testTCPAddr(t *testing.T, on target) {
	for _, ip := range on.addrs() {
		l := on.listen(t, port0(ip))
		dialed, accepted := on.pair(t, l)
		for _, addr := range []net.Addr{l.Addr(), dialed.LocalAddr(), dialed.RemoteAddr(), accepted.LocalAddr(), accepted.RemoteAddr()} {
			tcp, ok := addr.(*net.TCPAddr)
			require.True(t, ok, "%T", addr)
			require.Equal(t, ip, tcp.AddrPort().Addr())
			require.Len(t, tcp.IP, ip.BitLen()/8, "as package net has it")
		}
		require.Equal(t, l.Addr(), dialed.RemoteAddr())
		require.Equal(t, dialed.LocalAddr(), accepted.RemoteAddr())
		require.Equal(t, dialed.RemoteAddr(), accepted.LocalAddr())
		require.Zero(t, testing.AllocsPerRun(10, func() { _, _ = dialed.LocalAddr(), dialed.RemoteAddr() }))
		require.NoError(t, dialed.Close())
		require.NoError(t, accepted.Close())
	}
}
