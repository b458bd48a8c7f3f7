package rdmanet_test

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A framePeer is a TCP peer that puts on the wire whatever a test wants: MPA, DDP and
// RDMAP (RFC 5044, 5041, 5040, 6581), and rsockets above.
type framePeer struct {
	conn        *net.TCPConn
	addr        uint64 // the window that it was granted
	key, length uint32
	sends       uint32
}

const (
	mpaRequest = "MPA ID Req Frame"
	mpaReply   = "MPA ID Rep Frame"

	mpaMarkers  = 0x80
	mpaReject   = 0x20
	mpaEnhanced = 0x10
)

// mpaFrame is a set-up frame. With mpaEnhanced the depths lead the private data.
func mpaFrame(key string, flags, revision byte, private []byte) []byte {
	if flags&mpaEnhanced != 0 {
		private = append([]byte{0, 1, 0, 1}, private...)
	}
	b := append([]byte(key), flags, revision)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(private))), private...)
}

// rsocketsHeader is what an honest peer sends as private data, and grants a window of
// 64 KiB with. change may spoil it.
func rsocketsHeader(change func(b []byte)) []byte {
	b := make([]byte, 40)
	be := binary.BigEndian
	b[0] = 1
	be.PutUint16(b[2:], 384)      // credits
	be.PutUint64(b[8:], 0x10000)  // target SGL
	be.PutUint32(b[16:], 0x51)    // its key
	be.PutUint32(b[20:], 2)       // its entries
	be.PutUint64(b[24:], 0x20000) // the window
	be.PutUint32(b[32:], 0x52)    // its key
	be.PutUint32(b[36:], 64<<10)  // its size
	if change != nil {
		change(b)
	}
	return b
}

// readSetup reads a set-up frame and what it grants.
func (p *framePeer) readSetup(t testing.TB) {
	b := make([]byte, 20)
	_, err := io.ReadFull(p.conn, b)
	require.NoError(t, err)
	private := make([]byte, binary.BigEndian.Uint16(b[18:]))
	_, err = io.ReadFull(p.conn, private)
	require.NoError(t, err)
	require.Zero(t, b[16]&mpaReject)
	h := private[4:]
	p.addr, p.key, p.length = binary.BigEndian.Uint64(h[24:]), binary.BigEndian.Uint32(h[32:]), binary.BigEndian.Uint32(h[36:])
}

func (p *framePeer) write(t testing.TB, b []byte) {
	_, err := p.conn.Write(b)
	require.NoError(t, err)
}

// dialFrames connects to a listener.
func dialFrames(t testing.TB, address string) *framePeer {
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	p := &framePeer{conn: conn.(*net.TCPConn)}
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	p.write(t, mpaFrame(mpaRequest, mpaEnhanced, 2, rsocketsHeader(nil)))
	p.readSetup(t)
	return p
}

// serveTCP gives each connection that is made to an address to a function, and closes
// it when the function returns.
func serveTCP(t testing.TB, serve func(conn *net.TCPConn)) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn.(*net.TCPConn))
			}()
		}
	}()
	return l.Addr().String()
}

// seal makes a frame of a DDP segment: the length before it, padding, no CRC.
func seal(segment []byte) []byte {
	b := append(binary.BigEndian.AppendUint16(nil, uint16(len(segment))), segment...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return append(b, 0, 0, 0, 0)
}

const (
	opWrite        = 0
	opReadRequest  = 1
	opReadResponse = 2
	opSend         = 3
	opTerminate    = 7

	ddpVersion   = 0x01
	rdmapVersion = 0x40
)

func tagged(op byte, key uint32, offset uint64, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{0xc0 | ddpVersion, rdmapVersion | op}, key)
	return seal(append(binary.BigEndian.AppendUint64(b, offset), payload...))
}

func untagged(control, op byte, queue, number, offset uint32, payload []byte) []byte {
	b := []byte{0x40 | control, op}
	for _, v := range []uint32{0, queue, number, offset} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return seal(append(b, payload...))
}

func (p *framePeer) send(payload []byte) []byte {
	p.sends++
	return untagged(ddpVersion, rdmapVersion|opSend, 0, p.sends, 0, payload)
}

// message is an rsockets message.
func (p *framePeer) message(typ, value uint32) []byte {
	return p.send(binary.LittleEndian.AppendUint32(nil, typ<<29|value))
}

// readRequest asks for 16 bytes of the window.
func (p *framePeer) readRequest() []byte {
	be := binary.BigEndian
	b := be.AppendUint64(be.AppendUint32(nil, 1), 1)
	b = be.AppendUint64(be.AppendUint32(be.AppendUint32(b, 16), p.key), p.addr)
	return untagged(ddpVersion, rdmapVersion|opReadRequest, 1, 1, 0, b)
}

func terminate(layerAndType, code byte) []byte {
	return untagged(ddpVersion, rdmapVersion|opTerminate, 2, 1, 0, []byte{layerAndType, code, 0, 0})
}
