package rsocket

import (
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// A Stream is a byte stream on one queue pair. See the package's documentation
// for its states, and for who waits and who wakes whom.
type Stream struct {
	cfg          Config
	immediate    bool               // messages travel as immediate data, not as Sends
	inline       int                // bytes of a write that are handed over with the request
	piece        int                // the most bytes of a data message
	callerDriven bool               // the device works in its caller: a post costs a system call
	direct       verbs.SourcePoster // the queue pair, if it can send from the memory of Write's caller
	teller       verbs.HostTeller   // the queue pair, if it knows of the peer's host
	order        endian

	pool *Memory
	mem  *block
	cq   verbs.CQ
	qp   verbs.QP

	readRing  ring
	writeRing ring
	sgl       []uint32 // the target SGL, which the peer writes, in 32-bit words
	ctrl      ring     // ctrlSize bytes for each slot of the send queue: messages, SGL entries
	staging   ring     // what is handed over inline
	inbox     ring     // msgSize bytes for each receive, where messages are Sends

	rlock, wlock sync.Mutex // held by the one Read, and the one Write, at work
	gather       [1][]byte  // Write's vector, guarded by wlock

	mu    sync.Mutex
	state state
	tx    sendFlow
	rx    recvFlow
	sq    sendQueue

	peerOrder endian // of the peer's SGL, and of its messages
	peerSGL   Segment
	peerReads int    // Reads that may be outstanding towards the peer
	recvs     uint64 // messages received
	heardFrom uint64 // signs of life from the peer

	lastUse time.Duration // clock() when Write was called last, or Read last returned bytes
	eofTold bool          // Read has returned io.EOF because of the peer
	endTold bool          // Write has met the peer's end: see afterend.go

	reserved   int    // slots that a Write under way has set aside
	held       int    // requests in swr that are ready
	holding    bool   // and wait for others: see hold
	own        []byte // the payload of the Write being posted, if it is not in the write ring
	writeLeft  int    // bytes that the Write at work has still to send
	sincePoll  int    // messages that Writes have posted since they last polled
	copying    bool   // a Read copies out of the read ring
	signalNext bool   // the next request must ask for its completion
	recvNext   int    // the place of the inbox that is posted next
	recvOwed   int    // receives to be posted again
	lastWord   uint64 // sq.posted behind our SHUTDOWN or DISCONNECT
	finalRead  bool   // the Read that ends an iWARP connection has been posted
	parting    bool   // Linger has begun
	arrival    arrival
	probe      probe
	nudge      *time.Timer
	nudges     int

	driving   bool            // one of the waiters waits for the completion queue
	muted     bool            // and completions of sends do not wake it
	asleep    bool            // it lingers, or is in the queue's Wait
	muter     verbs.SendMuter // cq, if that is of use: see quiet.go
	lingering bool            // and does so on its thread: wc is its own
	lingerer  verbs.Lingerer  // cq, if it is one and waits may be on a thread
	patience  patience
	spin      spinner
	reader    waiter
	writer    waiter
	closer    waiter

	ops     int           // operations under way
	opsGone chan struct{} // closed when there is none and none will come

	swept int // place in the sweeper's list, from 1; guarded by sweeper.mu
	hurry int // how many more passes look at it soon; guarded by sweeper.mu

	wc  [pollBatch]verbs.WC
	swr [maxHeld]verbs.SendWR // see request
	rwr [repostBatch]verbs.RecvWR
}

// pollBatch is how many completions are taken at once.
const pollBatch = 32

// ctrlSize is the control memory of a slot of the send queue.
const ctrlSize = sglEntrySize

// state is what has happened to a stream. Each field changes once, from false to
// true or from nil to an error; all are guarded by Stream.mu.
type state struct {
	started     bool // the peer's header is known
	established bool // we may send; an iWARP acceptor only once it has heard

	peerShut   bool // SHUTDOWN received: the peer sends no more data
	peerClosed bool // DISCONNECT received: the peer takes nothing any more

	readShut  bool // CloseRead
	writeShut bool // CloseWrite
	closed    bool // Close, or Release
	released  bool // Release

	shutPosted bool // SHUTDOWN sent
	discPosted bool // DISCONNECT sent

	flushed   bool      // the queue pair is of no use: a completion was flushed
	flushedAt time.Time // when a sweep first saw it
	postErr   error     // or posting failed, with this error

	disconnected bool  // the connection manager's event has come
	cause        error // why, if it said
	lost         error // why nothing more will come: see settle
	failed       error // an error that ended the connection
	violated     bool  // it was a violation of the protocol by the peer
}

// maxHeld is how many requests are handed to the device at once at most.
const maxHeld = 8

// Open builds the local side of a stream: memory from the pool, a completion
// queue, and a queue pair with all receives posted, which mk makes. Until Start,
// only PrivateData and Release are of use.
func Open(pool *Memory, mk func(verbs.PD, verbs.CQ, verbs.QPAttr) (verbs.QP, error), cfg Config) (*Stream, error) {
	info := pool.dev.Info()
	if err := cfg.resolve(info); err != nil {
		return nil, err
	}
	s := &Stream{
		cfg:          cfg,
		immediate:    info.Transport.HasImmediate(),
		piece:        pieceFor(info),
		callerDriven: info.CallerDriven,
		order:        hostEndian || endian(cfg.BigEndian),
		pool:         pool,
		opsGone:      make(chan struct{}),
	}
	for _, w := range s.waiters() {
		w.token = make(chan struct{}, 1)
	}
	s.reader.done, s.writer.done, s.closer.done = readDone, writeDone, closeDone
	if err := s.build(mk); err != nil {
		return nil, errors.Join(err, s.Release())
	}
	return s, nil
}

func (s *Stream) build(mk func(verbs.PD, verbs.CQ, verbs.QPAttr) (verbs.QP, error)) error {
	c := &s.cfg
	receives := c.RecvDepth + spareReceives
	writeRing := c.WriteBuffer
	ctrl := c.SendDepth * ctrlSize
	inbox := receives * msgSize
	var err error
	s.mem, err = s.pool.get(c.ReadBuffer, writeRing+ctrl+maxInline+inbox)
	if err != nil {
		return err
	}
	s.layOut(writeRing, ctrl, inbox)

	s.rx.init(c.ReadBuffer, s.firstWindow(), uint16(c.RecvDepth))
	s.sq.init(c.SendDepth, s.mem.ends)
	s.mem.ends = s.sq.ends

	s.cq, err = s.pool.dev.NewCQ(c.SendDepth + receives)
	if err != nil {
		return fmt.Errorf("create completion queue of %d entries: %w", c.SendDepth+receives, err)
	}
	if s.cfg.Spin > 0 {
		s.lingerer, _ = s.cq.(verbs.Lingerer)
	}
	if !s.immediate {
		s.muter, _ = s.cq.(verbs.SendMuter)
	}
	s.qp, err = mk(s.mem.pd, s.cq, verbs.QPAttr{
		SendDepth: c.SendDepth,
		RecvDepth: receives,
		MaxInline: c.MaxInline,
	})
	if err != nil {
		return fmt.Errorf("create queue pair: %w", err)
	}
	s.inline = min(c.MaxInline, s.qp.MaxInline())
	s.direct, _ = s.qp.(verbs.SourcePoster)
	s.teller, _ = s.qp.(verbs.HostTeller)

	for s.recvOwed = receives; s.recvOwed > 0; {
		if err := s.postReceives(); err != nil {
			return err
		}
	}
	return nil
}

// layOut divides the block's two regions.
func (s *Stream) layOut(writeRing, ctrl, inbox int) {
	remote := s.mem.remote.Bytes()
	s.sgl = unsafe.Slice((*uint32)(unsafe.Pointer(&remote[0])), sglEntries*sglEntrySize/4)
	s.readRing = ring{
		buf:  remote[ringOffset:],
		addr: s.mem.remote.Addr() + ringOffset,
		key:  s.mem.remote.RKey(),
	}

	local, at := s.mem.local.Bytes(), 0
	cut := func(n int) ring {
		r := ring{
			buf:  local[at : at+n : at+n],
			addr: s.mem.local.Addr() + uint64(at),
			key:  s.mem.local.LKey(),
		}
		at += n
		return r
	}
	s.writeRing = cut(writeRing)
	s.ctrl = cut(ctrl)
	s.staging = cut(maxInline)
	s.inbox = cut(inbox)
}

// Header is what the peer is told about this side.
func (s *Stream) Header() Header {
	return Header{
		BigEndian: bool(s.order),
		Credits:   uint16(s.cfg.RecvDepth),
		SGL:       Segment{Addr: s.mem.remote.Addr(), Key: s.mem.remote.RKey(), Len: sglEntries},
		Data:      Segment{Addr: s.readRing.addr, Key: s.readRing.key, Len: uint32(s.firstWindow())},
	}
}

// firstWindow is how much of the read ring the private data grants: the first half,
// as C has it, so that the second is the dialer's first message. Where each message
// costs a system call of both ends, and the peer of a short connection never
// needs the second half, it is all of it.
func (s *Stream) firstWindow() int {
	if s.callerDriven {
		return s.cfg.ReadBuffer
	}
	return s.cfg.ReadBuffer / 2
}

// PrivateData is our header in wire form, to connect or accept with.
func (s *Stream) PrivateData() []byte {
	h := s.Header()
	return h.Append(make([]byte, 0, HeaderLen))
}

// ReadBuffer and WriteBuffer are the sizes of the rings, in bytes.
func (s *Stream) ReadBuffer() int  { return s.cfg.ReadBuffer }
func (s *Stream) WriteBuffer() int { return s.cfg.WriteBuffer }

// Start takes the peer's header, before the connection is accepted or when the
// answer to the connect request is there. peerReads is how many Reads the peer
// will serve at once, as negotiated: with 0 none is ever posted.
func (s *Stream) Start(peer Header, peerReads int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tx.init(peer)
	s.peerOrder = endian(peer.BigEndian)
	s.peerSGL = peer.SGL
	s.peerReads = peerReads
	s.state.started = true
}

// Established says that the connection is established, and so that this side
// may send. The dialer calls it too, after Start.
func (s *Stream) Established() {
	s.mu.Lock()
	if !s.state.started || s.state.established || s.state.closed {
		s.mu.Unlock()
		return
	}
	s.state.established = true
	s.lastUse = clock()
	s.flush()
	s.wakeReady()
	s.startNudging()
	s.mu.Unlock()
	sweeper.add(s)
}

// Release destroys the queue pair and the completion queue and gives the memory
// back. It ends what is under way, as Close does, but sends nothing and waits
// only until the operations under way have returned. It may be called instead of
// Close, or after it, once.
func (s *Stream) Release() error {
	sweeper.remove(s)
	s.mu.Lock()
	if s.state.released {
		s.mu.Unlock()
		return nil
	}
	s.state.closed = true
	s.state.released = true
	s.stopTimers()
	s.wakeAll()
	busy := s.ops > 0
	s.mu.Unlock()
	if busy {
		<-s.opsGone
	}

	if s.mem == nil {
		return nil
	}
	if s.qp != nil {
		if err := s.qp.Destroy(); err != nil {
			// The device may go on using the memory.
			s.pool.lose()
			return fmt.Errorf("destroy queue pair: %w", err)
		}
	}
	var errs []error
	if s.cq != nil {
		if err := s.cq.Destroy(); err != nil {
			errs = append(errs, fmt.Errorf("destroy completion queue: %w", err))
		}
	}
	return errors.Join(append(errs, s.pool.put(s.mem))...)
}

// enter begins an operation that uses the queues or the memory; it fails when
// they are going. Called with mu held.
func (s *Stream) enter() bool {
	if s.state.released {
		return false
	}
	s.ops++
	return true
}

// Idle reports whether no operation is under way, so that Release need not wait.
func (s *Stream) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ops == 0
}

// leave ends an operation. Called with mu held.
func (s *Stream) leave() {
	s.ops--
	if s.ops == 0 && s.state.released {
		close(s.opsGone)
	}
}

// over reports whether the stream has ended as it should: by the peer's
// DISCONNECT, or by SHUTDOWNs both ways. The peer then takes nothing any more.
func (s *Stream) over() bool {
	return s.state.peerClosed || s.state.peerShut && s.state.shutPosted
}

// canPost reports whether anything may be posted: the peer is known, may be
// sent to, and is there.
func (s *Stream) canPost() bool {
	st := &s.state
	return st.established && !s.over() && st.failed == nil && !st.disconnected && !st.flushed && !s.state.discPosted &&
		(s.immediate || !s.cfg.Acceptor || s.recvs > 0)
}

// fail ends the connection with an error, the first of which counts.
func (s *Stream) fail(err error) {
	if s.state.failed != nil {
		return
	}
	s.state.failed = err
	if _, ok := err.(*ProtocolError); ok {
		s.state.violated = true
		// The peer is to hear that it is over. That the device cannot
		// even do that changes nothing.
		_ = s.qp.SetError()
	}
	s.wakeAll()
}

// Disconnected says that the connection manager has reported the end of the
// connection, with a cause if it is other than the peer's wish. It does not
// block and may be called at any time, from any goroutine.
func (s *Stream) Disconnected(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.disconnected {
		return
	}
	s.state.disconnected = true
	s.state.cause = cause
	s.wakeAll()
}
