package rsocket

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/simqp"
)

// TestSweepBusy checks that a busy stream is looked at soon and the others are not,
// and that it is one of many again when it is not busy any more.
func TestSweepBusy(t *testing.T) {
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
			before := busy.recvs
			time.Sleep(sweepSoon)
			synctest.Wait()
			if busy.recvs > before {
				looks++
			}
			require.LessOrEqual(t, len(sweeper.busy), 1)
		}
		require.Greater(t, looks, 30)
		require.Zero(t, idle.recvs, "a stream that is not busy was looked at")
		time.Sleep((busyPasses + 2) * sweepSoon)
		synctest.Wait()
		require.Empty(t, sweeper.busy)
		require.Nil(t, sweeper.busyTimer)
		require.Zero(t, busy.hurry)
		for _, s := range []*end{busy, peer, idle, other} {
			require.NoError(t, s.Release())
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
	})
}
