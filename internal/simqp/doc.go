// Package simqp simulates RDMA devices on ordinary memory, in one process, for
// tests: it implements the interfaces of internal/verbs and joins two queue
// pairs directly.
//
// It is stricter than a device. What a device lets pass, or answers late or
// never, is reported as a fault at once: work beyond the depth of a queue, a
// message for which no receive is posted, a completion queue that overflows, two
// goroutines in Poll or in Wait, memory outside a region. The schedule is
// random, from a seed, and within what a device may do: completions come in
// bunches and late, data is placed in pieces.
//
// The two forms differ as the transports do. With immediate data (InfiniBand,
// RoCE) a request completes after it has been carried out at the peer. Without
// (iWARP) it completes when it is on the wire, which may be long before, and
// what was posted behind a Read may complete before it.
//
// Memory is accessed plainly, and ordered only by posting and polling, as a
// device orders it, so that the race detector sees a ring that is used too
// early. Small aligned writes are atomic, word by word, as they are on a host.
package simqp
