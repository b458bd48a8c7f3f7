package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// TestRaceOrders goes through every order in which up to three runners can connect,
// fail, hang and disregard their context, and in which the context can end in
// between, and compares what race does with what it should do, to the instant.
func TestRaceOrders(t *testing.T) {
	compared, ties, endless := 0, 0, 0
	for _, delay := range []time.Duration{cm.DefaultFallbackDelay, -1} {
		for _, end := range raceEnds {
			for _, runners := range []int{1, 2, 3} {
				eachOrder(runners, func(deeds []deed) {
					want := expectRace(delay, end, deeds)
					switch {
					case want.tie:
						ties++ // either order is right
					case want.at == never:
						endless++
					default:
						compared++
						synctest.Test(t, func(t *testing.T) { compareRace(t, delay, end, deeds, want) })
					}
				})
			}
		}
	}
	t.Logf("%d orders; %d more have two things at the same time, and %d never end", compared, ties, endless)
	require.Greater(t, compared, 3000)
	require.Less(t, ties, compared/20)
}

// never is a time that does not come.
const never = time.Duration(1<<63 - 1)

// A deed is what a runner does: it connects, or fails with err, after a time, or it
// hangs. A deaf one does not heed its context.
type deed struct {
	after time.Duration // never, if it hangs
	err   error
	deaf  bool
}

func (d deed) String() string {
	s := fmt.Sprintf("connects after %v", d.after)
	switch {
	case d.after == never:
		s = "hangs"
	case d.err != nil:
		s = fmt.Sprintf("fails after %v", d.after)
	}
	if d.deaf {
		s += ", whatever its context"
	}
	return s
}

// eachOrder makes every combination of what so many runners can do.
func eachOrder(runners int, do func([]deed)) {
	const ms = time.Millisecond
	// With these, and those of raceEnds, hardly anything happens at the same time.
	times := [][]time.Duration{{11 * ms, 347 * ms, 733 * ms}, {17 * ms, 359 * ms}, {23 * ms, 379 * ms}}
	if runners == 0 {
		do(nil)
		return
	}
	i := runners - 1
	eachOrder(i, func(before []deed) {
		add := func(d deed) { do(append(slices.Clip(before), d)) }
		for _, err := range []error{nil, syscall.ECONNREFUSED} {
			for _, after := range times[i] {
				add(deed{after: after, err: err})
			}
			add(deed{after: times[i][1] + 2*ms, err: err, deaf: true})
		}
		add(deed{after: never})
	})
}

// A raceEnd is when the context ends, and how.
type raceEnd struct {
	at  time.Duration
	err error // Canceled or DeadlineExceeded
}

var raceEnds = []raceEnd{
	{never, nil},
	{101 * time.Millisecond, context.Canceled}, {409 * time.Millisecond, context.Canceled},
	{409 * time.Millisecond, context.DeadlineExceeded}, {1511 * time.Millisecond, context.DeadlineExceeded},
}

// A raceOutcome is how a race goes.
type raceOutcome struct {
	at     time.Duration   // when it ends
	begun  []time.Duration // when each runner begins; -1 if it does not
	winner int             // -1 for nobody
	errs   []error         // of those who failed, in the order in which they did
	tie    bool
}

// expectRace says how a race must go.
func expectRace(delay time.Duration, end raceEnd, deeds []deed) raceOutcome {
	o := raceOutcome{winner: -1}
	for range deeds {
		o.begun = append(o.begun, -1)
	}
	ends := func(i int) time.Duration { // by itself
		if deeds[i].after == never {
			return never
		}
		return o.begun[i] + deeds[i].after
	}
	if len(deeds) == 1 { // which runs in the caller's place
		o.begun[0] = 0
		o.at = ends(0)
		switch {
		case o.at == end.at:
			o.tie = true
		case o.at > end.at && !deeds[0].deaf:
			o.at = end.at
			o.errs = []error{end.err}
		case deeds[0].err != nil:
			o.errs = []error{deeds[0].err}
		default:
			o.winner = 0
		}
		return o
	}
	next, timer := 0, never
	var running []int
	begin := func() {
		o.begun[next] = o.at
		running = append(running, next)
		next++
		timer = never
		if delay > 0 && next < len(deeds) {
			timer = o.at + delay
		}
	}
	fail := func(i int, err error) {
		running = slices.DeleteFunc(running, func(k int) bool { return k == i })
		o.errs = append(o.errs, err)
	}
	begin()
	over := false
	for {
		// The earliest of all that can happen next.
		at, who := min(timer, end.at), -1
		o.tie = o.tie || timer == end.at && at != never
		if over {
			at = end.at + 5*time.Millisecond // cm.Race waits no longer
		}
		for _, i := range running {
			switch e := ends(i); {
			case e < at:
				at, who = e, i
			case e == at && at != never:
				o.tie = true
			}
		}
		o.at = at
		switch {
		case o.tie || at == never:
			return o
		case who >= 0 && deeds[who].err == nil:
			o.winner = who
			return o
		case who >= 0:
			fail(who, deeds[who].err)
			if !over && next < len(deeds) {
				begin()
			}
		case over: // those that are left are not waited for
			for _, i := range slices.Clone(running) {
				fail(i, end.err)
			}
			return o
		case at == timer:
			begin()
		default:
			over, timer = true, never
			for _, i := range slices.Clone(running) {
				if !deeds[i].deaf {
					fail(i, end.err)
				}
			}
		}
		if len(running) == 0 {
			if next < len(deeds) {
				o.errs = append(o.errs, end.err) // why it was not begun
			}
			return o
		}
	}
}

// compareRace has a race, and compares it with what is expected.
func compareRace(t *testing.T, delay time.Duration, end raceEnd, deeds []deed, want raceOutcome) {
	what := fmt.Sprintf("delay %v, context %v, runners %v", delay, end, deeds)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	switch end.err {
	case context.Canceled:
		time.AfterFunc(end.at, cancel)
	case context.DeadlineExceeded:
		ctx, cancel = context.WithTimeout(ctx, end.at)
		defer cancel()
	}
	var scripts []*scriptedRunner
	for _, d := range deeds {
		scripts = append(scripts, &scriptedRunner{after: d.after, err: d.err, hang: d.after == never, deaf: d.deaf})
	}
	start := time.Now()
	conn, err := race(ctx, delay, script(scripts))
	require.Equal(t, want.at, time.Since(start), what)
	if want.winner >= 0 {
		require.NoError(t, err, what)
		require.Same(t, scripts[want.winner], conn.(*scriptedConn).runner, what)
	} else {
		require.Nil(t, conn, what)
		require.Error(t, err, what)
		last := want.errs[len(want.errs)-1]
		require.Equal(t, last == context.DeadlineExceeded, isTimeout(err), "%s: %v", what, err)
		for _, e := range []error{context.Canceled, context.DeadlineExceeded, syscall.ECONNREFUSED} {
			require.Equal(t, slices.Contains(want.errs, e), errors.Is(err, e), "%s: %v", what, err)
		}
		if many := (*multiError)(nil); errors.As(err, &many) {
			require.Len(t, many.all.Errors, len(want.errs), what)
		}
	}
	time.Sleep(2 * time.Second) // of the bubble's time: what is deaf ends, too
	synctest.Wait()
	for i, s := range scripts {
		require.Equal(t, want.begun[i], s.begun, "runner %d: %s", i, what)
		require.Equal(t, s.begun >= 0, s.ended.Load(), "runner %d is left behind: %s", i, what)
		late := deeds[i].deaf && deeds[i].err == nil && s.begun >= 0 && i != want.winner
		require.Equal(t, late, s.closed.Load(), "connection of runner %d: %s", i, what)
	}
}
