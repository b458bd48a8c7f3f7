// Package rdmacore reaches real RDMA devices through librdmacm and libibverbs.
// It implements what internal/cm and internal/verbs describe, and is the only
// place with C.
//
// # The boundary
//
// The libraries are opened at run time (loader.c), by Open, so that a program
// builds without their headers and starts without them. What is used of their
// binary interface is declared in abi.h. A crossing from Go into C is one call
// of shim.h; on the data path it carries a whole batch, which lies in Go's
// memory as verbs.SendWR, verbs.RecvWR or verbs.WC and holds no pointers. C
// keeps no pointer that it was given: what an identifier carries as its context
// is the number of the Go value in a table.
//
// # Threads and locks
//
//   - Every identifier belongs to one event channel, which one goroutine reads
//     while there are identifiers (events.go).
//   - The provider's qpMu keeps the reading of events apart from the making and
//     unmaking of queue pairs, since rdma_get_cm_event itself works on the queue
//     pair of an identifier whose connection has been answered or refused.
//     Nothing that may wait for a peer happens under it.
//   - A call that may block for long can be interrupted (blocking.go).
//   - A completion queue waits through Go's poller (cq.go).
//   - An older librdmacm looks for devices on one thread (onethread.c).
//
// # Fork
//
// ibv_fork_init(3) is not called. It would have every registration take its
// pages away from children (MADV_DONTFORK), because after a fork the parent's
// first write to a shared page gives it a copy that the device does not know.
// Go does not fork that way: os/exec and syscall.ForkExec share the memory with
// the child until it executes, and Linux since 5.12 copies registered pages for
// the child at once. Descriptors are close-on-exec.
package rdmacore
