package rsocket

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// machine is how long waits take on some machine, by how they begin.
type machine struct {
	spun  time.Duration // when a spin lasts as long as the wait
	slept time.Duration // when the thread sleeps
}

// wait is a wait on such a machine; it reports what it learned and how it began.
func (m machine) wait(p *patience, short time.Duration) (spin, block time.Duration) {
	spin, block = p.plan(short)
	switch {
	case spin > m.spun:
		p.note(spin, false, true, m.spun)
	case block > m.slept:
		p.note(spin, true, true, m.slept)
	case block > 0:
		p.note(spin, true, false, spin+block)
	case spin > 0:
		p.note(spin, false, false, spin)
	}
	return spin, block
}

// steady is what share of waits begin with a long spin, a short one, and a sleep
// on the thread, when the stream has got used to the machine.
func (m machine) steady(p *patience) (long, short, block float64) {
	const warm, waits = 2000, 20000
	for range warm {
		m.wait(p, defaultSpin)
	}
	for range waits {
		switch spin, b := m.wait(p, defaultSpin); {
		case spin == longSpin:
			long++
		case spin > 0:
			short++
		case b > 0:
			block++
		}
	}
	return long / waits, short / waits, block / waits
}

func TestPatience(t *testing.T) {
	for _, c := range []struct {
		name               string
		m                  machine
		long, short, block float64 // at least
	}{
		{name: "answers within a short spin", m: machine{5 * time.Microsecond, 12 * time.Microsecond}, short: 1},
		{name: "wakes quickly", m: machine{50 * time.Microsecond, 54 * time.Microsecond}, block: 0.95},
		{name: "wakes slowly", m: machine{140 * time.Microsecond, 300 * time.Microsecond}, long: 0.95},
		{name: "too slow for any spin", m: machine{700 * time.Microsecond, 900 * time.Microsecond}, block: 0.95},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p patience
			long, short, block := c.m.steady(&p)
			require.GreaterOrEqual(t, long, c.long)
			require.GreaterOrEqual(t, short, c.short)
			require.GreaterOrEqual(t, block, c.block)
		})
	}
}

// TestPatienceWhenIdle: a stream that waits for long mostly goes to Go's poller at
// once, whatever it did before.
func TestPatienceWhenIdle(t *testing.T) {
	for _, before := range []machine{
		{5 * time.Microsecond, 12 * time.Microsecond},
		{140 * time.Microsecond, 300 * time.Microsecond},
		{700 * time.Microsecond, 900 * time.Microsecond},
	} {
		var p patience
		before.steady(&p)
		idle := machine{time.Minute, time.Minute}
		long, short, block := idle.steady(&p)
		require.Zero(t, long)
		require.LessOrEqual(t, short+block, 2.0/spinTry)
	}
}

// TestPatienceChanges: what was learned is given up when it is no longer so.
func TestPatienceChanges(t *testing.T) {
	var p patience
	slow := machine{140 * time.Microsecond, 300 * time.Microsecond}
	quick := machine{140 * time.Microsecond, 145 * time.Microsecond}
	long, _, _ := slow.steady(&p)
	require.Greater(t, long, 0.95)
	for range 2 * lastTrial {
		quick.wait(&p, defaultSpin)
	}
	long, _, _ = quick.steady(&p)
	require.Less(t, long, 0.05)
}
