package rdmanet

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/rdmanet/rdmanet/internal/rsocket"
)

// A stranger is a peer that knows what it was granted and says what the fuzzer
// wants: MPA, frames and rsockets messages, good and bad.
type stranger struct {
	conn  *net.TCPConn
	crc   bool
	them  rsocket.Header
	msn   uint32 // of the next Send
	reads uint32 // of the next Read Request
	off   uint64 // bytes of the first window used
}

// strangerHeader is the header of a stranger. Its addresses are made up: what is
// written there comes as frames.
func strangerHeader() rsocket.Header {
	return rsocket.Header{Credits: 400, SGL: rsocket.Segment{Addr: 0x10000, Key: 0x51, Len: 2}, Data: rsocket.Segment{Addr: 0x200000, Key: 0x52, Len: 1 << 20}}
}

func setUpFrame(key string, crc bool) []byte {
	flags := byte(0x10)
	if crc {
		flags |= 0x40
	}
	h := strangerHeader()
	private := h.Append([]byte{0, 4, 0, 4}) // four Reads each way
	b := append([]byte(key), flags, 2)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(private))), private...)
}

// meet sets a connection up, as the end whose frame has the key mine.
func (p *stranger) meet(mine string) error {
	_ = p.conn.SetDeadline(time.Now().Add(10 * time.Second))
	if mine == requestKey {
		if _, err := p.conn.Write(setUpFrame(mine, p.crc)); err != nil {
			return err
		}
	}
	head := make([]byte, 20)
	if _, err := io.ReadFull(p.conn, head); err != nil {
		return err
	}
	private := make([]byte, binary.BigEndian.Uint16(head[18:]))
	if _, err := io.ReadFull(p.conn, private); err != nil {
		return err
	}
	if mine != requestKey {
		if _, err := p.conn.Write(setUpFrame(mine, p.crc)); err != nil {
			return err
		}
	}
	p.crc = p.crc || head[16]&0x40 != 0
	var err error
	p.them, err = rsocket.ParseHeader(private[4:], false)
	return err
}

var castagnoliTable = crc32.MakeTable(crc32.Castagnoli)

// seal makes a frame of a segment.
func (p *stranger) seal(segment []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(segment)))
	b = append(b, segment...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	var sum uint32
	if p.crc {
		sum = crc32.Checksum(b, castagnoliTable)
	}
	return binary.LittleEndian.AppendUint32(b, sum)
}

func (p *stranger) tagged(op byte, last bool, key uint32, addr uint64, payload []byte) []byte {
	b := []byte{0x81, 0x40 | op}
	if last {
		b[0] |= 0x40
	}
	b = binary.BigEndian.AppendUint32(b, key)
	b = binary.BigEndian.AppendUint64(b, addr)
	return p.seal(append(b, payload...))
}

func (p *stranger) untagged(op byte, last bool, invalidate, queue, msn, offset uint32, payload []byte) []byte {
	b := []byte{0x01, 0x40 | op}
	if last {
		b[0] |= 0x40
	}
	for _, v := range []uint32{invalidate, queue, msn, offset} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return p.seal(append(b, payload...))
}

func (p *stranger) message(typ, value uint32) []byte {
	p.msn++
	return p.untagged(3, true, 0, 0, p.msn, 0, binary.LittleEndian.AppendUint32(nil, typ<<29|value&(1<<29-1)))
}

// act is the next frames of a script, and how much of it they took. An operation is
// three bytes: which, and two that it takes as numbers.
func (p *stranger) act(script []byte) (frames []byte, cut bool) {
	op, a, b := script[0], uint32(script[1]), uint32(script[2])
	ring := p.them.Data
	spot := ring.Addr + uint64(a)<<8 + uint64(b) // somewhere in the ring
	data := bytes.Repeat([]byte{strangersByte}, int(b)+1)
	switch op % 24 {
	case 0: // data, as it should be
		at := ring.Addr + p.off
		p.off += uint64(len(data))
		frames = append(p.tagged(0, true, ring.Key, at, data), p.message(0, uint32(len(data)))...)
	case 1:
		frames = p.tagged(0, a&1 == 0, ring.Key, spot, data)
	case 2: // into the target SGL: windows of the stranger's choice
		entry := binary.NativeEndian.AppendUint64(nil, uint64(a)<<20)
		entry = binary.NativeEndian.AppendUint32(entry, b)
		entry = binary.NativeEndian.AppendUint32(entry, a*b*b)
		frames = append(p.tagged(0, true, p.them.SGL.Key, p.them.SGL.Addr+uint64(a%2*16), entry), p.message(4, 400+b)...)
	case 3:
		frames = p.message(a%8, b)
	case 4:
		frames = p.message(4, a<<8|b)
	case 5:
		frames = p.message(7, a%4)
	case 6: // announced and not written
		frames = p.message(0, a<<12|b)
	case 7, 8:
		p.msn++
		frames = p.untagged(byte(2+2*(op%24-6)), true, ring.Key, 0, p.msn, 0, []byte{1, 0, 0, 0xe0})
	case 9:
		p.msn++
		frames = p.untagged(4, true, a<<8|b, 0, p.msn, 0, []byte{1, 0, 0, 0xe0})
	case 10: // a Read of the ring, which is not to be read, or of nothing
		p.reads++
		r := binary.BigEndian.AppendUint32(nil, 0x52)
		r = binary.BigEndian.AppendUint64(r, 0x200000)
		r = binary.BigEndian.AppendUint32(r, a*(b&1))
		r = binary.BigEndian.AppendUint32(r, ring.Key)
		r = binary.BigEndian.AppendUint64(r, spot)
		frames = p.untagged(1, true, 0, 1, p.reads, 0, r)
	case 11: // a response that nobody asked for, or perhaps somebody did
		frames = p.tagged(2, true, ring.Key, ring.Addr, data[:b*(a&1)])
	case 12:
		frames = p.untagged(7, true, 0, 2, 1, 0, []byte{byte(a), byte(b), 0, 0})
	case 13: // beyond both ends
		frames = p.tagged(0, true, ring.Key, ring.Addr-uint64(ringOffsetForFuzz)-uint64(a)+uint64(b), data)
	case 14:
		frames = p.tagged(0, true, ring.Key, ring.Addr+uint64(ring.Len)-uint64(a)+uint64(b), data)
	case 15: // the key beside
		frames = p.tagged(0, true, ring.Key^(1<<(a%32)), spot, data)
	case 16:
		p.msn++
		frames = p.untagged(3, a&1 == 0, 0, 0, p.msn, b, data)
	case 17: // a message in two segments
		p.msn++
		frames = append(p.untagged(3, false, 0, 0, p.msn, 0, data[:1]), p.untagged(3, true, 0, 0, p.msn, 1, []byte{0, 0, byte(a)})...)
	case 18: // a bit is wrong
		frames = p.message(4, 400)
		frames[int(a)%len(frames)] ^= 1 << (b % 8)
	case 19: // it stops in the middle
		frames = p.tagged(0, true, ring.Key, spot, data)
		return frames[:int(a)%len(frames)], true
	case 20:
		frames = p.tagged(0, true, 0, 0, nil)
	case 21:
		frames = p.untagged(byte(a), b&1 == 0, ring.Key, a%4, p.msn+1, 0, data)
	case 22: // many at once
		for range a {
			frames = append(frames, p.message(7, 1)...)
		}
	case 23:
		return nil, true
	}
	return frames, false
}

const (
	requestKey, replyKey = "MPA ID Req Frame", "MPA ID Rep Frame"

	strangersByte     = 0xA5
	ringOffsetForFuzz = 4096 // of the read ring in its region
)

// play says all of the script, a write for each operation or all at once.
func (p *stranger) play(script []byte, joined bool) {
	defer p.conn.Close()
	_ = p.conn.SetDeadline(time.Now().Add(10 * time.Second))
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, struct{ io.Reader }{p.conn})
	}()
	var all []byte
	for cut := false; len(script) >= 3 && !cut; script = script[3:] {
		var frames []byte
		frames, cut = p.act(script)
		if all = append(all, frames...); !joined {
			_, _ = p.conn.Write(all) // it may have been hung up on, as it deserves
			all = nil
		}
	}
	_, _ = p.conn.Write(all)
	_ = p.conn.CloseWrite()
	<-drained
}

// FuzzSession has a stranger play whole sessions, with a Listener and with a Dialer,
// with all that it was granted known to it. Whatever it does: nothing panics or
// hangs, what it sent is all that the other end reads, an honest connection that has
// its memory from the same pool stays whole, before, meanwhile and after.
func FuzzSession(f *testing.F) {
	l, err := (&ListenConfig{Provider: Software, Backlog: 16}).Listen(context.Background(), "rdma", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { l.Close() })
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { plain.Close() })
	f.Fuzz(func(t *testing.T, script []byte, mode byte) {
		if len(script) > 300 {
			return
		}
		a, b := honestPair(t, l)
		honestEcho(t, a, b, 1)

		p := &stranger{crc: mode&1 != 0}
		victim := p.meetVictim(t, l, plain, mode&2 != 0)
		served := make(chan struct{})
		go func() {
			defer close(served)
			serveVictim(t, victim, mode&4 != 0)
		}()
		p.play(script, mode&8 != 0)
		honestEcho(t, a, b, 2)
		select {
		case <-served:
		case <-time.After(30 * time.Second):
			panic("the victim hangs")
		}
		honestEcho(t, a, b, 3)
		c, d := honestPair(t, l) // one of them has the victim's memory
		honestEcho(t, c, d, 4)
		honestEcho(t, c, d, 5)
		var closed sync.WaitGroup
		for _, conn := range []net.Conn{c, d, a, b} { // at the same time, or each would wait for its peer
			closed.Go(func() { conn.Close() })
		}
		closed.Wait()
	})
}

// meetVictim connects with a Listener, or has a Dialer come.
func (p *stranger) meetVictim(t *testing.T, l, plain net.Listener, dialer bool) net.Conn {
	if !dialer {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		p.conn = c.(*net.TCPConn)
		if err := p.meet(requestKey); err != nil {
			t.Fatal(err)
		}
		victim, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return victim
	}
	dialed := make(chan net.Conn, 1)
	go func() {
		d := Dialer{Provider: Software, Timeout: 20 * time.Second}
		c, err := d.Dial("rdma", plain.Addr().String())
		if err != nil {
			t.Error(err)
		}
		dialed <- c
	}()
	c, err := plain.Accept()
	if err != nil {
		t.Fatal(err)
	}
	p.conn = c.(*net.TCPConn)
	if err := p.meet(replyKey); err != nil {
		t.Fatal(err)
	}
	victim := <-dialed
	if victim == nil {
		t.FailNow()
	}
	return victim
}

// serveVictim is a program with a stranger at the other end. It may read what the
// stranger wrote, or what has never been written, and nothing else.
func serveVictim(t *testing.T, c net.Conn, writes bool) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(15 * time.Second))
	if writes {
		if _, err := c.Write(bytes.Repeat([]byte("to the stranger "), 100)); err != nil {
			return
		}
	}
	b := make([]byte, 4096)
	for {
		n, err := c.Read(b)
		for _, v := range b[:n] {
			if v != strangersByte && v != 0 {
				t.Errorf("the victim read a byte %#x that nobody wrote", v)
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func honestPair(t *testing.T, l net.Listener) (dialer, acceptor net.Conn) {
	d := Dialer{Provider: Software, Timeout: 20 * time.Second}
	dialer, err := d.Dial("rdma", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	acceptor, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return dialer, acceptor
}

// honestEcho sends a message each way, which must arrive as it was sent.
func honestEcho(t *testing.T, a, b net.Conn, seed int) {
	t.Helper()
	sent, got := make([]byte, 3000), make([]byte, 3000)
	for i := range sent {
		sent[i] = byte(i*7+seed) | 1
	}
	for _, ends := range [][2]net.Conn{{a, b}, {b, a}} {
		_ = ends[0].SetDeadline(time.Now().Add(20 * time.Second))
		_ = ends[1].SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := ends[0].Write(sent); err != nil {
			t.Fatal("an honest connection was harmed: ", err)
		}
		clear(got)
		if _, err := io.ReadFull(ends[1], got); err != nil {
			t.Fatal("an honest connection was harmed: ", err)
		}
		if !bytes.Equal(got, sent) {
			t.Fatal("an honest connection reads what was not sent to it")
		}
	}
}
