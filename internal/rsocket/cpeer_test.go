package rsocket

import (
	"io"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/simqp"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// A cPeer behaves as librdmacm's rsockets do, as far as a peer can tell: it
// grants windows of half its ring, and only inside calls of its application; it
// has no spare receives, and posts receives again only when it polls; it polls
// only when it cannot go on; it has at most four control messages unfinished;
// and its close ends with its own DISCONNECT, whose completion ends the queue
// pair. It has one thread.
type cPeer struct {
	*rawPeer

	remoteSGE        int // entry of our SGL that is written next
	target           int // entry of its own SGL in use
	seq, seqMax      uint16
	rseq, rseqComp   uint16
	sq, sqAvail      int
	sbuf, sbufAvail  int
	ctrl, ctrlMax    int
	rbufAvail, rbufX int // bytes to grant, and where the next window begins
	at               int // in the ring: next byte to read
	msgs             []int
	connected        bool
	readable         bool
	writable         bool
	twoSlots         int // 1: a message behind a Write takes a slot of its own
}

type cConfig struct {
	ring, sbuf int // default 128 KiB each
	bigEndian  bool
	acceptor   bool // our end dials
	reads      int
}

func (l *lab) connectC(cfg Config, cc cConfig) (*end, *cPeer) {
	if cc.ring == 0 {
		cc.ring = 128 << 10
	}
	if cc.sbuf == 0 {
		cc.sbuf = 128 << 10
	}
	e, r := l.connectRaw(cfg, rawConfig{ring: cc.ring, bigEndian: cc.bigEndian, acceptor: cc.acceptor, reads: cc.reads})
	c := &cPeer{
		rawPeer: r, sq: 384, sqAvail: 384 - 4, sbuf: cc.sbuf, sbufAvail: cc.sbuf, ctrlMax: 4,
		seqMax: r.us.Credits, rseqComp: uint16(r.recvs / 2), remoteSGE: 1,
		rbufAvail: cc.ring / 2, rbufX: cc.ring / 2,
		connected: true, readable: true, writable: true,
	}
	if !c.immediate {
		c.twoSlots = 1
	}
	// C keeps its windows in the SGL itself.
	r.setEntry(0, r.us.Data.Addr, r.us.Data.Len)
	r.win = 1
	return e, c
}

// updateCredits sends a grant if one is due.
func (c *cPeer) updateCredits() {
	half := c.size / 2
	if c.rbufAvail < half && int16(c.rseq-c.rseqComp) < 0 || !c.connected || c.ctrl+c.twoSlots >= c.ctrlMax {
		return
	}
	c.ctrl++
	c.rseqComp = c.rseq + uint16(c.recvs/2)
	// The limit is not cut to 16 bits: a carry reaches bit 16.
	m := newMessage(msgCredits, uint32(c.rseq)+uint32(c.recvs))
	if c.rbufAvail < half {
		c.message(m, nil, 0, 0)
		return
	}
	c.ctrl += c.twoSlots
	var b [sglEntrySize]byte
	endian(c.us.BigEndian).putEntry(b[:], Segment{c.mem.Addr() + 64 + uint64(c.rbufX), c.mem.RKey(), uint32(half)})
	c.message(m, b[:], c.us.SGL.Addr+uint64(c.remoteSGE*sglEntrySize), c.us.SGL.Key)
	c.rbufAvail -= half
	c.rbufX = (c.rbufX + half) % c.size
	c.remoteSGE = 1 - c.remoteSGE
}

// pollCQ takes all completions, and only then posts receives for those taken.
func (c *cPeer) pollCQ() {
	taken := 0
	for {
		wc, ok := c.poll()
		if !ok {
			break
		}
		if wc.ID&recvID == 0 {
			m := message(uint32(wc.ID))
			switch m.typ() {
			case msgCredits:
				c.ctrlMax++
			case msgControl:
				c.ctrlMax++
				if m.value() == ctrlDisconnect {
					c.connected = false
				}
			default:
				c.sqAvail++
				if wc.ID>>62 == 0 {
					c.sbufAvail += int(m.value())
				}
			}
			if wc.Status != verbs.WCSuccess {
				c.connected, c.readable, c.writable = false, false, false
			}
			continue
		}
		if wc.Status != verbs.WCSuccess {
			continue
		}
		taken++
		switch m := c.received(wc); m.typ() {
		case msgCredits:
			c.seqMax = uint16(m.value())
		case msgControl:
			switch {
			case m.value() == ctrlDisconnect, m.value() == ctrlShutdown && !c.writable:
				c.connected, c.readable, c.writable = false, false, false
				return // and posts nothing more
			case m.value() == ctrlShutdown:
				c.readable = false
			}
		case msgData:
			require.Less(c.t, len(c.msgs), c.recvs+1)
			c.msgs = append(c.msgs, int(m.value()))
		default:
			c.t.Errorf("C peer: %v", m)
		}
	}
	if c.connected {
		c.postRecvs(taken)
	}
}

// process is what every blocking call does until done.
func (c *cPeer) process(done func() bool) {
	deadline := time.Now().Add(20 * time.Second)
	for {
		c.updateCredits()
		c.pollCQ()
		if done() {
			break
		}
		if time.Now().After(deadline) {
			c.t.Errorf("C peer: stuck: %d messages, %d slots, %d bytes of its buffer, credits %d to %d, control %d of %d",
				len(c.msgs), c.sqAvail, c.sbufAvail, c.seq, c.seqMax, c.ctrl, c.ctrlMax)
			c.connected, c.readable, c.writable = false, false, false
			break
		}
		time.Sleep(20 * time.Microsecond)
	}
	c.updateCredits()
}

func (c *cPeer) canSend() bool {
	return c.sqAvail > c.twoSlots && c.sbufAvail >= 2048 && c.seq != c.seqMax && c.entry(c.target).Len != 0
}

// send is rsend: all of p, or as much as went before the end.
func (c *cPeer) send(p []byte) int {
	sent, size := 0, 2048
	for sent < len(p) {
		if !c.canSend() {
			c.process(func() bool { return c.canSend() || !c.writable })
			if !c.writable {
				return sent
			}
		}
		n := len(p) - sent
		if size < n {
			n = size
			if size < 65536 {
				size *= 2
			}
		}
		w := c.entry(c.target)
		n = min(n, c.sbufAvail, int(w.Len))
		// Taken off the entry before the Write is posted.
		c.setEntry(c.target, w.Addr+uint64(n), w.Len-uint32(n))
		if uint32(n) == w.Len {
			c.target = 1 - c.target
		}
		c.seq++
		c.sqAvail -= 1 + c.twoSlots
		c.sbufAvail -= n
		c.message(newMessage(msgData, uint32(n)), p[sent:sent+n], w.Addr, c.us.Data.Key)
		sent += n
	}
	return sent
}

// recv is rrecv: what there is, 0 at the end.
func (c *cPeer) recv(p []byte) int {
	if len(c.msgs) == 0 {
		c.process(func() bool { return len(c.msgs) > 0 || !c.readable })
	}
	n := 0
	for n < len(p) && len(c.msgs) > 0 {
		k := min(len(p)-n, c.msgs[0])
		c.msgs[0] -= k
		if c.msgs[0] == 0 {
			c.rseq++
			c.msgs = c.msgs[1:]
		}
		first := copy(p[n:n+k], c.ring()[c.at:])
		copy(p[n+first:n+k], c.ring())
		c.at = (c.at + k) % c.size
		c.rbufAvail += k
		n += k
	}
	return n
}

func (c *cPeer) recvAll(p []byte) int {
	n := 0
	for n < len(p) {
		k := c.recv(p[n:])
		if k == 0 {
			break
		}
		n += k
	}
	return n
}

func (c *cPeer) control(value uint32) {
	if c.ctrl == c.ctrlMax {
		c.process(func() bool { return c.ctrl != c.ctrlMax || !c.connected })
	}
	if c.connected {
		c.ctrl++
		c.message(newMessage(msgControl, value), nil, 0, 0)
	}
}

func (c *cPeer) sendsDone() bool {
	return c.ctrlMax-c.ctrl+c.sqAvail == c.sq || !c.connected
}

// shutdownWrite is rshutdown(SHUT_WR).
func (c *cPeer) shutdownWrite() {
	if !c.connected {
		return
	}
	c.writable = false
	if c.readable {
		c.control(ctrlShutdown)
	} else {
		c.control(ctrlDisconnect)
	}
	if c.connected {
		c.process(c.sendsDone)
	}
}

// close is rclose.
func (c *cPeer) close() {
	if c.connected {
		c.readable, c.writable = false, false
		c.control(ctrlDisconnect)
		if c.connected {
			c.process(c.sendsDone)
		}
	}
	c.qp.Disconnect()
}

// TestC talks to a C peer in every role, at every size of buffers, both byte
// orders. That a message finds no receive is a fault of the simulation.
func TestC(t *testing.T) {
	configs := []struct {
		name string
		cfg  Config
		cc   cConfig
	}{
		{"default", Config{}, cConfig{}},
		{"large", Config{}, cConfig{ring: 1 << 20, sbuf: 1 << 20}},
		{"small", Config{ReadBuffer: 64 << 10, WriteBuffer: 16 << 10}, cConfig{ring: 4 << 10}},
		{"big-endian", Config{}, cConfig{bigEndian: true}},
		{"we are big-endian", Config{BigEndian: true}, cConfig{}},
	}
	roles := []struct {
		name     string
		acceptor bool
	}{{"C accepts", true}, {"C dials", false}}
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		for _, c := range configs {
			if tr == verbs.IWARP && (c.cc.bigEndian || c.cfg.BigEndian) {
				continue // messages are in host order there: C itself cannot
			}
			for _, role := range roles {
				t.Run(c.name+"/"+role.name, func(t *testing.T) {
					cc := c.cc
					cc.acceptor = role.acceptor
					t.Run("rstream", func(t *testing.T) { testRstream(t, tr, c.cfg, cc) })
					t.Run("to C", func(t *testing.T) { testToC(t, tr, c.cfg, cc) })
					t.Run("from C", func(t *testing.T) { testFromC(t, tr, c.cfg, cc) })
				})
			}
		}
	})
}

// testRstream plays rstream's pattern: transfers of C pieces each way in turn.
func testRstream(t *testing.T, tr verbs.Transport, cfg Config, cc cConfig) {
	for _, size := range []int{1, 64, 4096, 65536, 1 << 20} {
		for _, count := range []int{1, 100} {
			if size == 1<<20 && count > 1 {
				count = 4
			}
			l := newLab(t, simqp.Options{Transport: tr})
			e, c := l.connectC(cfg, cc)
			iters := 3
			var wg sync.WaitGroup
			wg.Go(func() {
				var out, in pattern
				p := make([]byte, size)
				for range iters {
					for range count {
						out.fill(p)
						if n := c.send(p); n != size {
							t.Errorf("C sent %d of %d bytes", n, size)
							return
						}
					}
					for range count {
						if n := c.recvAll(p); n != size {
							t.Errorf("C received %d of %d bytes", n, size)
							return
						}
						if err := in.check(p); err != nil {
							t.Error("C received:", err)
							return
						}
					}
				}
			})
			var out, in pattern
			p := make([]byte, size)
			for range iters {
				for range count {
					_, err := io.ReadFull(e, p)
					require.NoError(t, err)
					require.NoError(t, in.check(p))
				}
				for range count {
					out.fill(p)
					_, err := e.Write(p)
					require.NoError(t, err)
				}
			}
			wg.Wait()
			wg.Go(func() { c.shutdownWrite(); c.close() })
			require.NoError(t, e.CloseWrite())
			require.NoError(t, e.Close(time.Second))
			e.qp.Disconnect()
			wg.Wait()
			require.NoError(t, e.Release())
			c.destroy()
		}
	}
}

// testToC writes and closes at once; C reads slowly to the end, all of it.
func testToC(t *testing.T, tr verbs.Transport, cfg Config, cc cConfig) {
	const total = 1 << 20
	l := newLab(t, simqp.Options{Transport: tr})
	e, c := l.connectC(cfg, cc)
	var wg sync.WaitGroup
	wg.Go(func() {
		var in pattern
		p := make([]byte, 10_000)
		for {
			n := c.recv(p)
			if n == 0 {
				break
			}
			if err := in.check(p[:n]); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(10 * time.Microsecond)
		}
		if in.pos != total {
			t.Errorf("C received %d of %d bytes", in.pos, total)
		}
		c.close()
	})
	require.NoError(t, writeSizes(e, total, random(1, 100_000)))
	require.NoError(t, e.Close(10*time.Second))
	e.qp.Disconnect()
	wg.Wait()
}

// testFromC reads what C sends, of many small messages and some large ones, up to
// its DISCONNECT, while our end sends small messages that C reads only then.
func testFromC(t *testing.T, tr verbs.Transport, cfg Config, cc cConfig) {
	const total = 1 << 20
	l := newLab(t, simqp.Options{Transport: tr})
	e, c := l.connectC(cfg, cc)
	var wg sync.WaitGroup
	wg.Go(func() {
		var out pattern
		size := random(2, 50_000)
		p := make([]byte, 50_000)
		for out.pos < total {
			n := min(size(), total-out.pos)
			out.fill(p[:n])
			if m := c.send(p[:n]); m != n {
				t.Errorf("C sent %d of %d bytes", m, n)
				return
			}
		}
		if n := c.recvAll(p[:1000]); n != 1000 {
			t.Errorf("C received %d bytes", n)
		}
		c.close()
	})
	wg.Go(func() {
		for i := range 1000 {
			if _, err := e.Write([]byte{byte(i)}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	n, err := readSizes(e, random(3, 50_000))
	require.NoError(t, err)
	require.Equal(t, total, n)
	wg.Wait()
	_, err = e.Write([]byte("goodbye"))
	require.NoError(t, err, "the first Write after the end that Read has told of")
	_, err = e.Write([]byte("anybody there?"))
	require.Equal(t, syscall.EPIPE, err)
	require.NoError(t, e.Close(time.Second))
}
