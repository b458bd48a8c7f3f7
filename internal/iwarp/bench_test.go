package iwarp

import (
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// The benchmarks measure what a stream does: data by RDMA Write, and a Send of
// four bytes behind it that announces them. Those of TCP do the same with a
// net.Conn, for comparison.

var benchSizes = []int{64, 4 << 10, 64 << 10}

// announce posts size bytes and their announcement. Every eighth is signalled.
func (e *side) announce(peer *side, n, size int) {
	wr := &e.swr
	*wr = [2]verbs.SendWR{
		to(e.request(verbs.OpWrite, uint64(n), 0, size), peer, 0),
		e.request(verbs.OpSend, uint64(n), size, 4),
	}
	wr[0].Flags = 0
	wr[1].Flags = verbs.FlagInline
	if n%8 == 0 {
		wr[1].Flags |= verbs.FlagSignaled
	}
	k, err := e.qp.PostSend(wr[:])
	if err != nil || k != 2 {
		e.t.Fatal(k, err)
	}
}

// awaitReceives waits for a receive, takes as many as there are, up to a number,
// and posts them again.
func (e *side) awaitReceives(most int) (got int) {
	wc := &e.wc
	for {
		n, err := e.cq.Poll(wc[:min(len(wc), most)])
		if err != nil {
			e.t.Fatal(err)
		}
		for _, c := range wc[:n] {
			if c.Status != verbs.WCSuccess {
				e.t.Fatal(c.Status)
			}
			if c.Opcode == verbs.WCRecv {
				got++
				e.rwr[0] = verbs.RecvWR{SGE: e.sge(testRegion-4, 4)}
				if _, err := e.qp.PostRecv(e.rwr[:]); err != nil {
					e.t.Fatal(err)
				}
			}
		}
		if got > 0 {
			return got
		}
		if n > 0 {
			continue
		}
		e.cq.Arm()
		if n, _ = e.cq.Poll(wc[:0]); n == 0 {
			if err := e.cq.Wait(); err != nil {
				e.t.Fatal(err)
			}
		}
	}
}

func BenchmarkPingPong(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("iwarp/%d", size), func(b *testing.B) {
			nic := openNIC(b, Config{})
			x, y := connectPair(b, nic, nic, verbs.QPAttr{MaxInline: 64})
			for i := range 8 {
				x.postRecv(uint64(i), testRegion-4, 4)
				y.postRecv(uint64(i), testRegion-4, 4)
			}
			done := make(chan struct{})
			b.ReportAllocs()
			b.ResetTimer()
			go func() {
				defer close(done)
				for n := range b.N {
					y.awaitReceives(1)
					y.announce(x, n, size)
				}
			}()
			for n := range b.N {
				x.announce(y, n, size)
				x.awaitReceives(1)
			}
			<-done
			b.StopTimer()
			disconnectPair(x, y)
		})
		b.Run(fmt.Sprintf("tcp/%d", size), func(b *testing.B) {
			x, y := tcpPair(b)
			done := make(chan struct{})
			b.ReportAllocs()
			b.ResetTimer()
			go func() {
				defer close(done)
				buf := make([]byte, size)
				for range b.N {
					_, err := io.ReadFull(y, buf)
					if err == nil {
						_, err = y.Write(buf)
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			}()
			buf := make([]byte, size)
			for range b.N {
				if _, err := x.Write(buf); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(x, buf); err != nil {
					b.Fatal(err)
				}
			}
			<-done
			b.StopTimer()
			x.Close()
			y.Close()
		})
	}
}

func tcpPair(t testing.TB) (x, y net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	x, err = net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	y, err = l.Accept()
	require.NoError(t, err)
	return x, y
}

// BenchmarkStream sends one way. What is in flight is at most half a MiB, as a
// stream with its default buffers has it: the receiver grants each half of that
// by a Send.
func BenchmarkStream(b *testing.B) {
	const window = 512 << 10
	for _, size := range []int{64 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("iwarp/%d", size), func(b *testing.B) {
			nic := openNIC(b, Config{})
			x, y := connectPair(b, nic, nic, verbs.QPAttr{MaxInline: 64})
			for i := range 32 {
				x.postRecv(uint64(i), testRegion-4, 4)
				y.postRecv(uint64(i), testRegion-4, 4)
			}
			half := window / 2 / size
			done := make(chan struct{})
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			go func() {
				defer close(done)
				for n := 0; n < b.N; {
					n += y.awaitReceives(1)
					if n%half == 0 || n == b.N {
						y.announce(x, n/half, 0)
					}
				}
			}()
			granted := 2
			for n := range b.N {
				for n >= granted*half {
					granted += x.awaitReceives(granted)
				}
				x.announce(y, n, size)
			}
			<-done
			b.StopTimer()
			x.destroy()
			y.destroy()
		})
		b.Run(fmt.Sprintf("tcp/%d", size), func(b *testing.B) {
			x, y := tcpPair(b)
			done := make(chan struct{})
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			go func() {
				defer close(done)
				buf := make([]byte, size)
				for range b.N {
					if _, err := io.ReadFull(y, buf); err != nil {
						b.Error(err)
						return
					}
				}
			}()
			buf := make([]byte, size)
			for range b.N {
				if _, err := x.Write(buf); err != nil {
					b.Fatal(err)
				}
			}
			<-done
			b.StopTimer()
			x.Close()
			y.Close()
		})
	}
}

// BenchmarkDial connects, sends 64 bytes, gets 64 bytes, and disconnects.
func BenchmarkDial(b *testing.B) {
	b.Run("iwarp", func(b *testing.B) {
		nic := openNIC(b, Config{})
		lid, levents := listen(b, nic, "127.0.0.1:0")
		attr := verbs.QPAttr{SendDepth: 16, RecvDepth: 16}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range b.N {
				req := <-levents
				y := newEndOf(b, nic, req.Request, attr, 4096)
				y.postRecv(1, 0, 64)
				if err := y.id.Accept(onePair); err != nil {
					b.Error(err)
					return
				}
				<-y.events
				y.want(1, verbs.WCSuccess, verbs.WCRecv)
				y.post(y.request(verbs.OpSend, 2, 0, 64))
				y.want(2, verbs.WCSuccess, verbs.WCSend)
				y.postRecv(3, 0, 64)
				y.want(3, verbs.WCWRFlushErr, 0)
				y.destroy()
			}
		}()
		b.ResetTimer()
		for range b.N {
			x := newEndOf(b, nic, nil, attr, 4096)
			resolve(b, x.id, x.events, lid.LocalAddr())
			x.postRecv(1, 0, 64)
			if err := x.id.Connect(onePair); err != nil {
				b.Fatal(err)
			}
			if ev := <-x.events; ev.Type != cm.Established {
				b.Fatal(ev)
			}
			x.post(x.request(verbs.OpSend, 2, 0, 64))
			x.want(2, verbs.WCSuccess, verbs.WCSend)
			x.want(1, verbs.WCSuccess, verbs.WCRecv)
			if err := x.id.Disconnect(); err != nil {
				b.Fatal(err)
			}
			<-x.events
			x.destroy()
		}
		<-done
		b.StopTimer()
		require.NoError(b, lid.Destroy())
	})
	b.Run("tcp", func(b *testing.B) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(b, err)
		go func() {
			buf := make([]byte, 64)
			for range b.N {
				c, err := l.Accept()
				if err != nil {
					return
				}
				if _, err := io.ReadFull(c, buf); err != nil {
					b.Error(err)
				}
				c.Write(buf)
				c.Read(buf)
				c.Close()
			}
		}()
		buf := make([]byte, 64)
		b.ResetTimer()
		for range b.N {
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			c.Write(buf)
			if _, err := io.ReadFull(c, buf); err != nil {
				b.Fatal(err)
			}
			c.Close()
		}
		b.StopTimer()
		l.Close()
	})
}
