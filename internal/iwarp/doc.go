// Package iwarp is a software RDMA NIC: it speaks iWARP (RDMAP, RFC 5040, over
// DDP, RFC 5041, over MPA, RFC 5044 and RFC 6581) on TCP sockets, with no kernel
// module, no C and no privileges. What it puts on the wire is what Linux's siw
// and iWARP adapters understand. It is a cm.Provider, and a verbs.Device, like
// any other.
//
// # Files
//
// The wire format, as functions over bytes: frame.go (FPDUs with their DDP and
// RDMAP headers), crc.go, terminate.go, mpa.go (set-up frames); and
// negotiate.go, which is what two ends agree on.
//
// The NIC: nic.go, config.go, memory.go (regions), cq.go and wait.go (completion
// queues), qp.go (queue pairs) with post.go (their queues) and rings.go, receive.go and
// place.go (the receive path), transmit.go, batch.go and reads.go (the transmit
// path), closing.go (how a connection ends), nudge.go, sweep.go. The socket is
// behind an interface in socket.go, with a file for each kind of platform.
//
// The connection manager: id.go, resolve.go with route_*.go (the stages addrinfo,
// addr and route), connect.go, listen.go, accept.go, setup.go (the set-up's I/O).
//
// # Who runs what
//
// Nobody reads or writes for a connection but those who want something of it:
//
//   - CQ.Poll reads what the socket holds, without blocking, and processes it.
//   - CQ.Wait parks in Go's poller, reads when something comes, and leaves with
//     completions; CQ.Wake and others end it: see waitState.
//   - PostSend writes at once. What the socket does not take is queued, and
//     written by a goroutine that lives as long as something is queued: see
//     transmitter. So nothing waits for room in a socket but that goroutine, and
//     two peers that send at once cannot wait for each other.
//   - A timer, one for the NIC, looks now and then at the connections that nobody
//     drives: see sweeper.
//   - A connection that ends has a goroutine of its own for the bounded time that
//     it takes to close TCP: see closing.go.
//   - An event is delivered where it arises, without a lock of this package; that
//     of a connection's end, which arises under locks, from a goroutine that
//     lives as long as there are any: see eventQueue.
//
// An idle connection has no goroutine, and no buffer.
//
// # Trust
//
// All that a peer sends is checked before it has an effect. A frame that must
// not be ends its connection with the Terminate message that the RFCs have for
// it, and nothing else; of a frame with a destination outside of what the peer
// may write, no byte is placed.
package iwarp
