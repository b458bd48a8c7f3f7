package rsocket

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// machine is how long waits take on some machine, by how they begin.
type machine struct {
	wake  time.Duration // for a sleeping thread
	spun  time.Duration // when a spin lasts as long as the wait
	slept time.Duration // when the thread sleeps
}

// wait is a wait on such a machine; it reports what it learned and how it began.
func (m machine) wait(p *patience) (spin, block time.Duration) {
	spin, block = p.plan(defaultSpin, m.wake)
	switch {
	case spin > m.spun:
		p.note(spin, false, true)
	case block > 0:
		p.note(spin, true, block > m.slept)
	case spin > 0:
		p.note(spin, false, false)
	}
	return spin, block
}

// steady is what share of waits begin with a spin that finds something, with one that
// does not, and with a sleep on the thread, when the stream has got used to the machine.
func (m machine) steady(p *patience) (good, vain, block float64) {
	const warm, waits = 2000, 20000
	for range warm {
		m.wait(p)
	}
	for range waits {
		switch spin, b := m.wait(p); {
		case spin > m.spun:
			good++
		case spin > 0:
			vain++
		case b > 0:
			block++
		}
	}
	return good / waits, vain / waits, block / waits
}

const us = time.Microsecond

func TestPatience(t *testing.T) {
	for _, c := range []struct {
		name        string
		m           machine
		good, block float64 // at least
	}{
		{name: "answers within a short spin", m: machine{0, 5 * us, 12 * us}, good: 1},
		{name: "wakes quickly", m: machine{4 * us, 50 * us, 54 * us}, block: 0.95},
		{name: "wakes slowly", m: machine{80 * us, 140 * us, 300 * us}, good: 1},
		{name: "too slow for any spin", m: machine{200 * us, 700 * us, 900 * us}, block: 0.95},
		{name: "a disk behind it", m: machine{5 * us, 6000 * us, 6005 * us}, block: 0.95},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p patience
			good, vain, block := c.m.steady(&p)
			require.GreaterOrEqual(t, good, c.good)
			require.LessOrEqual(t, vain, 1.5/spinTry)
			require.GreaterOrEqual(t, block, c.block)
		})
	}
}

// TestPatienceWhenIdle: a stream that waits for long mostly goes to Go's poller at
// once, whatever it did before.
func TestPatienceWhenIdle(t *testing.T) {
	for _, before := range []machine{
		{0, 5 * us, 12 * us},
		{80 * us, 140 * us, 300 * us},
		{200 * us, 700 * us, 900 * us},
	} {
		var p patience
		before.steady(&p)
		idle := machine{before.wake, time.Minute, time.Minute}
		good, vain, block := idle.steady(&p)
		require.Zero(t, good)
		require.LessOrEqual(t, vain+block, 2.0/spinTry)
	}
}
