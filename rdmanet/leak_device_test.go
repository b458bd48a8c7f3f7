package rdmanet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// usage is what a process holds that a dial could leak.
type usage struct {
	descriptors int
	goroutines  int
	threads     int
	rdma        string // what the kernel counts of RDMA resources
}

func measure(t *testing.T) usage {
	t.Helper()
	count := func(dir string) int {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		return len(entries)
	}
	rdma, err := exec.Command("rdma", "resource", "show").CombinedOutput()
	require.NoError(t, err, "%s", rdma)
	return usage{
		descriptors: count("/proc/self/fd"),
		goroutines:  runtime.NumGoroutine(),
		threads:     count("/proc/self/task"),
		rdma:        strings.Join(strings.Fields(string(rdma)), " "),
	}
}

// leaked says what after holds more than before; threads may be a handful more.
func leaked(before, after usage) string {
	var s []string
	if after.descriptors > before.descriptors {
		s = append(s, fmt.Sprintf("%d descriptors instead of %d", after.descriptors, before.descriptors))
	}
	if after.goroutines > before.goroutines {
		s = append(s, fmt.Sprintf("%d goroutines instead of %d", after.goroutines, before.goroutines))
	}
	if after.threads > before.threads+5 {
		s = append(s, fmt.Sprintf("%d threads instead of %d", after.threads, before.threads))
	}
	if after.rdma != before.rdma {
		s = append(s, fmt.Sprintf("RDMA resources %q instead of %q", after.rdma, before.rdma))
	}
	return strings.Join(s, ", ")
}

// requireNoLeak waits, five seconds at most, until all is as it was.
func requireNoLeak(t *testing.T, before usage) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; {
		after := measure(t)
		diff := leaked(before, after)
		if diff == "" {
			t.Logf("as before: %+v", after)
			return
		}
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("left behind: %s\n%s", diff, buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestDeviceCanceledDialsLeakNothing cancels 200 dials, to an address that
// nobody holds and to one that answers, after times that meet every stage.
func TestDeviceCanceledDialsLeakNothing(t *testing.T) {
	dev := needDevice(t)
	l := listenTest(t, port0(dev.addr4))
	go echoServer(l)
	target := func(i int) string {
		if i%2 == 0 {
			return netip.AddrPortFrom(dev.deadAddr(), 9).String()
		}
		return l.Addr().String()
	}
	d := Dialer{Provider: Verbs, Timeout: 20 * time.Second}
	warm, err := d.Dial("rdma", l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, echoOnce(warm, 1000, 1))
	require.NoError(t, warm.Close())
	time.Sleep(5 * time.Second) // let what is kept for reuse go
	before := measure(t)
	t.Logf("before: %+v", before)
	var canceled, established int
	for i := range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.Int64N(int64(80*time.Millisecond))))
		c, err := d.DialContext(ctx, "rdma", target(i))
		cancel()
		if err == nil {
			established++
			require.NoError(t, c.Close())
			continue
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
		canceled++
	}
	t.Logf("%d ended by their context, %d established", canceled, established)
	require.Greater(t, canceled, 50)
	requireNoLeak(t, before)
}

// TestDeviceClosedConnectionsLeakNothing is the same for connections that were
// established and closed, by either end first.
func TestDeviceClosedConnectionsLeakNothing(t *testing.T) {
	dev := needDevice(t)
	l := listenTest(t, port0(dev.addr4))
	a, b := pair(t, l)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	time.Sleep(5 * time.Second) // let what is kept for reuse go
	before := measure(t)
	for i := range 20 {
		a, b := pair(t, l)
		if i%2 == 0 {
			a, b = b, a
		}
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
	requireNoLeak(t, before)
}
