package rsocket

// This file is the arithmetic of flow control, with no I/O in it: what the
// peer has allowed us to send (sendFlow), and what we have allowed the peer
// (recvFlow). Both are guarded by Stream.mu.

// sendFlow is what the peer has granted: up to two windows of its memory, in
// the order in which they are to be filled, and a number of messages.
type sendFlow struct {
	win     [sglEntries]Segment // granted windows; win[0] is being filled
	granted int                 // how many of win count
	entry   int                 // the entry of our target SGL that comes next

	initial uint16 // the peer's credits: more it can never have granted
	reserve uint16 // credits left to grants and control messages
	sent    uint16 // data messages sent, modulo 1<<16
	limit   uint16 // sent must not reach it
}

// A peer without spare receives (C has none) needs one for each grant and each
// control message of ours, also while all that its credits count are taken by
// data. How many of them we send before it looks depends on how much it sends
// without looking: up to its whole send buffer, one grant for each half of
// our read buffer. An eighth of its credits is far more than that, and at least
// minReserve, unless that would leave no credit for data.
const minReserve = 8

func (f *sendFlow) init(h Header) {
	*f = sendFlow{initial: h.Credits, limit: h.Credits, entry: 1 % sglEntries}
	f.win[0], f.granted = h.Data, 1
	f.reserve = min(max(minReserve, h.Credits/8), h.Credits/2)
}

// room is how many bytes the next data message may carry; 0 for none.
func (f *sendFlow) room() int {
	if f.granted == 0 || f.limit-f.sent <= f.reserve {
		return 0
	}
	return int(f.win[0].Len)
}

// take takes n bytes of room for a message and returns where they go.
func (f *sendFlow) take(n int) (addr uint64, key uint32) {
	w := &f.win[0]
	addr, key = w.Addr, w.Key
	w.Addr += uint64(n)
	w.Len -= uint32(n)
	if w.Len == 0 {
		f.win[0], f.win[1] = f.win[1], Segment{}
		f.granted--
	}
	f.sent++
	return addr, key
}

// setLimit takes the limit of a msgCredits. The peer may repeat the old one.
func (f *sendFlow) setLimit(limit uint16) error {
	if limit-f.sent > f.initial || limit-f.limit > f.initial {
		return protocolErrorf("it granted credits up to message %d after %d were sent and %d granted; it has %d",
			limit, f.sent, f.limit, f.initial)
	}
	f.limit = limit
	return nil
}

// allTaken reports whether the peer has taken all data messages: its limit is
// what it has taken and its credits on top.
func (f *sendFlow) allTaken() bool { return f.limit-f.initial == f.sent }

// wantsEntry reports whether the next entry of the target SGL may hold a new
// window: the peer writes one only after we have used up the one before it.
func (f *sendFlow) wantsEntry() bool { return f.granted < sglEntries }

// addWindow takes a window out of the next entry of the target SGL.
func (f *sendFlow) addWindow(w Segment) error {
	if err := checkWindow(w); err != nil {
		return protocolErrorf("it granted %v", err)
	}
	f.win[f.granted] = w
	f.granted++
	f.entry = (f.entry + 1) % sglEntries
	return nil
}

// recvFlow is what we have granted to the peer. The windows tile the read ring
// in order, so a byte of the stream lies in the ring at its position modulo the
// ring's size, whatever the messages were.
type recvFlow struct {
	ring int // bytes of the read ring

	read     int64 // position up to which the application has read
	received int64 // position up to which the peer has written
	granted  int64 // position up to which the peer may write

	win   [sglEntries]int // bytes left in the granted windows, oldest first
	wins  int             // how many of win count
	entry int             // the entry of the peer's target SGL that comes next

	credits  uint16 // data messages that the peer may have under way
	taken    uint16 // data messages received, modulo 1<<16
	promised uint16 // what taken was when the last limit was sent
}

// Windows are granted in halves of the ring, as soon as one is free: a sender fills one
// while the other is read, and each grant is a message, with a wake-up at its end.
const ringParts = 2

// init sets up the first window, which the private data grants, from the beginning
// of the ring.
func (f *recvFlow) init(ring, first int, credits uint16) {
	*f = recvFlow{ring: ring, credits: credits, entry: 1 % sglEntries}
	f.win[0], f.wins = first, 1
	f.granted = int64(first)
}

// readable is how many bytes wait for the application.
func (f *recvFlow) readable() int { return int(f.received - f.read) }

// data takes a data message of n bytes.
func (f *recvFlow) data(n int) error {
	switch {
	case n == 0:
		return protocolErrorf("it sent a data message of no bytes")
	case f.wins == 0:
		return protocolErrorf("it sent %d bytes with no window granted", n)
	case n > f.win[0]:
		return protocolErrorf("it sent %d bytes where the window had %d left", n, f.win[0])
	case f.taken-f.promised >= f.credits:
		return protocolErrorf("it sent more than the %d messages granted", f.credits)
	}
	f.taken++
	f.received += int64(n)
	f.win[0] -= n
	if f.win[0] == 0 {
		f.win[0], f.win[1] = f.win[1], 0
		f.wins--
	}
	return nil
}

// nextWindow is the window to grant next: where in the ring, and how long; 0
// bytes if none is to be granted.
func (f *recvFlow) nextWindow() (offset, n int) {
	if f.wins == sglEntries {
		return 0, 0
	}
	offset = int(f.granted % int64(f.ring))
	free := f.ring - int(f.granted-f.read)
	part := f.ring / ringParts
	return offset, min(free, f.ring-offset) / part * part
}

// grantWindow notes that a window of n bytes has been granted.
func (f *recvFlow) grantWindow(n int) {
	f.win[f.wins] = n
	f.wins++
	f.granted += int64(n)
	f.entry = (f.entry + 1) % sglEntries
}

// wantsLimit reports whether half of the peer's credits are used up. Messages
// wait nowhere once they are dispatched: what was received can be promised anew.
func (f *recvFlow) wantsLimit() bool { return f.taken-f.promised >= (f.credits+1)/2 }

// newLimit is the limit to send with the next msgCredits.
func (f *recvFlow) newLimit() uint16 {
	f.promised = f.taken
	return f.taken + f.credits
}
