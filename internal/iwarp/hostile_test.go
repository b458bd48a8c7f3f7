package iwarp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// A crime is a frame that must not be, and what has to come of it.
type crime struct {
	name string

	// commit is what the peer writes.
	commit func(p *rawPeer, victim *side) []byte

	want termination

	// quotes is how much of the frame's headers the Terminate has.
	quotes int

	// receive is how the receive ends that is posted, if not by being flushed.
	receive verbs.WCStatus

	crc        bool
	noReceive  bool // none is posted
	otherPD    bool
	privileges verbs.Access
}

const payload16 = "sixteen bytes ok"

func crimes() []crime {
	const allowed = 100 // an offset in the region
	tagged := func(ddp byte, rdmap byte) func(p *rawPeer, v *side) []byte {
		return func(p *rawPeer, v *side) []byte {
			b := p.tagged(opWrite, true, v.mr.RKey(), v.mr.Addr()+allowed, []byte(payload16))
			b[2], b[3] = ddp, rdmap
			return b
		}
	}
	untagged := func(ddp byte, rdmap byte) func(p *rawPeer, v *side) []byte {
		return func(p *rawPeer, v *side) []byte {
			b := p.untagged(opSend, true, 1, 0, []byte(payload16))
			b[2], b[3] = ddp, rdmap
			return b
		}
	}
	write := func(f func(v *side) (stag uint32, to uint64)) func(p *rawPeer, v *side) []byte {
		return func(p *rawPeer, v *side) []byte {
			stag, to := f(v)
			return p.tagged(opWrite, true, stag, to, []byte(payload16))
		}
	}
	send := func(msn, mo uint32, payload string) func(p *rawPeer, v *side) []byte {
		return func(p *rawPeer, v *side) []byte { return p.untagged(opSend, true, msn, mo, []byte(payload)) }
	}
	read := func(f func(v *side) readRequest) func(p *rawPeer, v *side) []byte {
		return func(p *rawPeer, v *side) []byte { return p.readRequest(1, f(v)) }
	}
	patch := func(f func(p *rawPeer, v *side) []byte, change func(b []byte)) func(p *rawPeer, v *side) []byte {
		return func(p *rawPeer, v *side) []byte {
			b := f(p, v)
			change(b)
			return b
		}
	}
	goodRead := read(func(v *side) readRequest {
		return readRequest{sinkSTag: 1, size: 16, srcSTag: v.mr.RKey(), srcTO: v.mr.Addr()}
	})
	const T, U, R = taggedSize - lengthSize, untaggedSize - lengthSize, readRequestSize - lengthSize

	return []crime{
		{name: "tagged DDP version 0", commit: tagged(0xC0, 0x40), want: termination{1, 1, 4}, quotes: T},
		{name: "tagged DDP version 2", commit: tagged(0xC2, 0x40), want: termination{1, 1, 4}, quotes: T},
		{name: "untagged DDP version 3", commit: untagged(0x43, 0x43), want: termination{1, 2, 6}, quotes: U},
		{name: "RDMAP version 0", commit: tagged(0xC1, 0x00), want: termination{0, 2, 5}, quotes: T},
		{name: "RDMAP version 2 of a Send", commit: untagged(0x41, 0x83), want: termination{0, 2, 5}, quotes: U},
		{name: "opcode 8", commit: untagged(0x41, 0x48), want: termination{0, 2, 6}, quotes: U},
		{name: "opcode 15", commit: tagged(0xC1, 0x4F), want: termination{0, 2, 6}, quotes: T},
		{name: "tagged Send", commit: tagged(0xC1, 0x43), want: termination{0, 2, 6}, quotes: T},
		{name: "untagged Write", commit: untagged(0x41, 0x40), want: termination{0, 2, 6}, quotes: U},
		{name: "untagged Read Response", commit: untagged(0x41, 0x42), want: termination{0, 2, 6}, quotes: U},
		{name: "Send on the queue of Reads", commit: patch(send(1, 0, payload16), func(b []byte) { b[11] = 1 }), want: termination{0, 2, 6}, quotes: U},
		{name: "Send on queue 3", commit: patch(send(1, 0, payload16), func(b []byte) { b[11] = 3 }), want: termination{1, 2, 1}, quotes: U},
		{name: "Send on queue 2³¹", commit: patch(send(1, 0, payload16), func(b []byte) { b[8] = 0x80 }), want: termination{1, 2, 1}, quotes: U},
		{name: "tagged shorter than its headers", commit: patch(tagged(0xC1, 0x40), func(b []byte) { b[0], b[1] = 0, 13 }), want: termination{2, 0, 3}},
		{name: "Send shorter than its headers", commit: patch(send(1, 0, payload16), func(b []byte) { b[0], b[1] = 0, 17 }), want: termination{2, 0, 3}},
		{name: "no length at all", commit: patch(tagged(0xC1, 0x40), func(b []byte) { b[0], b[1] = 0, 0 }), want: termination{2, 0, 3}},
		{name: "Read Request too short", commit: patch(goodRead, func(b []byte) { b[1]-- }), want: termination{2, 0, 3}},
		{name: "Read Request too long", commit: patch(goodRead, func(b []byte) { b[1]++ }), want: termination{1, 2, 5}, quotes: R},
		{name: "Terminate without its control", commit: patch(send(1, 0, payload16), func(b []byte) { b[1], b[3] = 18, 0x47 }), want: termination{2, 0, 3}},

		{name: "message number 0", commit: send(0, 0, payload16), want: termination{1, 2, 3}, quotes: U},
		{name: "message number 2", commit: send(2, 0, payload16), want: termination{1, 2, 3}, quotes: U},
		{name: "message offset", commit: send(1, 4, payload16), want: termination{1, 2, 4}, quotes: U},
		{name: "Send without a receive", commit: send(1, 0, payload16), want: termination{1, 2, 2}, quotes: U, noReceive: true},
		{name: "Send one byte too long", commit: send(1, 0, payload16+"!"), want: termination{1, 2, 5}, quotes: U, receive: verbs.WCLocLenErr},
		{name: "Send too long in its second segment", commit: func(p *rawPeer, v *side) []byte {
			return append(p.untagged(opSend, false, 1, 0, []byte("0123456789")), p.untagged(opSend, true, 1, 10, []byte("abcdefg"))...)
		}, want: termination{1, 2, 5}, quotes: U, receive: verbs.WCLocLenErr},
		{name: "second segment with a gap", commit: func(p *rawPeer, v *side) []byte {
			return append(p.untagged(opSend, false, 1, 0, []byte("01234567")), p.untagged(opSend, true, 1, 9, []byte("abc"))...)
		}, want: termination{1, 2, 4}, quotes: U},
		{name: "Send with Invalidate", commit: invalidate(opSendInvalidate), want: termination{0, 1, 9}, quotes: U},
		{name: "Send with Invalidate, solicited", commit: invalidate(opSendSolicitedInval), want: termination{0, 1, 9}, quotes: U},
		{name: "Send with Invalidate of nothing", commit: patch(send(1, 0, payload16), func(b []byte) { b[3], b[4] = 0x44, 7 }), want: termination{0, 1, 9}, quotes: U},

		{name: "Write: wrong key", commit: write(func(v *side) (uint32, uint64) { return v.mr.RKey() ^ 1, v.mr.Addr() + allowed }), want: termination{1, 1, 0}, quotes: T},
		{name: "Write: STag 0", commit: write(func(v *side) (uint32, uint64) { return 0, v.mr.Addr() + allowed }), want: termination{1, 1, 0}, quotes: T},
		{name: "Write: one byte before", commit: write(func(v *side) (uint32, uint64) { return v.mr.RKey(), v.mr.Addr() - 1 }), want: termination{1, 1, 1}, quotes: T},
		{name: "Write: one byte past the end", commit: write(func(v *side) (uint32, uint64) { return v.mr.RKey(), v.mr.Addr() + testRegion - 15 }), want: termination{1, 1, 1}, quotes: T},
		{name: "Write: at the end", commit: write(func(v *side) (uint32, uint64) { return v.mr.RKey(), v.mr.Addr() + testRegion }), want: termination{1, 1, 1}, quotes: T},
		{name: "Write: offset wraps", commit: write(func(v *side) (uint32, uint64) { return v.mr.RKey(), math.MaxUint64 - 7 }), want: termination{1, 1, 3}, quotes: T},
		{name: "Write: offset 0", commit: write(func(v *side) (uint32, uint64) { return v.mr.RKey(), 0 }), want: termination{1, 1, 1}, quotes: T},
		{name: "Write: no right", commit: write(func(v *side) (uint32, uint64) { return v.mr.RKey(), v.mr.Addr() }), want: termination{0, 1, 2}, quotes: T,
			privileges: verbs.LocalWrite | verbs.RemoteRead},
		{name: "Write: another domain", commit: write(func(v *side) (uint32, uint64) { return v.mr.RKey(), v.mr.Addr() }), want: termination{1, 1, 2}, quotes: T, otherPD: true},

		{name: "Read: wrong key", commit: read(func(v *side) readRequest {
			return readRequest{size: 16, srcSTag: v.mr.RKey() ^ 1, srcTO: v.mr.Addr()}
		}), want: termination{0, 1, 0}, quotes: R},
		{name: "Read: one byte past the end", commit: read(func(v *side) readRequest {
			return readRequest{size: 16, srcSTag: v.mr.RKey(), srcTO: v.mr.Addr() + testRegion - 15}
		}), want: termination{0, 1, 1}, quotes: R},
		{name: "Read: 4 GiB", commit: read(func(v *side) readRequest {
			return readRequest{size: math.MaxUint32, srcSTag: v.mr.RKey(), srcTO: v.mr.Addr()}
		}), want: termination{0, 1, 1}, quotes: R},
		{name: "Read: offset wraps", commit: read(func(v *side) readRequest {
			return readRequest{size: 16, srcSTag: v.mr.RKey(), srcTO: math.MaxUint64 - 7}
		}), want: termination{0, 1, 4}, quotes: R},
		{name: "Read: no right", commit: goodRead, want: termination{0, 1, 2}, quotes: R, privileges: verbs.LocalWrite | verbs.RemoteWrite},
		{name: "Read: another domain", commit: goodRead, want: termination{0, 1, 3}, quotes: R, otherPD: true},
		{name: "Read: message number 2", commit: func(p *rawPeer, v *side) []byte { return p.readRequest(2, readRequest{}) }, want: termination{1, 2, 3}, quotes: R},
		{name: "Read: message offset", commit: patch(goodRead, func(b []byte) { b[19] = 4 }), want: termination{1, 2, 4}, quotes: R},
		{name: "Read: not the last segment", commit: patch(goodRead, func(b []byte) { b[2] &^= ddpLast }), want: termination{0, 2, 0xff}, quotes: R},
		{name: "Read Response without a request", commit: func(p *rawPeer, v *side) []byte {
			return p.tagged(opReadResponse, true, v.mr.RKey(), v.mr.Addr(), []byte(payload16))
		}, want: termination{0, 2, 6}, quotes: T},

		{name: "wrong CRC", crc: true, commit: func(p *rawPeer, v *side) []byte {
			b := p.tagged(opWrite, true, v.mr.RKey(), v.mr.Addr(), []byte(payload16))
			b[len(b)-1] ^= 1
			return b
		}, want: termination{2, 0, 2}},
		{name: "payload that the CRC does not match", crc: true, commit: func(p *rawPeer, v *side) []byte {
			b := p.tagged(opWrite, true, v.mr.RKey(), v.mr.Addr(), []byte(payload16))
			b[taggedSize] ^= 1
			return b
		}, want: termination{2, 0, 2}},
		{name: "length that the CRC does not match", crc: true, commit: func(p *rawPeer, v *side) []byte {
			b := p.tagged(opWrite, true, v.mr.RKey(), v.mr.Addr(), []byte(payload16))
			b[1] -= 4
			return b
		}, want: termination{2, 0, 2}},
	}
}

// invalidate is a Send that would take the region that the peer may use.
func invalidate(op opcode) func(p *rawPeer, v *side) []byte {
	return func(p *rawPeer, v *side) []byte {
		b := p.untagged(op, true, 1, 0, []byte(payload16))
		binary.BigEndian.PutUint32(b[4:], v.mr.RKey())
		return b
	}
}

// Each crime ends the connection of the one who commits it, with the Terminate
// that the RFCs have for it, without a byte placed; a connection beside it goes
// on.
func TestCrimes(t *testing.T) {
	for _, c := range crimes() {
		t.Run(c.name, func(t *testing.T) {
			nic := openNIC(t, Config{CRC: c.crc})
			innocent, bystander := rawInitiator(t, nic, enhancedRequest, verbs.QPAttr{})
			p, e := rawInitiator(t, nic, enhancedRequest, verbs.QPAttr{}, func(e *side) { c.prepare(e) })
			fillPattern(e.mr.Bytes(), 1)
			before := bytes.Clone(e.mr.Bytes())

			p.write(p.sign())
			if !c.noReceive {
				e.postRecv(9, 1000, len(payload16))
			}
			act := c.commit(p, e)
			p.write(act)
			if !c.noReceive {
				status := verbs.WCWRFlushErr
				if c.receive != 0 {
					status = c.receive
				}
				e.want(9, status, 0)
			}
			ev := e.awaitDisconnected()
			require.NotZero(t, ev.Status)
			var v *violation
			require.True(t, errors.As(ev.Err, &v), "%v", ev.Err)
			require.Equal(t, c.want, v.termination, v.Error())
			require.ErrorIs(t, ev.Err, syscall.EPROTO)

			h, term := p.next()
			require.Equal(t, opTerminate, h.op)
			require.True(t, h.last)
			require.Equal(t, uint32(1), h.msn)
			require.Equal(t, c.want, parseTerminate(term), "% x", term)
			require.Equal(t, []byte{c.want.layer<<4 | c.want.etype, c.want.code}, term[:2])
			c.checkQuote(t, term, act)
			_, _, err := p.read()
			require.Equal(t, io.EOF, err)
			p.conn.Close()

			// Of a Send in two segments the first was good.
			after := bytes.Clone(e.mr.Bytes())
			copy(after[1000:1010], before[1000:1010])
			require.True(t, bytes.Equal(before, after), "a byte was placed")
			e.destroy()

			bystander.postRecv(1, 0, 4)
			innocent.write(innocent.untagged(opSend, true, 1, 0, []byte("fine")))
			bystander.want(1, verbs.WCSuccess, verbs.WCRecv)
			require.Equal(t, "fine", string(bystander.mr.Bytes()[:4]))
			innocent.conn.Close()
			bystander.awaitDisconnected()
			bystander.destroy()
		})
	}
}

// prepare replaces the end's region by one that the crime needs.
func (c *crime) prepare(e *side) {
	pd := e.pd
	if c.otherPD {
		var err error
		pd, err = e.nic.AllocPD()
		require.NoError(e.t, err)
	}
	if c.privileges == 0 && !c.otherPD {
		return
	}
	if c.privileges == 0 {
		c.privileges = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead
	}
	require.NoError(e.t, e.mr.Deregister())
	var err error
	e.mr, err = pd.RegisterMemory(testRegion, c.privileges)
	require.NoError(e.t, err)
}

func (c *crime) checkQuote(t *testing.T, term, act []byte) {
	if c.quotes == 0 {
		require.Len(t, term, terminateControlSize)
		require.Zero(t, term[2])
		return
	}
	flags := byte(termLength | termDDPHeader)
	if c.quotes == readRequestSize-lengthSize {
		flags |= termRDMAPHeader
	}
	require.Equal(t, flags, term[2])
	if strip := len(act) - len(lastFrame(act)); strip > 0 {
		act = act[strip:]
	}
	require.Equal(t, act[:lengthSize+c.quotes], term[terminateControlSize:])
}

// lastFrame is the last of the frames in b.
func lastFrame(b []byte) []byte {
	for {
		ulpdu := int(binary.BigEndian.Uint16(b))
		n := lengthSize + ulpdu + trailer(ulpdu)
		if n >= len(b) {
			return b
		}
		b = b[n:]
	}
}
