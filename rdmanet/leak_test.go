package rdmanet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
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

func measure(t *testing.T, on target) usage {
	t.Helper()
	count := func(dir string) int {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		return len(entries)
	}
	var rdma []byte
	if on.provider == Verbs {
		var err error
		rdma, err = exec.Command("rdma", "resource", "show").CombinedOutput()
		require.NoError(t, err, "%s", rdma)
	}
	return usage{
		descriptors: count("/proc/self/fd"),
		goroutines:  runtime.NumGoroutine(),
		threads:     count("/proc/self/task"),
		rdma:        strings.Join(strings.Fields(string(rdma)), " "),
	}
}

// settled waits, five seconds at most, until nothing changes for a while: what has
// been closed goes behind its user.
func settled(t *testing.T, on target) usage {
	t.Helper()
	now := measure(t, on)
	for same, deadline := 0, time.Now().Add(5*time.Second); same < 4 && time.Now().Before(deadline); same++ {
		time.Sleep(100 * time.Millisecond)
		before := now
		if now = measure(t, on); now != before {
			same = -1
		}
	}
	return now
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
	if moreRDMA(before.rdma, after.rdma) {
		s = append(s, fmt.Sprintf("RDMA resources %q instead of %q", after.rdma, before.rdma))
	}
	return strings.Join(s, ", ")
}

// moreRDMA reports whether a number of what the kernel counts is larger than
// before. It may be smaller: memory is kept for a while to be used again.
func moreRDMA(before, after string) bool {
	was, is := strings.Fields(before), strings.Fields(after)
	if len(was) != len(is) {
		return true
	}
	for i := range is {
		n, err := strconv.Atoi(is[i])
		m, err2 := strconv.Atoi(was[i])
		if (err == nil) != (err2 == nil) || err != nil && is[i] != was[i] || n > m {
			return true
		}
	}
	return false
}

// requireNoLeak waits, five seconds at most, until all is as it was.
func requireNoLeak(t *testing.T, on target, before usage) {
	t.Helper()
	requireNoLeakAfter(t, on, before, 5*time.Second)
}

func requireNoLeakAfter(t *testing.T, on target, before usage, limit time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; {
		after := measure(t, on)
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

// TestCanceledDialsLeakNothing cancels 200 dials, to an address that
// nobody holds and to one that answers, after times that meet every stage.
func TestCanceledDialsLeakNothing(t *testing.T) { eachTarget(t, testCanceledDialsLeakNothing) }

func testCanceledDialsLeakNothing(t *testing.T, on target) {
	l := on.listen(t, port0(on.addr4))
	go echoServer(l)
	addrs := []string{on.deadAddr(t), l.Addr().String()}
	d := on.dialer(20 * time.Second)
	warm, err := d.Dial("rdma", l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, echoOnce(warm, 1000, 1))
	require.NoError(t, warm.Close())
	time.Sleep(5 * time.Second) // let what is kept for reuse go
	before := measure(t, on)
	t.Logf("before: %+v", before)
	var canceled, established int
	for i := range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.Int64N(int64(80*time.Millisecond))))
		c, err := d.DialContext(ctx, "rdma", addrs[i%2])
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
	requireNoLeak(t, on, before)
}

// TestClosedConnectionsLeakNothing is the same for connections that were
// established and closed, by either end first.
func TestClosedConnectionsLeakNothing(t *testing.T) { eachTarget(t, testClosedConnectionsLeakNothing) }

func testClosedConnectionsLeakNothing(t *testing.T, on target) {
	l := on.listen(t, port0(on.addr4))
	a, b := on.pair(t, l)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	time.Sleep(5 * time.Second) // let what is kept for reuse go
	before := measure(t, on)
	for i := range 20 {
		a, b := on.pair(t, l)
		if i%2 == 0 {
			a, b = b, a
		}
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
	requireNoLeak(t, on, before)
}
