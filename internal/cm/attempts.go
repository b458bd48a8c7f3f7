package cm

import (
	"syscall"
	"time"
)

// guard is how long a call without a timeout_ms may take: as long as it likes
// when the context has a deadline.
func (a *attempt) guard() time.Duration {
	if _, ok := a.ctx.Deadline(); ok {
		return 0
	}
	return untimedGuard
}

// timed runs a stage whose call takes a timeout_ms, again after a time-out while
// time is left.
func (a *attempt) timed(stage Stage, name string, call func(timeoutMS int) error, want EventType) error {
	deadline, limited := a.ctx.Deadline()
	for n := 0; ; n++ {
		began := time.Now()
		ms := attemptTimeout(n, began, deadline)
		guard := time.Duration(ms)*time.Millisecond + eventSlack
		info := StageInfo{Stage: stage, Call: name, Attempt: n, TimeoutMS: ms}
		_, err := a.step(info, guard, func() error { return call(ms) }, want)
		e, failed := err.(*StageError)
		if !failed || e.Errno != syscall.ETIMEDOUT || !limited && n+1 == maxAttempts {
			return err
		}
		if !a.pause(minAttemptGap - time.Since(began)) {
			info.Addr = a.target.dst
			return a.endedAt(info)
		}
	}
}

// pause waits, and reports false if the attempt's context ended meanwhile or
// its time is up.
func (a *attempt) pause(d time.Duration) bool {
	if deadline, ok := a.ctx.Deadline(); ok && time.Until(deadline) <= max(d, 0) {
		<-a.ctx.Done() // the context's own timer is due
		return false
	}
	return sleep(a.ctx, d)
}
