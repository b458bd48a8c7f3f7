package rsocket

import (
	"time"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// What is known to be with the peer
//
// Write returns when the device has its bytes. Close returns when the peer's
// device has them, so it must know. These tell it:
//
//	InfiniBand, RoCE   the completion of a request, and so of all before it
//	iWARP              the answer to an empty Read: the peer's device has all before it
//	HostTeller         the peer's host has confirmed everything
//	any                a grant that counts every data message
//	any                the peer's end of the connection, in order: see peerLeft
//
// On iWARP a completion says only that TCP has taken the request.
//
// Close finds the answer there when it is called, if the stream has been quiet
// for some time: the sweeper asks for it, once, when a pass has found no Write
// since the last one, and the arrival is still unknown (confirm). So nothing is
// asked on a busy stream. On InfiniBand and RoCE it asks within some 20 ms: what is
// posted while the network is interrupted costs the connection when the transport
// gives up, after a few seconds. On iWARP it has a second: TCP is patient.
type arrival struct {
	data  uint64 // sq.posted behind the last data message; 0 if nothing was written
	known uint64 // so many of sq.posted are known to be with the peer's device
	swept uint64 // data at the last sweep
}

// hasArrived reports whether the peer's device is known to have all that Write
// accepted.
func (s *Stream) hasArrived() bool { return s.arrival.known >= s.arrival.data }

// arrived notes that the peer's device has the first n requests.
func (s *Stream) arrived(n uint64) { s.arrival.known = max(s.arrival.known, n) }

// wrote notes that data has been posted. Called with mu held.
func (s *Stream) wrote() {
	if s.immediate && s.hasArrived() {
		sweeper.soon(s)
	}
	s.arrival.data = s.sq.posted
}

// confirmDue reports whether confirm is to be called again soon.
func (s *Stream) confirmDue() bool {
	return s.immediate && !s.hasArrived() && !s.probe.outstanding
}

// askHost asks a HostTeller. It reports whether that knows, be the answer yes or
// no. Called with mu held, which all posting is done under.
func (s *Stream) askHost() (known bool) {
	if s.teller == nil || s.state.postErr != nil {
		return false
	}
	all, known := s.teller.HostHas()
	if known && all {
		s.arrived(s.sq.posted)
	}
	return known
}

// confirm is the sweeper's part. Called with mu held.
func (s *Stream) confirm(now time.Time) {
	a := &s.arrival
	quiet := a.swept == a.data
	a.swept = a.data
	if quiet && !s.hasArrived() && !s.askHost() && !s.probe.outstanding {
		s.sendProbe(now)
	}
}

// sendProbe posts an empty Write or, on iWARP, an empty Read if the peer serves
// one. Its completion shows that the peer is there and has all that was posted
// before. Called with mu held.
func (s *Stream) sendProbe(now time.Time) {
	op := verbs.OpWrite
	if !s.immediate {
		if s.peerReads == 0 {
			return
		}
		op = verbs.OpRead
	}
	if !s.canPost() || !s.slots(1, lastReserve-1) {
		return
	}
	s.probe.outstanding, s.probe.at = true, now
	s.probe.id = s.postEmpty(op)
}
