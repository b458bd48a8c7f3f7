package cm

import "time"

// Trace has hooks that watch a dial, in the manner of net/http/httptrace. Each
// may be nil. They are called one after the other by the goroutine that does
// the work: they must not block, and they may still be called when Dial has
// returned, because a call that Dial no longer waits for ends later. The
// attempts at several addresses can overlap in the same way, so that hooks
// must be safe for concurrent use.
type Trace struct {
	// StageStart is called before each call of each attempt.
	StageStart func(StageInfo)
	// StageDone is called when the call has been answered, has failed, or has
	// been given up.
	StageDone func(StageResult)

	// AddrStart is called before the first attempt at an address, AddrDone
	// when Dial is through with it. Both are called by the goroutine that
	// waits for the attempts.
	AddrStart func(Addr)
	AddrDone  func(Addr, error)
}

// StageInfo says what is about to be done.
type StageInfo struct {
	Stage   Stage
	Call    string // the call's name in librdmacm, or "lookup" for Go's resolver
	Attempt int    // from 0, within the stage
	Addr    Addr   // the address that is dialed; zero for lookup and in network ib

	// TimeoutMS is the timeout_ms that the call is given, in milliseconds; 0
	// for a call that takes none.
	TimeoutMS int
}

// StageResult says how it went.
type StageResult struct {
	StageInfo
	Elapsed time.Duration // from StageStart on
	Event   EventType     // the event that answered the call; None if none did
	Status  int           // that event's status
	Err     error         // nil on success
}

func (t *Trace) start(info StageInfo) {
	if t != nil && t.StageStart != nil {
		t.StageStart(info)
	}
}

func (t *Trace) done(info StageInfo, began time.Time, ev Event, err error) {
	if t != nil && t.StageDone != nil {
		t.StageDone(StageResult{StageInfo: info, Elapsed: time.Since(began),
			Event: ev.Type, Status: ev.Status, Err: err})
	}
}

func (t *Trace) addrStart(addr Addr) {
	if t != nil && t.AddrStart != nil {
		t.AddrStart(addr)
	}
}

func (t *Trace) addrDone(addr Addr, err error) {
	if t != nil && t.AddrDone != nil {
		t.AddrDone(addr, err)
	}
}
