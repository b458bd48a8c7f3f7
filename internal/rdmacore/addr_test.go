//go:build linux && cgo

package rdmacore

import (
	"encoding/hex"
	"net"
	"net/netip"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
)

func ipAddr(s string) cm.Addr { return cm.Addr{AddrPort: netip.MustParseAddrPort(s)} }

// ibSockaddr is a struct sockaddr_ib with something in every member.
func ibSockaddr() []byte {
	b := make([]byte, sockaddrIBSize)
	for i := range b {
		b[i] = byte(i)
	}
	b[0], b[1] = afIB, 0
	return b
}

func TestSockaddr(t *testing.T) {
	for _, test := range []struct{ addr, bytes string }{
		{"192.0.2.1:7471", "02001d2f" + "c0000201" + "0000000000000000"},
		{"0.0.0.0:0", "02000000" + "00000000" + "0000000000000000"},
		{"[::ffff:192.0.2.1]:7471", "02001d2f" + "c0000201" + "0000000000000000"},
		{"[2001:db8::1]:7471", "0a001d2f" + "00000000" + "20010db8000000000000000000000001" + "00000000"},
		{"[fe80::1%7]:1", "0a000001" + "00000000" + "fe800000000000000000000000000001" + "07000000"},
	} {
		b, err := sockaddr(ipAddr(test.addr))
		require.NoError(t, err, test.addr)
		require.Equal(t, test.bytes, hex.EncodeToString(b), test.addr)
	}
}

func TestSockaddrRoundTrip(t *testing.T) {
	addrs := []cm.Addr{
		ipAddr("192.0.2.1:7471"), ipAddr("0.0.0.0:65535"), ipAddr("[::]:0"), ipAddr("[2001:db8::1]:1"),
		{IB: ibSockaddr()},
	}
	ifaces, err := net.Interfaces()
	require.NoError(t, err)
	for _, ifi := range ifaces {
		addrs = append(addrs, ipAddr("[fe80::1%"+ifi.Name+"]:9"))
	}
	for _, addr := range addrs {
		b, err := sockaddr(addr)
		require.NoError(t, err)
		require.Equal(t, addr, parseSockaddr(b))
		// the same in a struct sockaddr_storage
		require.Equal(t, addr, parseSockaddr(append(b, make([]byte, 128-len(b))...)))
		// cut off it is nothing
		require.True(t, parseSockaddr(b[:len(b)-1]).IsZero())
	}
}

func TestSockaddrUnknownZone(t *testing.T) {
	_, err := sockaddr(ipAddr("[fe80::1%rdmanet-is-not-there]:1"))
	var ae *net.AddrError
	require.ErrorAs(t, err, &ae)

	// a scope whose interface is gone keeps its number
	const gone = 1 << 30
	b, err := sockaddr(ipAddr("[fe80::1%" + strconv.Itoa(gone) + "]:1"))
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(gone), parseSockaddr(b).Addr().Zone())
}

func TestSockaddrRefusesWhatIsNone(t *testing.T) {
	for _, addr := range []cm.Addr{{}, {IB: []byte{}}, {IB: ibSockaddr()[1:]}, {IB: make([]byte, sockaddrIBSize)}} {
		_, err := sockaddr(addr)
		require.Error(t, err, "%v", addr)
	}
}

func FuzzParseSockaddr(f *testing.F) {
	for _, s := range []string{"192.0.2.1:7471", "[2001:db8::1]:7471", "[fe80::1%7]:1"} {
		b, err := sockaddr(ipAddr(s))
		require.NoError(f, err)
		f.Add(b)
	}
	f.Add(ibSockaddr())
	f.Add([]byte{})
	f.Add([]byte{1, 0, '/'})
	f.Fuzz(func(t *testing.T, b []byte) {
		addr := parseSockaddr(b)
		if addr.IsZero() {
			return
		}
		again, err := sockaddr(addr)
		if err != nil {
			t.Fatal(err)
		}
		if back := parseSockaddr(again); back.String() != addr.String() {
			t.Fatalf("%v became %v", addr, back)
		}
	})
}
