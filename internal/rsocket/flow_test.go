package rsocket

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSendFlowWindows(t *testing.T) {
	var f sendFlow
	f.init(Header{Credits: 384, Data: Segment{Addr: 1000, Key: 7, Len: 10}})
	require.Equal(t, 10, f.room())
	require.Equal(t, 1, f.entry)

	addr, key := f.take(4)
	require.Equal(t, uint64(1000), addr)
	require.Equal(t, uint32(7), key)
	require.Equal(t, 6, f.room())

	require.True(t, f.wantsEntry())
	require.NoError(t, f.addWindow(Segment{Addr: 5000, Key: 8, Len: 3}))
	require.Equal(t, 0, f.entry)
	require.False(t, f.wantsEntry(), "two windows are all there are entries for")

	addr, _ = f.take(6)
	require.Equal(t, uint64(1004), addr)
	require.True(t, f.wantsEntry())
	require.Equal(t, 3, f.room())
	addr, key = f.take(3)
	require.Equal(t, uint64(5000), addr)
	require.Equal(t, uint32(8), key)
	require.Zero(t, f.room())
}

func TestSendFlowCredits(t *testing.T) {
	for _, credits := range []uint16{1, 2, 3, 8, 16, 17, 384, 0xffff} {
		var f sendFlow
		f.init(Header{Credits: credits, Data: Segment{Len: maxWindow}})
		n := 0
		for f.room() > 0 {
			f.take(1)
			n++
		}
		require.Positive(t, n, credits)
		left := int(credits) - n
		require.GreaterOrEqual(t, left, min(minReserve, int(credits)/2), "the reserve for grants and control messages")
		require.NoError(t, f.setLimit(credits), "the old limit")
		require.Zero(t, f.room())
		require.NoError(t, f.setLimit(credits+uint16(n)))
		require.Positive(t, f.room())
		if credits < 0xffff {
			require.Error(t, f.setLimit(credits+uint16(n)-1), "less than granted")
			require.Error(t, f.setLimit(credits+uint16(n)+1), "more than it has")
		}
	}
}

// TestSendFlowWraps sends more messages than 16 bits count.
func TestSendFlowWraps(t *testing.T) {
	var f sendFlow
	f.init(Header{Credits: 384, Data: Segment{Len: maxWindow}})
	consumed := uint16(0)
	for range 200_000 {
		if f.room() == 0 {
			consumed += 192
			require.NoError(t, f.setLimit(consumed+384))
		}
		require.Positive(t, f.room())
		f.take(1)
	}
}

func TestSendFlowBadWindow(t *testing.T) {
	for _, w := range []Segment{{Len: 0}, {Len: maxWindow + 1}, {Addr: ^uint64(0), Len: 2}} {
		var f sendFlow
		f.init(Header{Credits: 384, Data: Segment{Len: 1}})
		require.Error(t, f.addWindow(w), w)
	}
}

func TestRecvFlow(t *testing.T) {
	const ring = 64 << 10
	var f recvFlow
	f.init(ring, ring/2, 4)
	off, n := f.nextWindow()
	require.Equal(t, ring/2, off)
	require.Equal(t, ring/2, n, "the second half, at once")
	f.grantWindow(n)
	require.Equal(t, 0, f.entry)
	_, n = f.nextWindow()
	require.Zero(t, n)

	require.Error(t, f.data(0))
	require.Error(t, f.data(ring/2+1))
	require.NoError(t, f.data(ring/2))
	_, n = f.nextWindow()
	require.Zero(t, n, "nothing has been read")
	f.read += ring/2 - 1
	_, n = f.nextWindow()
	require.Zero(t, n, "not yet a half")
	f.read++
	off, n = f.nextWindow()
	require.Equal(t, 0, off)
	require.Equal(t, ring/2, n)
	f.grantWindow(n)

	require.NoError(t, f.data(1))
	require.True(t, f.wantsLimit(), "half of the credits are used")
	require.Equal(t, uint16(6), f.newLimit())
	require.False(t, f.wantsLimit())
	for range 4 {
		require.NoError(t, f.data(1))
	}
	require.Error(t, f.data(1), "more than the credits")
}

// TestFlows runs a sender's and a receiver's arithmetic against each other: every
// byte is sent once, into ring room that is free.
func TestFlows(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		const ring = 64 << 10
		credits := uint16(1 + r.IntN(400))
		var tx sendFlow
		var rx recvFlow
		first := ring / (1 + r.IntN(2))
		rx.init(ring, first, credits)
		tx.init(Header{Credits: credits, Data: Segment{Addr: 0, Len: uint32(first)}})
		type msg struct{ addr, n int }
		type grant struct {
			limit uint16
			w     Segment
		}
		var wire []msg
		var grants []grant
		pos := int64(0)
		for step := 0; pos < 10*ring; step++ {
			require.Less(t, step, 1_000_000, "stuck")
			switch r.IntN(4) {
			case 0:
				if room := tx.room(); room > 0 {
					n := 1 + r.IntN(min(room, 5000))
					addr, _ := tx.take(n)
					require.Equal(t, int(pos%ring), int(addr))
					wire = append(wire, msg{int(addr), n})
					pos += int64(n)
				}
			case 1:
				if len(wire) > 0 {
					require.NoError(t, rx.data(wire[0].n))
					wire = wire[1:]
				}
			case 2:
				rx.read += int64(r.IntN(rx.readable() + 1))
				off, n := rx.nextWindow()
				if n > 0 || rx.wantsLimit() {
					g := grant{limit: rx.newLimit()}
					if n > 0 {
						g.w = Segment{Addr: uint64(off), Len: uint32(n)}
						rx.grantWindow(n)
					}
					require.LessOrEqual(t, rx.granted-rx.read, int64(ring))
					grants = append(grants, g)
				}
			case 3:
				if len(grants) > 0 {
					g := grants[0]
					grants = grants[1:]
					require.NoError(t, tx.setLimit(g.limit))
					if g.w.Len > 0 {
						require.True(t, tx.wantsEntry())
						require.NoError(t, tx.addWindow(g.w))
					}
				}
			}
		}
	}
}

func TestSendQueue(t *testing.T) {
	var q sendQueue
	q.init(16, nil)
	for i := range 4 {
		require.False(t, q.wantsSignal(1000), i)
		require.Equal(t, uint64(i), q.add(10))
	}
	require.True(t, q.wantsSignal(1000), "a quarter of the slots")
	q.signal()
	q.add(250)
	require.True(t, q.wantsSignal(1000), "a quarter of the ring")
	require.Equal(t, 5, q.used())
	require.True(t, q.retire(3))
	require.Equal(t, 1, q.used())
	require.Equal(t, int64(40), q.tail)
	require.True(t, q.retire(1), "a Read that completes behind what was posted after it")
	require.Equal(t, int64(40), q.tail)
	require.False(t, q.retire(5), "nobody posted it")
	require.True(t, q.retire(4))
	require.Equal(t, q.head, q.tail)
}
