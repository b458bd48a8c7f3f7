package cm

import (
	"net"
	"net/netip"
	"time"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// A Provider makes identifiers. All methods may be called concurrently.
type Provider interface {
	// Name is "verbs" or "software".
	Name() string

	// NewID makes an identifier (rdma_create_id(3)). It fails with an error
	// that says what is missing where the provider has no device, no library
	// or no kernel support.
	NewID() (ID, error)
}

// An ID is an identifier of the connection manager: what a socket is to TCP.
//
// An operation that completes later reports by an Event; its method fails only
// if the operation could not be begun, and then no event comes. An error of a
// call holds a syscall.Errno for errors.As wherever the provider has one.
//
// At any time one goroutine owns the ID: it alone calls the methods, one at a
// time, except Interrupt, which anybody may call at any time until Destroy has
// been called.
type ID interface {
	// Handle sets the function that gets the identifier's events, one at a
	// time, and first those that came before there was one. It must not
	// block nor call methods of the ID. See Mailbox.
	Handle(func(Event))

	// ResolveAddrInfo begins rdma_resolve_addrinfo(3), answered by
	// AddrInfoResolved or AddrInfoError. It fails with errors.ErrUnsupported
	// where the library does not have the call; where the kernel does not,
	// the error is as useless as the library makes it.
	ResolveAddrInfo(q AddrInfoQuery) error
	// QueryAddrInfo takes the result after AddrInfoResolved.
	QueryAddrInfo() ([]AddrInfo, error)
	// GetAddrInfo is rdma_getaddrinfo(3): the same, but synchronous.
	GetAddrInfo(q AddrInfoQuery) ([]AddrInfo, error)

	// Bind gives the identifier a local address, and by it perhaps a device
	// (rdma_bind_addr(3)). A v6only identifier on the IPv6 wildcard does not
	// take IPv4 connections.
	Bind(local Addr, v6only bool) error
	// ResolveAddr begins rdma_resolve_addr(3), answered by AddrResolved or
	// AddrError. A zero src leaves the choice to the connection manager.
	ResolveAddr(src, dst Addr, timeoutMS int) error
	// ResolveRoute begins rdma_resolve_route(3), answered by RouteResolved
	// or RouteError.
	ResolveRoute(timeoutMS int) error
	// SetRoute gives the identifier path records that are known already
	// (RDMA_OPTION_IB_PATH of rdma_set_option(3)), answered by RouteResolved.
	SetRoute(path []byte) error
	// Connect begins rdma_connect(3), answered by Established, Rejected,
	// Unreachable or ConnectError. It may block for minutes: see Interrupt.
	Connect(p ConnParam) error

	// Listen makes a bound identifier listen; each peer that wants to connect
	// is a ConnectRequest.
	Listen(backlog int) error
	// Accept accepts a ConnectRequest's identifier, answered by Established
	// or ConnectError.
	Accept(p ConnParam) error
	// Reject refuses a ConnectRequest's identifier.
	Reject(privateData []byte) error

	// Disconnect ends the connection, answered by Disconnected on both sides.
	Disconnect() error

	// Device is the device that address resolution, Bind or the connect
	// request has found. It fails with ENODEV where that was none.
	Device() (verbs.Device, error)
	// Port is where on the device the connection runs.
	Port() verbs.PortInfo
	// CreateQP creates the identifier's queue pair, whose states the
	// connection manager then drives. It must be destroyed before the ID.
	CreateQP(pd verbs.PD, cq verbs.CQ, attr verbs.QPAttr) (verbs.QP, error)

	// LocalAddr and RemoteAddr are the identifier's addresses so far; they
	// are invalid where there are none.
	LocalAddr() netip.AddrPort
	RemoteAddr() netip.AddrPort

	// Interrupt makes a call of another method that is under way, and every
	// later one that could block, return as soon as it can. Only Destroy is
	// of use after it.
	Interrupt()

	// Destroy destroys the identifier. When it has returned, the handler is
	// not called any more. Events not yet handled are dropped, and requests
	// among them destroyed.
	Destroy() error
}

// A ConnectWaiter is an ID whose connect stage can also run in its caller: the whole of
// it happens on this side of a kernel, so a goroutine of its own would only be one
// more to be woken.
type ConnectWaiter interface {
	ID

	// ConnectWait is Connect, but returns when the event that answers it has
	// been delivered.
	ConnectWait(p ConnParam) error
}

// A RequestBounder is an ID of a provider to which peers connect before they send
// their connect request, so that some never send one.
type RequestBounder interface {
	ID

	// BoundRequests says, before Listen, how long a peer may take for its
	// request. refused is told of each that brings none, and why; it must not
	// block, and is called by several goroutines, not after Destroy.
	BoundRequests(limit time.Duration, refused func(peer netip.AddrPort, err error))
}

// A PlainID is an ID of a provider whose ports are TCP's, where anybody may
// connect: it can hand over connections that are none of RDMA's.
type PlainID interface {
	ID

	// ListenPlain is Listen, and serves peers that speak no RDMA as well. Each
	// whose first bytes show that is a ConnectRequest with Plain set.
	ListenPlain(backlog int) error
	// AcceptPlain accepts such a request's identifier. The connection, of
	// which nothing has been read, is the caller's; the identifier is of no
	// use after that but for Destroy, which leaves the connection alone. It
	// does not block.
	AcceptPlain() (net.Conn, error)
}

// Addr is the address of one end. In the network "ib" it is a sockaddr_ib, kept
// as the connection manager made it; otherwise an IP address and a port.
type Addr struct {
	netip.AddrPort        // zone: the name of an interface
	IB             []byte // struct sockaddr_ib, as bytes; nil for IP
}

// IsZero reports whether the address is absent.
func (a Addr) IsZero() bool { return !a.AddrPort.IsValid() && a.IB == nil }

func (a Addr) String() string {
	switch {
	case a.IB != nil:
		if gid, service, ok := a.IBService(); ok {
			return FormatIBService(gid, service)
		}
		return "InfiniBand address"
	case a.AddrPort.IsValid():
		return a.AddrPort.String()
	}
	return ""
}

// AddrInfoQuery is what to resolve: the arguments of rdma_getaddrinfo(3).
type AddrInfoQuery struct {
	Node    string // a numeric address; "" with SA
	Service string // a port, or with SA an InfiniBand service name or ID
	Passive bool   // RAI_PASSIVE: for listening
	SA      bool   // RAI_SA: ask the InfiniBand subnet administrator
}

// AddrInfo is one answer of address resolution (struct rdma_addrinfo).
type AddrInfo struct {
	Src, Dst    Addr
	Route       []byte // path records for SetRoute; nil if the route is to be resolved
	ConnectData []byte // private data that must lead that of the connect; nil if none
}

// ConnParam are the parameters of a connection (struct rdma_conn_param). In an
// event they are the peer's, as they concern this side (rdma_get_cm_event(3)):
// its InitiatorDepth is in ResponderResources, and the other way round, so that
// a request can be accepted with the parameters of its own event.
type ConnParam struct {
	PrivateData        []byte
	ResponderResources uint8 // Reads of the peer served at once
	InitiatorDepth     uint8 // Reads outstanding at once
	FlowControl        uint8
	RetryCount         uint8 // 0 to 7; towards a vanished peer 7 is for ever on some devices
	RNRRetryCount      uint8 // 0 to 7; 7 is for ever; it acts on the peer's queue pair
}
