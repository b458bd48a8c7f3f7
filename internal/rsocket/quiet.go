package rsocket

// On iWARP, Writes from memory ask for their completions (see postWrite), which
// mostly nobody waits for: what a Write of the caller's lacks is a window of the
// peer's. So who drives has the queue sleep through completions of sends, where it
// can (verbs.SendMuter), unless somebody waits for one. They are taken with
// whatever else comes.

// wantsSends reports whether somebody waits for the completion of a send: Close
// does, and keepalive for its probe; and who finds the send queue or the write ring
// full.
func (s *Stream) wantsSends() bool {
	return s.state.closed || s.probe.outstanding ||
		s.writer.awaits && s.tx.room() > 0 ||
		!s.slots(s.perMessage(), dataReserve)
}

// mute says to the queue what the next sleep is for. Called with mu held, by who
// drives.
func (s *Stream) mute() {
	if s.muter == nil {
		return
	}
	if muted := !s.wantsSends(); muted != s.muted {
		s.muted = muted
		s.muter.MuteSends(muted)
	}
}

// attend wakes who drives, if he sleeps through what somebody has come to wait for.
// Called with mu held, after whatever may have changed wantsSends.
func (s *Stream) attend() {
	if s.muted && s.asleep && s.wantsSends() {
		s.cq.Wake()
	}
}
