package cm

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each hint that there is, and next to it the failures that it must not be given for.
func TestHints(t *testing.T) {
	const plain = "there is a way without RDMA"
	dst := Addr{AddrPort: netip.MustParseAddrPort("192.0.2.7:9000")}
	local := Addr{AddrPort: netip.MustParseAddrPort("192.0.2.1:0")}
	unspecified := Addr{AddrPort: netip.MustParseAddrPort("0.0.0.0:9000")}
	closed := fmt.Errorf("closed: %w", ErrNotRDMA)
	for _, c := range []struct {
		f    failure
		want string // "" is none
	}{
		{failure{stage: StageAddr, errno: syscall.ENODEV}, "is 192.0.2.7 reachable over an RDMA device?"},
		{failure{stage: StageAddr, errno: syscall.ENETUNREACH}, "there is no IP route to 192.0.2.7"},
		{failure{stage: StageAddr, errno: syscall.ETIMEDOUT}, "does a host have the address 192.0.2.7?"},
		{failure{stage: StageAddr, errno: syscall.EHOSTUNREACH}, "does a host have the address 192.0.2.7?"},
		{failure{stage: StageAddr, errno: syscall.EHOSTUNREACH, way: wayTCP}, ""},
		{failure{stage: StageAddr, errno: syscall.EADDRNOTAVAIL}, ""},
		{failure{stage: StageAddr, errno: syscall.EADDRNOTAVAIL, local: unspecified}, ""},
		{failure{stage: StageAddr, errno: syscall.EADDRNOTAVAIL, local: local}, "is the local address 192.0.2.1 one of this host's?"},
		{failure{stage: StageAddr, errno: syscall.EPERM}, ""},
		{failure{stage: StageAddr, errno: syscall.ENOMEM}, ""},

		{failure{stage: StageRoute, errno: syscall.ENODEV}, "is 192.0.2.7 reachable over an RDMA device?"},
		{failure{stage: StageRoute, errno: syscall.ETIMEDOUT}, ""},

		{failure{stage: StageConnect, call: callCreateQP, errno: syscall.ENOMEM}, ""},
		{failure{stage: StageConnect, call: callCreateQP, errno: syscall.EPERM}, ""},
		{failure{stage: StageConnect, call: callCreateQP, errno: syscall.ETIMEDOUT}, ""}, // nobody has been asked
		{failure{stage: StageConnect, call: callConnect, errno: syscall.ENOMEM}, ""},
		{failure{stage: StageConnect, call: callConnect, errno: syscall.EPERM, way: wayTCP}, ""},
		{failure{stage: StageConnect, call: callConnect, errno: syscall.EMFILE, way: wayTCP}, ""},
		{failure{stage: StageConnect, call: callConnect, errno: syscall.ECONNREFUSED}, "does anybody listen on 192.0.2.7:9000?"},
		{failure{stage: StageConnect, call: callConnect, errno: syscall.ECONNREFUSED, status: -int(syscall.ECONNREFUSED)}, "does anybody listen on 192.0.2.7:9000?"},
		{failure{stage: StageConnect, call: callConnect, errno: syscall.ECONNREFUSED, status: 8}, ""}, // speaks for itself
		{failure{stage: StageConnect, call: callConnect, errno: syscall.ECONNREFUSED, status: -int(syscall.ECONNRESET)}, ""},
		{failure{stage: StageConnect, call: callConnect, errno: syscall.ECONNREFUSED, status: -int(syscall.ECONNRESET), way: wayTCPConnected}, ""}, // rejected
		{failure{stage: StageConnect, call: callConnect, errno: syscall.ECONNREFUSED, status: -int(syscall.ECONNRESET), way: wayTCPConnected, err: closed}, plain},
		{failure{stage: StageConnect, call: callConnect, errno: syscall.ECONNREFUSED, status: -int(syscall.ECONNRESET), way: wayIWARP}, "it has rejected the request, or speaks no RDMA; " + plain},
		{failure{stage: StageConnect, call: callConnect, errno: syscall.EINVAL, status: -int(syscall.EINVAL), way: wayIWARP}, "the answer made no sense to the device: does 192.0.2.7:9000 speak RDMA?; " + plain},
		{failure{stage: StageConnect, call: callConnect, errno: syscall.EINVAL, way: wayIWARP}, ""}, // the call's own
		{failure{stage: StageConnect, call: callConnect, errno: syscall.EPROTO, status: -int(syscall.EPROTO), way: wayTCPConnected}, ""},
		{failure{stage: StageConnect, call: callConnect, errno: syscall.EPROTO, status: -int(syscall.EPROTO), way: wayTCPConnected, err: closed}, plain},
		{failure{stage: StageConnect, call: callConnect, errno: syscall.ETIMEDOUT}, "does 192.0.2.7 have an RDMA device?"},
		{failure{stage: StageConnect, call: callConnect, errno: syscall.ETIMEDOUT, way: wayIWARP}, "is 192.0.2.7 up, and does it speak RDMA?; " + plain},
		{failure{stage: StageConnect, call: callConnect, errno: syscall.ETIMEDOUT, way: wayTCP}, "is 192.0.2.7 up, and does it let TCP through to the port?"},
		{failure{stage: StageConnect, call: callConnect, errno: syscall.ETIMEDOUT, way: wayTCPConnected}, "the peer has taken the TCP connection and not answered: it may speak no RDMA; " + plain},
		{failure{stage: StageConnect, call: callConnect, errno: syscall.EHOSTUNREACH, way: wayTCP}, "does a host have the address 192.0.2.7?"},
		{failure{stage: StageConnect, call: callConnect, errno: syscall.EHOSTUNREACH}, ""},
		{failure{stage: StageConnect, call: callConnect, errno: syscall.ENETUNREACH, way: wayTCP}, "there is no IP route to 192.0.2.7"},
		{failure{stage: StageConnect, call: callConnect, errno: syscall.EADDRNOTAVAIL, way: wayTCP}, ""},
		{failure{stage: StageConnect, call: callConnect, errno: syscall.EADDRNOTAVAIL, way: wayTCP, local: local}, "is the local address 192.0.2.1 one of this host's?"},

		{failure{stage: StageBind, errno: syscall.ENODEV}, "is 192.0.2.7 an address of one of this host's RDMA devices?"},
		{failure{stage: StageListen, errno: syscall.EADDRNOTAVAIL}, "is 192.0.2.7 an address of this host?"},
		{failure{stage: StageListen, errno: syscall.EADDRNOTAVAIL, dst: unspecified}, ""},
		{failure{stage: StageListen, errno: syscall.EADDRINUSE}, ""},
		{failure{stage: StageListen, errno: syscall.EACCES}, ""},
		{failure{stage: StageAccept, errno: syscall.ENOMEM}, ""},
		{failure{stage: StageAccept, errno: syscall.EPERM}, ""},
		{failure{stage: StageOpen, errno: syscall.EMFILE}, ""},
	} {
		if c.f.dst.IsZero() {
			c.f.dst = dst
		}
		c.f.plain = plain
		require.Equal(t, c.want, c.f.hint(), "%+v", c.f)

		// Without anything to advise nothing is left of it.
		c.f.plain = ""
		require.Equal(t, strings.TrimSuffix(strings.TrimSuffix(c.want, plain), "; "), c.f.hint())
	}
}
