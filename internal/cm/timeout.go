package cm

import (
	"math"
	"time"
)

const (
	// firstTimeout is what the first attempt of a stage gets; each further
	// one gets twice as much.
	firstTimeout = time.Second

	// maxAttempts bounds the attempts of a stage when there is no deadline:
	// 1 + 2 + … + 64 s, as rsockets does.
	maxAttempts = 7

	// minAttemptGap keeps attempts apart when a stage reports a time-out
	// before the time is over, so that a deadline far away does not become a
	// busy loop.
	minAttemptGap = 100 * time.Millisecond

	// eventSlack is how much later than its timeout_ms a call's event may
	// come. The kernel keeps these times to a few milliseconds; an event
	// that is seconds late has been lost.
	eventSlack = 5 * time.Second

	// untimedGuard ends a call that takes no timeout_ms when there is no
	// deadline either. The kernel gives up a connect after 78 to 102 s on
	// InfiniBand and RoCE, and after about two minutes on iWARP, where it is
	// TCP's time-out.
	untimedGuard = 3 * time.Minute

	// saneMinimum is the least time that an address among several gets, as
	// in package net.
	saneMinimum = 2 * time.Second
)

// timeoutMS is a duration as a timeout_ms: rounded up to a millisecond, at
// least 1, at most what an int of C holds.
func timeoutMS(d time.Duration) int {
	ms := d / time.Millisecond
	if d%time.Millisecond > 0 {
		ms++
	}
	return int(min(max(ms, 1), math.MaxInt32))
}

// attemptTimeout is the timeout_ms of attempt n, from 0, when the time ends at
// deadline; a zero deadline is none.
func attemptTimeout(n int, now, deadline time.Time) int {
	const last = 32 // 1 s << 32 is more than a timeout_ms can hold
	d := firstTimeout << min(n, last)
	if !deadline.IsZero() {
		d = min(d, deadline.Sub(now))
	}
	return timeoutMS(d)
}

// partialDeadline is when the first of so many addresses has to be given up:
// they share the time equally, but the first ones get no less than a sane
// minimum each, at the expense of the last. A zero deadline is none.
func partialDeadline(now, deadline time.Time, addrs int) time.Time {
	if deadline.IsZero() {
		return deadline
	}
	left := deadline.Sub(now)
	share := left / time.Duration(addrs)
	if share < saneMinimum {
		share = min(left, saneMinimum)
	}
	return now.Add(share)
}
