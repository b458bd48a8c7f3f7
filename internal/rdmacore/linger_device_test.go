//go:build linux && cgo

package rdmacore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// message has a completion come to the peer of a, by a Send.
func message(t *testing.T, a *end) {
	t.Helper()
	a.send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.FlagSignaled})
	a.completions(t, 1)
}

func TestDeviceLinger(t *testing.T) {
	d, a := connected(t)
	cq := d.cq.(verbs.Lingerer)
	var wc [4]verbs.WC
	again := func() {
		t.Helper()
		_, err := d.qp.PostRecv([]verbs.RecvWR{{SGE: d.sge(0, receiveSize)[0]}})
		require.NoError(t, err)
	}
	linger := func(spin, block time.Duration) (int, bool, time.Duration) {
		t.Helper()
		start := time.Now()
		n, slept, err := cq.Linger(wc[:], spin, block)
		require.NoError(t, err)
		return n, slept, time.Since(start)
	}

	// nothing comes: it takes as long as it may
	n, slept, took := linger(3*time.Millisecond, 0)
	require.Zero(t, n)
	require.False(t, slept)
	require.GreaterOrEqual(t, took, 3*time.Millisecond)
	n, slept, took = linger(0, 3*time.Millisecond)
	require.Zero(t, n)
	require.True(t, slept)
	require.GreaterOrEqual(t, took, 3*time.Millisecond)

	// what is there is found at once, whether or not the queue is armed
	for _, block := range []time.Duration{0, 900 * time.Millisecond} {
		message(t, a)
		require.Eventually(t, func() bool { n, _, _ = linger(100*time.Millisecond, block); return n == 1 }, patience, time.Millisecond)
		require.Equal(t, verbs.WCRecv, wc[0].Opcode)
		again()
	}

	// what comes later ends the sleep
	for range 20 {
		found := make(chan int)
		go func() {
			for {
				if n, _, err := cq.Linger(wc[:], 0, 900*time.Millisecond); n > 0 || err != nil {
					found <- n
					return
				}
			}
		}()
		message(t, a)
		select {
		case n := <-found:
			require.Equal(t, 1, n)
			again()
		case <-time.After(patience):
			require.FailNow(t, "Linger found nothing")
		}
	}

	// a Wake ends a spin, and is left for Wait
	time.AfterFunc(10*time.Millisecond, cq.Wake)
	n, _, took = linger(time.Minute, 0)
	require.Zero(t, n)
	require.Less(t, took, 30*time.Second)
	n, slept, _ = linger(time.Minute, 900*time.Millisecond)
	require.Zero(t, n)
	require.False(t, slept)
	require.NoError(t, cq.Wait())
	n, slept, _ = linger(0, time.Millisecond)
	require.Zero(t, n)
	require.True(t, slept)
}

// Linger and Wait take turns, and neither misses an event.
func TestDeviceLingerAndWait(t *testing.T) {
	d, a := connected(t)
	cq := d.cq.(verbs.Lingerer)
	const messages = 400
	done := make(chan error, 1)
	room := make(chan struct{}, 8) // receives that may be taken
	go func() {
		var wc [4]verbs.WC
		for got, turn := 0, 0; got < messages; turn++ {
			n, err := 0, error(nil)
			switch turn % 3 {
			case 0:
				n, _, err = cq.Linger(wc[:], 20*time.Microsecond, 0)
			case 1:
				n, _, err = cq.Linger(wc[:], 0, time.Millisecond)
			default:
				if err = cq.Arm(); err == nil {
					n, err = cq.Poll(wc[:])
				}
				if n == 0 && err == nil {
					if err = cq.Wait(); err == nil {
						n, err = cq.Poll(wc[:])
					}
				}
			}
			if err != nil {
				done <- err
				return
			}
			got += n
			for range n {
				if _, err := d.qp.PostRecv([]verbs.RecvWR{{SGE: d.sge(0, receiveSize)[0]}}); err != nil {
					done <- err
					return
				}
				<-room
			}
		}
		done <- nil
	}()
	for range messages {
		select {
		case room <- struct{}{}:
		case <-time.After(patience):
			require.FailNow(t, "an event was missed")
		}
		message(t, a)
	}
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(patience):
		require.FailNow(t, "an event was missed")
	}
}

// Completions of sends wake nobody while they are muted, where the device is one on
// which that is of use.
func TestDeviceMuteSends(t *testing.T) {
	d, a := connected(t)
	if transportOf(t, d) != verbs.IWARP {
		t.Skip("the queue pair has one completion queue")
	}
	cq := d.cq.(verbs.Lingerer)
	mute := d.cq.(verbs.SendMuter).MuteSends
	var wc [4]verbs.WC
	send := func() {
		t.Helper()
		d.send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.FlagSignaled})
		a.completions(t, 1)
	}
	for range 3 {
		mute(true)
		send()
		for _, spin := range []time.Duration{0, 2 * time.Millisecond} {
			start := time.Now()
			n, slept, err := cq.Linger(wc[:], spin, 20*time.Millisecond)
			require.NoError(t, err)
			require.Zero(t, n)
			require.True(t, slept)
			require.GreaterOrEqual(t, time.Since(start), 20*time.Millisecond)
		}
		require.NoError(t, cq.Arm())
		woken := make(chan error, 1)
		go func() { woken <- cq.Wait() }()
		select {
		case <-woken:
			// early for no reason, as after an event of an earlier arming
		case <-time.After(20 * time.Millisecond):
			message(t, a)
			require.NoError(t, <-woken)
		}
		n, err := cq.Poll(wc[:])
		require.NoError(t, err)
		require.NotZero(t, n)
		require.Equal(t, verbs.WCSend, wc[n-1].Opcode, "receives first")

		mute(false)
		send()
		n, _, err = cq.Linger(wc[:], 0, 900*time.Millisecond)
		require.NoError(t, err)
		require.NotZero(t, n)
	}
}
