package cm

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func over(c <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d Deadline
		c := d.Wait()
		require.False(t, over(c), "none at first")

		d.Set(time.Now().Add(time.Second))
		time.Sleep(999 * time.Millisecond)
		require.False(t, over(c))
		time.Sleep(time.Millisecond)
		require.True(t, over(c), "one who waits already is told")
		require.True(t, over(d.Wait()))

		d.Set(time.Time{})
		require.False(t, over(d.Wait()), "none again")

		// Moved while somebody waits.
		c = d.Wait()
		d.Set(time.Now().Add(time.Second))
		d.Set(time.Now().Add(time.Minute))
		time.Sleep(59 * time.Second)
		require.False(t, over(c))
		time.Sleep(time.Second)
		require.True(t, over(c))

		d.Set(time.Now().Add(time.Second))
		c = d.Wait()
		require.False(t, over(c))
		d.Set(time.Now().Add(-time.Second))
		require.True(t, over(c), "past")
		d.Set(time.Now().Add(-time.Second))
		require.True(t, over(d.Wait()), "past twice")
	})
}
