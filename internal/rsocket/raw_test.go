package rsocket

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/simqp"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// A rawPeer is a peer without a stream: it posts what the test says, so that it
// can break the protocol, or keep to it in C's way.
type rawPeer struct {
	t         testing.TB
	immediate bool
	order     endian

	pd    verbs.PD
	cq    verbs.CQ
	qp    *simqp.QP
	mem   verbs.MR // target SGL, then the read ring, then the inbox
	local verbs.MR
	sent  int // bytes of local used
	recvs int
	next  int // place of the inbox
	size  int // of the read ring
	us    Header
	win   int // entry of our SGL that this peer writes next
	wc    []verbs.WC

	cond func(cause error)
}

type rawConfig struct {
	recvs     int // receives posted and advertised; default 384
	ring      int // default 128 KiB
	bigEndian bool
	acceptor  bool // our end dials
	reads     int
	depth     int
}

// connectRaw connects a stream of ours to a rawPeer on the second device.
func (l *lab) connectRaw(cfg Config, rc rawConfig) (*end, *rawPeer) {
	t := l.t
	if rc.recvs == 0 {
		rc.recvs = 384
	}
	if rc.ring == 0 {
		rc.ring = 128 << 10
	}
	if rc.depth == 0 {
		rc.depth = 384
	}
	r := &rawPeer{
		t: t, order: endian(rc.bigEndian), recvs: rc.recvs, size: rc.ring, win: 1,
		immediate: l.dev[1].Info().Transport.HasImmediate(),
	}
	var err error
	r.pd, err = l.dev[1].AllocPD()
	require.NoError(t, err)
	r.mem, err = r.pd.RegisterMemory(64+rc.ring+rc.recvs*msgSize, verbs.LocalWrite|verbs.RemoteWrite)
	require.NoError(t, err)
	r.local, err = r.pd.RegisterMemory(4<<20, verbs.LocalWrite)
	require.NoError(t, err)
	r.cq, err = l.dev[1].NewCQ(rc.depth + rc.recvs)
	require.NoError(t, err)
	r.qp, err = l.dev[1].CreateQP(r.pd, r.cq, verbs.QPAttr{SendDepth: rc.depth, RecvDepth: rc.recvs, MaxInline: 64, SignalAll: true})
	require.NoError(t, err)
	r.postRecvs(rc.recvs)

	e := l.open(0, cfg)
	e.cfg.Acceptor = !rc.acceptor
	r.us, err = ParseHeader(e.PrivateData(), false)
	require.NoError(t, err)
	e.Start(r.header(rc), rc.reads)
	r.qp.SpeaksFirst = true
	r.qp.OnEvent = func(cause error) {
		if r.cond != nil {
			r.cond(cause)
		}
	}
	if rc.acceptor {
		simqp.Connect(e.qp, r.qp, rc.reads)
	} else {
		simqp.Connect(r.qp, e.qp, rc.reads)
	}
	e.Established()
	t.Cleanup(func() {
		l.release(e)
		r.destroy()
	})
	return e, r
}

func (r *rawPeer) header(rc rawConfig) Header {
	return Header{
		BigEndian: rc.bigEndian,
		Credits:   uint16(rc.recvs),
		SGL:       Segment{r.mem.Addr(), r.mem.RKey(), sglEntries},
		Data:      Segment{r.mem.Addr() + 64, r.mem.RKey(), uint32(rc.ring / 2)},
	}
}

func (r *rawPeer) destroy() {
	if r.qp == nil {
		return
	}
	require.NoError(r.t, r.qp.Destroy())
	require.NoError(r.t, r.cq.Destroy())
	require.NoError(r.t, r.mem.Deregister())
	require.NoError(r.t, r.local.Deregister())
	require.NoError(r.t, r.pd.Dealloc())
	r.qp = nil
}

func (r *rawPeer) ring() []byte { return r.mem.Bytes()[64:][:r.size] }

func (r *rawPeer) postRecvs(n int) {
	for range n {
		wr := verbs.RecvWR{ID: recvID | uint64(r.next)}
		if !r.immediate {
			wr.SGE = verbs.SGE{Addr: r.mem.Addr() + uint64(64+r.size+r.next*msgSize), Length: msgSize, LKey: r.mem.LKey()}
		}
		_, err := r.qp.PostRecv([]verbs.RecvWR{wr})
		require.NoError(r.t, err)
		r.next = (r.next + 1) % r.recvs
	}
}

// gather puts bytes into local memory and describes them.
func (r *rawPeer) gather(p []byte) verbs.SGE {
	buf := r.local.Bytes()
	if r.sent+len(p) > len(buf) {
		r.sent = 0
	}
	copy(buf[r.sent:], p)
	e := verbs.SGE{Addr: r.local.Addr() + uint64(r.sent), Length: uint32(len(p)), LKey: r.local.LKey()}
	r.sent += len(p)
	return e
}

func (r *rawPeer) post(wr verbs.SendWR) {
	_, err := r.qp.PostSend([]verbs.SendWR{wr})
	require.NoError(r.t, err)
}

// message sends a message behind a Write of data to addr; with no data there is
// none. It returns the number of requests posted.
func (r *rawPeer) message(m message, data []byte, addr uint64, key uint32) int {
	wr := verbs.SendWR{ID: uint64(m), RemoteAddr: addr, RKey: key}
	if len(data) > 0 {
		wr.NumSGE = 1
		wr.SGE[0] = r.gather(data)
	}
	if r.immediate {
		wr.Opcode, wr.Imm = verbs.OpWriteImm, uint32(m)
		r.post(wr)
		return 1
	}
	n := 1
	if len(data) > 0 {
		wr.Opcode = verbs.OpWrite
		r.post(wr)
		n = 2
	}
	var b [msgSize]byte
	r.order.putUint32(b[:], uint32(m))
	r.send(b[:], uint64(m)|1<<62)
	return n
}

// send sends bytes as a Send.
func (r *rawPeer) send(b []byte, id uint64) {
	wr := verbs.SendWR{ID: id, Opcode: verbs.OpSend, NumSGE: 1, Flags: verbs.FlagInline}
	if len(b) > 64 {
		wr.Flags = 0
	}
	wr.SGE[0] = r.gather(b)
	r.post(wr)
}

// data writes bytes at an offset of our end's first window and announces them.
func (r *rawPeer) data(offset int, p []byte) {
	r.message(newMessage(msgData, uint32(len(p))), p, r.us.Data.Addr+uint64(offset), r.us.Data.Key)
}

// grant sends a limit and, unless w is zero, a window.
func (r *rawPeer) grant(limit uint16, w Segment) int {
	m := newMessage(msgCredits, uint32(limit))
	if w == (Segment{}) {
		return r.message(m, nil, 0, 0)
	}
	var b [sglEntrySize]byte
	endian(r.us.BigEndian).putEntry(b[:], w)
	at := r.us.SGL.Addr + uint64(r.win*sglEntrySize)
	r.win = (r.win + 1) % sglEntries
	return r.message(m, b[:], at, r.us.SGL.Key)
}

// poll takes one completion; it reports false if there is none.
func (r *rawPeer) poll() (verbs.WC, bool) {
	if len(r.wc) == 0 {
		wc := make([]verbs.WC, 16)
		n, err := r.cq.Poll(wc)
		require.NoError(r.t, err)
		r.wc = wc[:n]
	}
	if len(r.wc) == 0 {
		return verbs.WC{}, false
	}
	wc := r.wc[0]
	r.wc = r.wc[1:]
	return wc, true
}

// received is the message of a completed receive.
func (r *rawPeer) received(wc verbs.WC) message {
	if r.immediate {
		return message(wc.Imm)
	}
	at := 64 + r.size + int(wc.ID&^recvID)*msgSize
	return message(r.order.uint32(r.mem.Bytes()[at:]))
}

// entry reads an entry of this peer's target SGL.
func (r *rawPeer) entry(i int) Segment {
	var b [sglEntrySize]byte
	for j := 0; j < sglEntrySize; j += 4 {
		word := (*uint32)(unsafe.Pointer(&r.mem.Bytes()[i*sglEntrySize+j]))
		binary.NativeEndian.PutUint32(b[j:], atomic.LoadUint32(word))
	}
	return r.order.entry(b[:])
}

// setEntry sets the address and the length of an entry of this peer's target SGL.
func (r *rawPeer) setEntry(i int, addr uint64, n uint32) {
	var b [sglEntrySize]byte
	r.order.putEntry(b[:], Segment{Addr: addr, Len: n})
	for _, j := range []int{0, 4, 12} {
		word := (*uint32)(unsafe.Pointer(&r.mem.Bytes()[i*sglEntrySize+j]))
		atomic.StoreUint32(word, binary.NativeEndian.Uint32(b[j:]))
	}
}
