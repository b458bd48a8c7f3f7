// Package rsocket is a byte stream on one queue pair: version 1 of the rsockets
// protocol, which librdmacm's rsocket(7) speaks, so that either end may be a C
// program. It knows devices only as internal/verbs describes them.
//
// # What goes over the wire
//
// Each side has a ring that the other writes into by RDMA, in windows that it
// has been granted (flow.go), and tells it by 32-bit messages (message.go) what
// it has written. Messages are immediate data where the transport has them, and
// Sends of four bytes behind the Write where it has not (iWARP). What each side
// must know of the other to begin with is in the private data of the connection
// (header.go).
//
// # States
//
//	Open ── Start ── Established ──┬── CloseWrite ── SHUTDOWN sent ──┐
//	         header    may send    ├── SHUTDOWN received: EOF ───────┤ both: over
//	                               ├── DISCONNECT received ───────────── over: EOF, EPIPE
//	                               ├── Disconnected, queue empty ─────── lost: ECONNRESET
//	                               ├── failed completion, keepalive, ─── failed
//	                               │   protocol error, device error
//	                               └── Close ── DISCONNECT sent ── delivered ── Release
//
// The facts are flags that are set once (struct state), not one variable, since
// most of them can come in any order; readError and writeError say what each
// combination means. An error that ended the connection is reported after all
// that was received before it. After over, lost, failed, and from the moment
// that Disconnected is called, nothing is posted.
//
// # Who waits, who drives, who wakes whom
//
// There is no goroutine behind a stream. Three parties may wait: a Read, a Write
// and a closer, one of each at a time; further Reads and Writes queue at rlock
// and wlock, and the state they find after the one before them is the state that
// it found. Everything else is guarded by mu, which is never held while copying
// a user's bytes, spinning, or sleeping.
//
// A party waits in await (drive.go). As long as its condition is not met it
// polls the completion queue and acts on what it finds; if there is nothing, then
//
//   - if nobody drives, it does: it sets driving, spins a little perhaps, arms
//     the queue, polls once more, and sleeps in CQ.Wait without mu;
//   - if somebody drives, it sleeps on its token, a channel of capacity 1.
//
// Three rules keep everybody from sleeping too long:
//
//  1. Who polls, wakes with a token each sleeper whose wait is over (wakeReady).
//     The driver needs none: a queue that was armed makes an event for the first
//     completion, whoever takes it, and so ends the driver's sleep.
//  2. Who changes the state in another way (a timer, Close, Disconnected, an
//     error) wakes all sleepers with tokens, and the driver with CQ.Wake
//     (wakeAll). Wake is sticky, and driving is set and cleared under mu: it
//     cannot fall between the driver's last look and its sleep.
//  3. Who stops driving, for whatever reason, wakes one other sleeper, if any,
//     before it leaves mu (handOver). That one drives next, or has what it was
//     waiting for and hands over in turn.
//
// A token or a Wake too many costs a look at the state and no more.
//
// DISCONNECTED may overtake what is still in the completion queue. It is taken
// for the end (lost) only by a party that found the queue empty after the event.
// A flushed completion is not taken for the end by itself: the event comes and
// says why; if it does not within two seconds, the sweeper fails the stream.
//
// # What Close does to each
//
// Read and Write return net.ErrClosed: what a Write had handed to the device
// before is sent, what it was copying is not. DISCONNECT goes out behind it. If
// all that was written is known to have arrived, Close returns. Otherwise the
// closer waits, driving as the others do, until that is known (arrival.go), or for
// the connection's end, or for its time to run out; also while the stream was in
// any other of the states above. Linger, behind it, does not drive. Release waits
// for the operations under way, which all find the stream closed, and takes the
// queues and the memory away.
//
// # Streams that nobody drives
//
// A sweeper (sweep.go), a timer for all streams of the process, passes over them
// once a second without waiting, and more often while there is something to do:
// it polls those that nobody drives, sends grants that are due, probes silent
// peers. A Write returns when all its bytes are handed to the device, so that
// none waits for the sweeper.
package rsocket
