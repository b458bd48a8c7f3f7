// Package cm is the connection manager as every provider has it: identifiers
// and their events (ID, Event, Provider), and on top of them what is the same
// for all providers: the dial sequence (Manager.Dial) and the accept sequence
// (Manager.Listen). It holds no C and no sockets.
//
// A dial goes through four stages, each in the file named after it:
//
//	addrinfo.go  name and service to addresses, and what is known of them
//	addr.go      address to device, with the source address
//	route.go     device to path
//	connect.go   queue pair, connect request, the peer's answer
//
// targets.go says which addresses there are, dial.go tries one after the other,
// attempt.go one of them. A stage is made of steps (step.go), a call and the
// event that answers it; attempts.go repeats those that time out, and timeout.go
// has the times. handover.go is how a caller can leave at any moment without
// anything being lost or leaked.
//
// A listener is in listen.go and listen_addrs.go (what it binds), admission.go
// (how many peers it deals with at once) and accept.go (one peer's handshake).
package cm
