package cm

import (
	"context"
	"syscall"
	"time"
)

// A step is one call of an attempt together with the event that answers it.
// Which events a step waits out, and which end it:
//
//	the wanted one, status 0      success
//	the wanted one with a status  failure, by the status
//	the stage's failing events    failure, by event and status (eventErrno)
//	DEVICE_REMOVAL                failure: ENODEV
//	ADDR_CHANGE, TIMEWAIT_EXIT    ignored
//	any other                     failure: EPROTO
//
// The end of the attempt's context ends it, too, and goes before any error that
// the interrupted call may have returned.

// begin records and announces what is done next.
func (a *attempt) begin(info StageInfo) time.Time {
	a.mu.Lock()
	a.at = info
	a.mu.Unlock()
	a.r.Trace.start(info)
	return time.Now()
}

// step makes one call and waits for the event that answers it. Nothing is done
// when the attempt's context has ended, and the wait ends with it. guard bounds
// the two together where nothing else does; 0 is none.
func (a *attempt) step(info StageInfo, guard time.Duration, call func() error, want EventType) (Event, error) {
	info.Addr = a.target.dst
	if a.ctx.Err() != nil {
		return Event{}, a.endedAt(info)
	}
	began := a.begin(info)
	if guard > 0 {
		watchdog := time.AfterFunc(guard, func() { a.cancel(&guardError{guard}) })
		defer watchdog.Stop()
	}
	ev, err := a.answer(info, call, want)
	if a.ctx.Err() != nil {
		err = a.endedAt(info)
	}
	a.r.Trace.done(info, began, ev, err)
	return ev, err
}

func (a *attempt) answer(info StageInfo, call func() error, want EventType) (Event, error) {
	if err := call(); err != nil {
		return Event{}, a.callFailed(info, err)
	}
	if want == None {
		return Event{}, nil
	}
	for {
		ev, ok := a.box.next(a.ctx.Done())
		switch {
		case !ok:
			return Event{}, a.endedAt(info)
		case ev.Type == want && ev.Status == 0:
			return ev, nil
		case ignored(ev.Type):
			continue
		}
		return ev, a.eventFailed(info, ev, want)
	}
}

// ignored says which events mean nothing to a sequence: they concern a
// connection that was, or may become, something else.
func ignored(t EventType) bool { return t == TimewaitExit || t == AddrChange }

// failing says which events end which stage.
func failing(stage Stage, t EventType) bool {
	switch t {
	case DeviceRemoval:
		return true
	case AddrInfoError:
		return stage == StageAddrInfo
	case AddrError:
		return stage == StageAddr
	case RouteError:
		return stage == StageRoute
	case Rejected, Unreachable, ConnectError, Disconnected:
		return stage == StageConnect || stage == StageAccept
	}
	return false
}

// callFailed is the error of a call that could not begin, unless it was the end
// of the context that made it fail.
func (a *attempt) callFailed(info StageInfo, err error) error {
	if a.ctx.Err() != nil {
		return a.endedAt(info)
	}
	errno := errnoOf(err)
	return &StageError{Stage: info.Stage, Call: info.Call, Addr: info.Addr, Attempt: info.Attempt,
		Errno: errno, Err: err, Hint: a.hint(info, errno, 0, err)}
}

// eventFailed is the error of an event that is not the wanted one.
func (a *attempt) eventFailed(info StageInfo, ev Event, want EventType) error {
	e := &StageError{Stage: info.Stage, Call: info.Call, Addr: info.Addr, Attempt: info.Attempt,
		Event: ev.Type, Status: ev.Status}
	if failing(info.Stage, ev.Type) || ev.Type == want {
		e.Errno = eventErrno(ev)
		e.Err = eventCause(e.Errno, ev)
		if ev.Type != Rejected || ev.Status <= 0 { // a reject reason speaks for itself
			e.Hint = a.hint(info, e.Errno, ev.Status, e.Err)
		}
	} else {
		e.Errno = syscall.EPROTO
		e.Err = &unexpectedEvent{got: ev.Type, want: want}
	}
	return e
}

// ended is the error of an attempt whose context is over, at the place where
// its worker is.
func (a *attempt) ended() error {
	a.mu.Lock()
	at := a.at
	a.mu.Unlock()
	return a.endedAt(at)
}

func (a *attempt) endedAt(at StageInfo) error {
	e := &StageError{Stage: at.Stage, Call: at.Call, Addr: at.Addr, Attempt: at.Attempt}
	if guard, ok := context.Cause(a.ctx).(*guardError); ok {
		e.Errno, e.Err = syscall.ETIMEDOUT, guard
	} else {
		e.Err = newContextError(a.ctx)
		if e.Timeout() {
			e.Hint = a.hint(at, syscall.ETIMEDOUT, 0, nil)
		}
	}
	return e
}

// hint is what a person can do about a failed step.
func (a *attempt) hint(at StageInfo, errno syscall.Errno, status int, err error) string {
	f := failure{stage: at.Stage, call: at.Call, errno: errno, status: status, err: err,
		dst: at.Addr, local: a.r.Local, plain: a.r.PlainAdvice}
	a.mu.Lock()
	f.way = a.way
	tcp := a.tcp
	a.mu.Unlock()
	if tcp != nil {
		f.way = wayTCP
		if tcp.TCPConnected() {
			f.way = wayTCPConnected
		}
	}
	return f.hint()
}
