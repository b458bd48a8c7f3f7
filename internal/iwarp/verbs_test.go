package iwarp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

func TestSendWriteRead(t *testing.T) {
	nic := openNIC(t, Config{})
	a, b := connectPair(t, nic, nic, verbs.QPAttr{})
	for _, size := range []int{0, 1, 4, 63, 64, 255, 256, 257, 1428, 4096, 65535, 65536, 300_000} {
		fillPattern(a.mr.Bytes()[:size], size)

		b.postRecv(1, 500_000, size)
		a.post(a.request(verbs.OpSend, 2, 0, size))
		wc := b.want(1, verbs.WCSuccess, verbs.WCRecv)
		require.Equal(t, size, int(wc.ByteLen))
		require.Equal(t, a.mr.Bytes()[:size], b.mr.Bytes()[500_000:][:size])
		a.want(2, verbs.WCSuccess, verbs.WCSend)

		fillPattern(a.mr.Bytes()[:size], size+1)
		b.postRecv(3, 0, 4)
		a.post(to(a.request(verbs.OpWrite, 4, 0, size), b, 100_000), a.request(verbs.OpSend, 5, 0, 4*min(size, 1)))
		b.want(3, verbs.WCSuccess, verbs.WCRecv)
		require.Equal(t, a.mr.Bytes()[:size], b.mr.Bytes()[100_000:][:size])
		a.want(4, verbs.WCSuccess, verbs.WCWrite)
		a.want(5, verbs.WCSuccess, verbs.WCSend)

		clear(a.mr.Bytes())
		a.post(to(a.request(verbs.OpRead, 6, 200_000, size), b, 100_000))
		for len(a.wcs) == 0 {
			b.drive(0)
			a.drive(0)
		}
		a.want(6, verbs.WCSuccess, verbs.WCRead)
		require.Equal(t, b.mr.Bytes()[100_000:][:size], a.mr.Bytes()[200_000:][:size])
	}
	disconnectPair(a, b)
}

// Erase leaves nothing of what came from a peer, wherever that was.
func TestErase(t *testing.T) {
	nic := openNIC(t, Config{})
	a, b := connectPair(t, nic, nic, verbs.QPAttr{})
	fillPattern(a.mr.Bytes()[:5000], 1)
	clean := make([]byte, testRegion)
	for _, op := range []verbs.Opcode{verbs.OpSend, verbs.OpWrite, verbs.OpRead} {
		for _, at := range []int{0, 4096, 300_001, testRegion - 5000} {
			b.postRecv(1, at, 5000)
			switch op {
			case verbs.OpSend:
				a.post(a.request(verbs.OpSend, 2, 0, 5000))
			case verbs.OpWrite:
				a.post(to(a.request(verbs.OpWrite, 2, 0, 5000), b, at), a.request(verbs.OpSend, 3, 0, 0))
			case verbs.OpRead:
				b.post(to(b.request(verbs.OpRead, 4, at, 5000), a, 0))
				for len(b.wcs) == 0 {
					a.drive(0)
					b.drive(0)
				}
				b.want(4, verbs.WCSuccess, verbs.WCRead)
				a.post(a.request(verbs.OpSend, 3, 0, 0))
			}
			b.want(1, verbs.WCSuccess, verbs.WCRecv)
			require.Equal(t, a.mr.Bytes()[:5000], b.mr.Bytes()[at:][:5000])
			b.mr.(verbs.Eraser).Erase()
			require.Equal(t, clean, b.mr.Bytes())
			for len(a.wcs) > 0 || a.qp.(*queuePair).backlog() > 0 {
				a.completion()
			}
			a.drive(0)
			a.wcs = nil
		}
	}
	disconnectPair(a, b)
}
