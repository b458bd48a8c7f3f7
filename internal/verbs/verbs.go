// Package verbs describes an RDMA device the way the InfiniBand verbs do:
// protection domains, memory regions, completion queues, queue pairs and the
// work that is posted to them. It holds types and interfaces only; a provider
// (internal/rdmacore for real devices, internal/iwarp for the software NIC)
// implements them, and internal/rsocket builds a byte stream on them.
//
// The structures that cross a provider's boundary in batches (SendWR, RecvWR,
// WC) have a fixed layout without pointers, so that a provider written in C
// can take a whole batch as it lies in memory.
package verbs

import (
	"net/netip"
	"time"
)

// Transport is the protocol that a device's port puts on the wire.
type Transport uint8

// The transports. They differ in what the stream may use: see HasImmediate.
const (
	TransportUnknown Transport = iota
	InfiniBand                 // InfiniBand link layer
	RoCE                       // InfiniBand transport over Ethernet, Soft-RoCE included
	IWARP                      // RDMAP over DDP over MPA over TCP
)

func (t Transport) String() string {
	switch t {
	case InfiniBand:
		return "InfiniBand"
	case RoCE:
		return "RoCE"
	case IWARP:
		return "iWARP"
	}
	return "unknown"
}

// HasImmediate reports whether an RDMA Write can carry 32 bits of immediate
// data that consume a receive of the peer. iWARP's cannot (RFC 5040 has no
// such operation).
func (t Transport) HasImmediate() bool { return t == InfiniBand || t == RoCE }

// DeviceInfo says what a device is and what its limits are.
type DeviceInfo struct {
	Provider  string // "verbs" or "software"
	Name      string // the device's name, such as "rxe0"
	Transport Transport

	MaxQPWR          int // work requests outstanding in one queue of a queue pair
	MaxCQE           int // entries of a completion queue
	MaxSGE           int // scatter/gather elements of a work request
	MaxResponderRes  int // Reads of the peer that a queue pair can serve at once
	MaxInitiatorRead int // Reads that a queue pair can have outstanding at once

	// CallerDriven says that the device has no processor of its own: its work
	// is done by the goroutines that call PostSend, Poll and Wait, and a Poll
	// that finds nothing costs them a system call.
	CallerDriven bool
}

// PortInfo is where on a device a connection runs.
type PortInfo struct {
	Port uint8      // the port's number, from 1; 0 where the device has no ports
	GID  netip.Addr // the port's GID; invalid where the transport has none
}

// A Device is an open RDMA device. The same Device value (it is comparable)
// stands for the device as long as it is present; one that is removed and added
// again is a different Device. All methods may be called concurrently.
type Device interface {
	Info() DeviceInfo

	// AllocPD allocates a protection domain.
	AllocPD() (PD, error)

	// NewCQ creates a completion queue that can hold at least depth entries,
	// with a completion channel of its own.
	NewCQ(depth int) (CQ, error)
}

// A PD is a protection domain: the queue pairs created in it may use the memory
// registered in it, and so may their peers, as far as they know its keys.
type PD interface {
	// Device is the device that the domain belongs to.
	Device() Device

	// RegisterMemory allocates size bytes, zeroed and page-aligned where the
	// provider has pages, and registers them.
	RegisterMemory(size int, access Access) (MR, error)

	// Dealloc frees the domain. All that was made in it must be gone.
	Dealloc() error
}

// Access is what a memory region permits. Local reads always are.
type Access uint8

// The access rights; they are added up. RemoteWrite demands LocalWrite.
const (
	LocalWrite Access = 1 << iota
	RemoteWrite
	RemoteRead
)

// An MR is a registered memory region together with the memory itself.
type MR interface {
	Bytes() []byte // the memory; valid until Deregister
	Addr() uint64  // the address that work requests, local and remote, use for Bytes()[0]
	LKey() uint32  // the key for local scatter/gather elements
	RKey() uint32  // the key (iWARP: the STag) for the peer

	// Deregister unregisters and frees the memory. No queue pair may still
	// have work outstanding on it.
	Deregister() error
}

// An Eraser is an MR that knows what the peers have written.
type Eraser interface {
	MR

	// Erase zeroes all that was written by peers and received from them. It
	// must not be under way any more.
	Erase()
}

// A CQ is a completion queue with its completion channel.
//
// Poll and Arm may be called from any goroutine, but the caller sees to it that
// only one does at a time. At most one goroutine is in Wait. Wake may be called
// by anyone at any time.
type CQ interface {
	// Poll moves up to len(wc) completions into wc and returns how many. It
	// never blocks.
	Poll(wc []WC) (int, error)

	// Arm requests one event for the next completion. A completion that
	// came before it makes no event: poll once more between Arm and Wait.
	Arm() error

	// Wait blocks until an event has come or Wake has been called. It may
	// return early for no reason. It fails only when the queue can deliver
	// nothing any more.
	Wait() error

	// Wake ends the current Wait, or the next if there is none.
	Wake()

	// Destroy destroys the queue. Its queue pairs must be gone, and nobody
	// may be in Wait.
	Destroy() error
}

// A Lingerer is a CQ that can wait on its caller's thread, which for a short wait
// costs less than Wait: no other thread has to be woken.
type Lingerer interface {
	CQ

	// Linger moves completions into wc as Poll does. If there are none it
	// polls for as long as spin, and then arms the queue and sleeps in the
	// kernel for as long as block, which is less than a second; either may be
	// 0. Meanwhile nobody may be in Poll, Arm or Wait.
	//
	// It returns 0 when that time is over, or when Wake has been called since
	// Wait last returned, which is then left for Wait to see. It may return
	// early for no reason. slept says that the spin was not enough.
	Linger(wc []WC, spin, block time.Duration) (n int, slept bool, err error)

	// WakeTime is how long a thread of this process that sleeps takes to be
	// woken, as far as that has been found out; 0 if it has not yet.
	WakeTime() time.Duration
}

// A SendMuter is a CQ that can sleep through completions of sends.
type SendMuter interface {
	CQ

	// MuteSends says whether Arm and Linger are from now on to leave out the
	// completions of sends, of those that failed too: they are found when
	// somebody polls, but wake nobody. What ends a queue pair flushes its
	// receives, and those do. Nobody may be in Poll, Arm, Wait or Linger.
	MuteSends(muted bool)
}

// QPAttr asks for a reliable connected queue pair whose send and receive
// completions go to one completion queue.
type QPAttr struct {
	SendDepth int // send work requests outstanding
	RecvDepth int // receive work requests outstanding
	MaxInline int // bytes of a send that can be copied at posting; 0 for none

	// SignalAll makes every send complete with a WC, whatever its flags.
	SignalAll bool
}

// A QP is a reliable connected queue pair. PostSend and PostRecv may run at the
// same time as each other, but neither at the same time as itself.
type QP interface {
	// PostSend posts the requests in order and returns how many were taken.
	// It is fewer than len(wr) only with an error. The caller counts the
	// slots of the send queue: a full queue is the caller's mistake.
	PostSend(wr []SendWR) (int, error)

	// PostRecv posts receives in order, as PostSend does.
	PostRecv(wr []RecvWR) (int, error)

	// MaxInline is how many bytes FlagInline can carry, perhaps fewer than
	// were asked for; 0 where the provider cannot.
	MaxInline() int

	// SetError moves the queue pair to the error state, which flushes all
	// that is posted. It does nothing to a queue pair already there.
	SetError() error

	// Destroy destroys the queue pair. When it has returned, the device no
	// longer touches memory on its behalf.
	Destroy() error
}

// A SourcePoster is a QP that can send from ordinary memory, and so spare its
// user a copy: those whose device works in the caller.
type SourcePoster interface {
	QP

	// PostFrom posts requests as PostSend does, but the payload of the first, a
	// Send or a Write, is src. The elements of the request describe as many
	// bytes of registered memory: what has not been sent when PostFrom returns
	// has been copied there, and src is the caller's again.
	PostFrom(wr []SendWR, src []byte) (int, error)
}

// A HostTeller is a QP that knows something of the peer's host without asking the
// peer's device, which may be one that works only as long as its process does.
type HostTeller interface {
	QP

	// Silence is how long ago the host was last heard, be it that it confirmed
	// something; false if that is not known.
	Silence() (time.Duration, bool)

	// HostHas reports whether the host has confirmed all that was posted, and
	// known whether that can be told. It can be asked also when the connection
	// has ended, about the time before.
	HostHas() (all, known bool)
}
