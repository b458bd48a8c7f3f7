//go:build linux && cgo

package rdmacore

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func descriptors(t testing.TB) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(fds)
}

// noLeaks demands that at the end of the test, after its other clean-ups, there
// are no more goroutines and descriptors than now, and hardly more threads. What
// the libraries and the runtime open once and keep is there already: the first
// test that needs a device warms them up.
func noLeaks(t testing.TB) {
	t.Helper()
	warmUp(t)
	goroutines := goleak.IgnoreCurrent()
	fds, tasks := descriptors(t), threads(t)
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		goleak.VerifyNone(t, goroutines)
		require.Eventually(t, func() bool { return descriptors(t) <= fds && threads(t) <= tasks+8 },
			5*time.Second, 10*time.Millisecond, "before: %d descriptors, %d threads", fds, tasks)
	})
}

var warm bool

func warmUp(t testing.TB) {
	t.Helper()
	if warm {
		return
	}
	warm = true
	p, err := Open()
	require.NoError(t, err)
	e := resolve(t, p, nobody(t)) // librdmacm opens the device
	e.build(t)                    // Go's poller comes to life
	e.tear(t)
}
