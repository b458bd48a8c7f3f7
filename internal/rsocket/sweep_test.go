package rsocket

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/simqp"
)

// received is how many messages a stream has received.
func received(s *end) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recvs
}

// busyStreams is what the sweeper looks at soon, and whether it is about to.
func busyStreams() (n int, due bool) {
	sweeper.mu.Lock()
	defer sweeper.mu.Unlock()
	return len(sweeper.busy), sweeper.busyTimer != nil
}

// TestSweepBusy checks that a busy stream is looked at soon and the others are not,
// and that it is one of many again when it is not busy any more.
func TestSweepBusy(t *testing.T) {
	require.Eventually(t, func() bool { // what other tests have left, whose time is not the bubble's
		n, due := busyStreams()
		return n == 0 && !due
	}, 10*time.Second, time.Millisecond)
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, simqp.Options{})
		busy, peer := l.pair(Config{})
		idle, other := l.pair(Config{})
		require.NoError(t, busy.CloseRead())
		looks := 0
		for range 40 {
			_, err := peer.Write([]byte("for nobody"))
			require.NoError(t, err)
			_, err = other.Write([]byte("for later"))
			require.NoError(t, err)
			before := received(busy)
			time.Sleep(sweepSoon)
			synctest.Wait()
			if received(busy) > before {
				looks++
			}
			n, _ := busyStreams()
			require.LessOrEqual(t, n, 3) // and the two that write
		}
		require.Greater(t, looks, 30)
		require.Zero(t, received(idle), "a stream that is not busy was looked at")
		time.Sleep((busyPasses + 2) * sweepSoon)
		synctest.Wait()
		n, due := busyStreams()
		require.Zero(t, n)
		require.False(t, due)
		for _, s := range []*end{busy, peer, idle, other} {
			require.NoError(t, s.Release())
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
	})
}
