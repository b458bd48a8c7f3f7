//go:build linux && cgo

package rdmacore

import (
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// readForEver is a call that blocks in the kernel until a signal ends it. It
// tells when it begins.
func readForEver(t testing.TB, begun chan<- struct{}) func() int {
	t.Helper()
	var fds [2]int
	require.NoError(t, syscall.Pipe2(fds[:], syscall.O_CLOEXEC))
	t.Cleanup(func() { syscall.Close(fds[0]); syscall.Close(fds[1]) })
	return func() int {
		var b [1]byte
		begun <- struct{}{}
		_, _, e := syscall.Syscall(syscall.SYS_READ, uintptr(fds[0]), uintptr(unsafe.Pointer(&b)), 1)
		return int(e)
	}
}

func threads(t testing.TB) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	return len(tasks)
}

// blocking is the two ways to make a call.
var blocking = map[string]func(*interruptible, func() int) int{
	"here":  (*interruptible).here,
	"apart": (*interruptible).apart,
}

func TestInterruptEndsBlockedCall(t *testing.T) {
	defer goleak.VerifyNone(t)
	for name, way := range blocking {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				var b interruptible
				begun, code := make(chan struct{}), make(chan int)
				go func() { code <- way(&b, readForEver(t, begun)) }()
				<-begun
				// No wait here: the thread may be in the kernel or not yet.
				b.interrupt()
				select {
				case c := <-code:
					require.Equal(t, int(syscall.EINTR), c)
				case <-time.After(5 * time.Second):
					require.FailNow(t, "the call still blocks")
				}
			}
		})
	}
}

func TestInterruptIsSticky(t *testing.T) {
	for name, way := range blocking {
		t.Run(name, func(t *testing.T) {
			var b interruptible
			require.Equal(t, 0, way(&b, func() int { return 0 }))
			require.Equal(t, 7, way(&b, func() int { return 7 }))
			b.interrupt()
			b.interrupt()
			for range 2 {
				require.Equal(t, int(syscall.EINTR), way(&b, func() int {
					t.Error("the call was made")
					return 0
				}))
			}
		})
	}
}

// A program that wants to be told of all signals must not keep ours from working.
func TestInterruptWhileNotifyIsOn(t *testing.T) {
	c := make(chan os.Signal, 100)
	signal.Notify(c)
	defer signal.Stop(c)
	var b interruptible
	begun, code := make(chan struct{}), make(chan int)
	go func() { code <- b.apart(readForEver(t, begun)) }()
	<-begun
	b.interrupt()
	select {
	case c := <-code:
		require.Equal(t, int(syscall.EINTR), c)
	case <-time.After(5 * time.Second):
		require.FailNow(t, "the call still blocks")
	}
}

// The thread of a call that blocked ends with it; Go's runtime would have kept it.
func TestApartLeavesNoThread(t *testing.T) {
	defer goleak.VerifyNone(t)
	const n = 50
	before := threads(t)
	var bs [n]interruptible
	begun := make(chan struct{})
	var wg sync.WaitGroup
	for i := range bs {
		wg.Go(func() {
			if c := bs[i].apart(readForEver(t, begun)); c != int(syscall.EINTR) {
				t.Errorf("the call returned %d", c)
			}
		})
	}
	for range bs {
		<-begun
	}
	require.GreaterOrEqual(t, threads(t), n)
	for i := range bs {
		bs[i].interrupt()
	}
	wg.Wait()
	// What stays is for the runtime: a few threads to run the rest of us.
	require.Eventually(t, func() bool { return threads(t) <= before+8 }, 5*time.Second, 10*time.Millisecond,
		"%d threads before, %d after", before, threads(t))
}

func BenchmarkHere(b *testing.B)  { benchmarkCall(b, (*interruptible).here) }
func BenchmarkApart(b *testing.B) { benchmarkCall(b, (*interruptible).apart) }

func benchmarkCall(b *testing.B, way func(*interruptible, func() int) int) {
	var i interruptible
	for b.Loop() {
		way(&i, func() int { return 0 })
	}
	runtime.KeepAlive(&i)
}
