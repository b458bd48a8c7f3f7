package cm

import (
	"encoding/hex"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIBService(t *testing.T) {
	sockaddr, err := hex.DecodeString("1b00" + "ffff" + "00000000" + "fe80000000000000" + "0002c90300a1b2c3" +
		"0000000001061234" + "ffffffffffffffff" + "0000000000000000")
	require.NoError(t, err)
	addr := Addr{IB: sockaddr}
	gid, service, ok := addr.IBService()
	require.True(t, ok)
	require.Equal(t, netip.MustParseAddr("fe80::2:c903:a1:b2c3"), gid)
	require.EqualValues(t, 0x1061234, service)
	require.Equal(t, "[fe80::2:c903:a1:b2c3]:0x1061234", addr.String())

	for _, addr := range []Addr{{}, {AddrPort: netip.MustParseAddrPort("10.0.0.7:1")}, {IB: sockaddr[:47]}} {
		_, _, ok := addr.IBService()
		require.False(t, ok, "%v", addr)
	}
	require.Equal(t, ":0x0", FormatIBService(netip.Addr{}, 0))
}
