package cm

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTimeoutMS(t *testing.T) {
	for d, want := range map[time.Duration]int{
		-time.Hour: 1, 0: 1, 1: 1, time.Millisecond - 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2,
		300 * time.Millisecond:                     300,
		time.Duration(math.MaxInt64):               math.MaxInt32,
		math.MaxInt32 * time.Millisecond:           math.MaxInt32,
		math.MaxInt32*time.Millisecond - 1:         math.MaxInt32,
		(math.MaxInt32 + 1) * time.Millisecond:     math.MaxInt32,
		(math.MaxInt32-1)*time.Millisecond - 1:     math.MaxInt32 - 1,
		time.Duration(math.MinInt64):               1,
		time.Duration(math.MaxInt64) - time.Second: math.MaxInt32,
	} {
		require.Equal(t, want, timeoutMS(d), "%d", d)
	}
}

func TestAttemptTimeout(t *testing.T) {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for n, want := range map[int]int{
		0: 1000, 1: 2000, 6: 64000, 20: 1048576000, 21: 2097152000, 22: math.MaxInt32, 32: math.MaxInt32,
		33: math.MaxInt32, 63: math.MaxInt32, 64: math.MaxInt32, 1000: math.MaxInt32,
	} {
		require.Equal(t, want, attemptTimeout(n, now, time.Time{}), "%d", n)
		require.Equal(t, min(want, 3600000), attemptTimeout(n, now, now.Add(time.Hour)), "%d", n)
		require.Equal(t, 1, attemptTimeout(n, now, now.Add(-time.Hour)), "%d", n)
	}
}

func TestPartialDeadline(t *testing.T) {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		left  time.Duration
		addrs int
		want  time.Duration
	}{
		{12 * time.Second, 1, 12 * time.Second}, {12 * time.Second, 2, 6 * time.Second}, {12 * time.Second, 3, 4 * time.Second},
		{3 * time.Second, 2, 2 * time.Second}, {1999 * time.Millisecond, 1, 1999 * time.Millisecond},
		{1999 * time.Millisecond, 9, 1999 * time.Millisecond}, {-time.Second, 2, -time.Second},
	} {
		require.Equal(t, now.Add(c.want), partialDeadline(now, now.Add(c.left), c.addrs), "%+v", c)
	}
	require.Zero(t, partialDeadline(now, time.Time{}, 3))
}
