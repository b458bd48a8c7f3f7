package cm

import "fmt"

// EventType is the kind of an Event, as in enum rdma_cm_event_type.
type EventType uint8

// The events of rdma_get_cm_event(3). None is no event.
const (
	None EventType = iota
	AddrInfoResolved
	AddrInfoError
	AddrResolved
	AddrError
	RouteResolved
	RouteError
	ConnectRequest
	ConnectResponse
	ConnectError
	Unreachable
	Rejected
	Established
	Disconnected
	DeviceRemoval
	AddrChange
	TimewaitExit
	UnknownEvent
)

var eventNames = [...]string{
	None: "none", AddrInfoResolved: "ADDRINFO_RESOLVED", AddrInfoError: "ADDRINFO_ERROR",
	AddrResolved: "ADDR_RESOLVED", AddrError: "ADDR_ERROR",
	RouteResolved: "ROUTE_RESOLVED", RouteError: "ROUTE_ERROR",
	ConnectRequest: "CONNECT_REQUEST", ConnectResponse: "CONNECT_RESPONSE",
	ConnectError: "CONNECT_ERROR", Unreachable: "UNREACHABLE", Rejected: "REJECTED",
	Established: "ESTABLISHED", Disconnected: "DISCONNECTED", DeviceRemoval: "DEVICE_REMOVAL",
	AddrChange: "ADDR_CHANGE", TimewaitExit: "TIMEWAIT_EXIT", UnknownEvent: "unknown event",
}

// String is the event's name without its prefix RDMA_CM_EVENT_.
func (t EventType) String() string {
	if int(t) < len(eventNames) {
		return eventNames[t]
	}
	return fmt.Sprintf("event %d", uint8(t))
}

// An Event is something that happened to an identifier. It owns its data.
//
// An UnknownEvent with a status says, of an identifier that listens, that a peer could
// not be taken, or that requests may have been lost.
type Event struct {
	Type EventType

	// Status is 0 for success. Otherwise it is a negated errno of the
	// platform, or, for Rejected on InfiniBand and RoCE, a positive reject
	// reason of the InfiniBand communication manager.
	Status int

	// Err is what the provider knows of a failure beyond the status, in words
	// for a person; nil if nothing.
	Err error

	// Param are the peer's parameters and private data: of ConnectRequest,
	// Established on the dialing side, and Rejected. InfiniBand and RoCE pad
	// the private data with zeros to a fixed length.
	Param ConnParam

	// Request is the new identifier of a ConnectRequest. Who gets the event
	// owns it.
	Request ID

	// Plain says that the peer of a ConnectRequest speaks no RDMA: Request is
	// a PlainID, for AcceptPlain or Reject. It comes only after ListenPlain.
	Plain bool
}
