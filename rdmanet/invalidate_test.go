package rdmanet

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestInvalidateHarmsNobody has strangers invalidate what they were granted, and
// what lies beside it, in each of the two ways. On the software NIC that ends their
// connection; on no device is a later connection harmed,
// which would have had their memory.
func TestInvalidateHarmsNobody(t *testing.T) { eachTarget(t, testInvalidateHarmsNobody) }

func testInvalidateHarmsNobody(t *testing.T, on target) {
	if !on.iwarp {
		t.Skip("a peer made by hand needs iWARP")
	}
	l := on.listen(t, port0(on.addr4))
	for _, op := range []byte{4, 6} {
		for _, beside := range []uint32{0, 1} {
			conn, err := net.Dial("tcp", l.Addr().String())
			require.NoError(t, err)
			p := &stranger{conn: conn.(*net.TCPConn)}
			require.NoError(t, p.meet(requestKey))
			victim, err := l.Accept()
			require.NoError(t, err)
			key := p.them.Data.Key + beside<<8 // siw numbers regions in order
			if on.provider == Software && beside > 0 {
				key = p.them.Data.Key ^ 1
			}
			p.msn++
			_, err = conn.Write(p.untagged(op, true, key, 0, p.msn, 0, binary.NativeEndian.AppendUint32(nil, 7<<29|1)))
			require.NoError(t, err)
			if on.provider == Software {
				_, err = victim.Read(make([]byte, 1))
				require.Error(t, err)
				require.NotEqual(t, io.EOF, err)
			} else {
				time.Sleep(100 * time.Millisecond) // the device tells nobody
			}
			require.NoError(t, conn.(*net.TCPConn).CloseWrite())
			victim.Close()
			conn.Close()
			for range 4 {
				a, b := on.pair(t, l)
				honestEcho(t, a, b, 1)
				b.Close()
				a.Close()
			}
		}
	}
}
