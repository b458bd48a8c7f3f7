package iwarp

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// A rawPeer is a TCP peer that puts on the wire whatever a test wants.
type rawPeer struct {
	t    testing.TB
	conn *net.TCPConn
	crc  bool
}

func (p *rawPeer) write(b []byte) {
	p.t.Helper()
	_, err := p.conn.Write(b)
	require.NoError(p.t, err)
}

// frame is a frame of headers and payload, with its trailer.
func (p *rawPeer) frame(headers, payload []byte) []byte {
	b := append(append([]byte(nil), headers...), payload...)
	ulpdu := int(binary.BigEndian.Uint16(b))
	b = append(b, make([]byte, padding(ulpdu))...)
	var sum [crcSize]byte
	if p.crc {
		putCRC(sum[:], addCRC(0, b))
	}
	return append(b, sum[:]...)
}

func (p *rawPeer) tagged(op opcode, last bool, stag uint32, offset uint64, payload []byte) []byte {
	var h [taggedSize]byte
	putTagged(h[:], len(payload), last, op, stag, offset)
	return p.frame(h[:], payload)
}

func (p *rawPeer) untagged(op opcode, last bool, msn, mo uint32, payload []byte) []byte {
	var h [untaggedSize]byte
	putUntagged(h[:], len(payload), last, op, msn, mo)
	return p.frame(h[:], payload)
}

func (p *rawPeer) readRequest(msn uint32, r readRequest) []byte {
	var h [readRequestSize]byte
	putReadRequest(h[:], msn, &r)
	return p.frame(h[:], nil)
}

// sign is a zero-length Write.
func (p *rawPeer) sign() []byte { return p.tagged(opWrite, true, 0, 0, nil) }

// read reads a frame: its headers and its payload. It fails with io.EOF at the
// end.
func (p *rawPeer) read() (h header, payload []byte, err error) {
	p.conn.SetReadDeadline(time.Now().Add(patience))
	b := make([]byte, lengthSize)
	if _, err = io.ReadFull(p.conn, b); err != nil {
		return h, nil, err
	}
	ulpdu := int(binary.BigEndian.Uint16(b))
	b = append(b, make([]byte, ulpdu+trailer(ulpdu))...)
	if _, err = io.ReadFull(p.conn, b[lengthSize:]); err != nil {
		return h, nil, err
	}
	if p.crc {
		require.True(p.t, crcMatches(b), "CRC of a frame")
	}
	h, v := parseHeader(b)
	require.Nil(p.t, v)
	size, _ := sizeOf(b)
	if h.op == opTerminate {
		return h, b[untaggedSize : lengthSize+ulpdu], nil
	}
	return h, b[size : lengthSize+ulpdu], nil
}

// next reads the next frame that is not a sign of life.
func (p *rawPeer) next() (header, []byte) {
	p.t.Helper()
	for {
		h, payload, err := p.read()
		require.NoError(p.t, err)
		if h.op != opWrite || h.payload > 0 {
			return h, payload
		}
	}
}

// silent makes sure that nothing comes for a while.
func (p *rawPeer) silent(d time.Duration) {
	p.t.Helper()
	p.conn.SetReadDeadline(time.Now().Add(d))
	var b [1]byte
	n, err := p.conn.Read(b[:])
	require.Zero(p.t, n)
	require.True(p.t, isTimeout(err), "%v", err)
}

// readSetup reads a set-up frame.
func (p *rawPeer) readSetup(key string) setupFrame {
	p.t.Helper()
	f, surplus, err := readSetup(p.conn, key, patience)
	require.NoError(p.t, err)
	require.Empty(p.t, surplus)
	return f
}

// dialRaw connects a raw peer to a listener, with TCP alone.
func dialRaw(t testing.TB, addr netip.AddrPort) *rawPeer {
	conn, err := net.Dial("tcp", addr.String())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return &rawPeer{t: t, conn: conn.(*net.TCPConn)}
}

var enhancedRequest = setupFrame{revision: 2, enhanced: true, ird: 4, ord: 4}

// rawInitiator connects a raw peer to an end of the NIC.
func rawInitiator(t testing.TB, nic *NIC, req setupFrame, attr verbs.QPAttr, prepare ...func(*side)) (*rawPeer, *side) {
	lid, events := listen(t, nic, "127.0.0.1:0")
	defer func() { require.NoError(t, lid.Destroy()) }()
	p := dialRaw(t, lid.LocalAddr())
	p.write(appendSetup(nil, requestKey, &req))
	ev := next(t, events, cm.ConnectRequest)
	e := newEnd(t, nic, ev.Request, attr)
	for _, f := range prepare {
		f(e)
	}
	require.NoError(t, e.id.Accept(onePair))
	e.next(cm.Established)
	rep := p.readSetup(replyKey)
	require.False(t, rep.reject)
	p.crc = rep.crc || req.crc
	return p, e
}

// acceptRaw dials with the NIC and hands out the raw peer that was dialled, and
// what it was asked.
func acceptRaw(t testing.TB, nic *NIC, param cm.ConnParam) (*rawPeer, *side, setupFrame) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	e := newEnd(t, nic, nil, verbs.QPAttr{})
	resolve(t, e.id, e.events, addrPort(l.Addr()))
	require.NoError(t, e.id.Connect(param))
	conn, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	p := &rawPeer{t: t, conn: conn.(*net.TCPConn)}
	return p, e, p.readSetup(requestKey)
}

// rawResponder is acceptRaw and a reply.
func rawResponder(t testing.TB, nic *NIC) (*rawPeer, *side) {
	p, e, req := acceptRaw(t, nic, onePair)
	rep := setupFrame{revision: 2, enhanced: true, ird: 4, ord: 4, crc: req.crc}
	p.crc = req.crc
	p.write(appendSetup(nil, replyKey, &rep))
	e.next(cm.Established)
	return p, e
}
