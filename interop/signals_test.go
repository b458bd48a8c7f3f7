//go:build linux

package interop

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/rdmanet/rdmanet"
)

// TestSignalsWhileDialing dials while all threads of the process get signals, as
// they do where a program is profiled or its children end. A signal makes Linux
// call off a connect that is under way and begin it again; over siw, which connects
// TCP inside the call, the second one then fails (EADDRNOTAVAIL), and the first can
// cost the listener at the other end its socket.
func TestSignalsWhileDialing(t *testing.T) {
	dev := needDevice(t)
	l := listen(t, rdmanet.ListenConfig{}, addrPort(dev.addr4, 0))
	serve(t, l)
	stop := make(chan struct{})
	var signals sync.WaitGroup
	signals.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			// Go's runtime takes this one for its own use and ignores it.
			if err := signalThreads(unix.SIGURG); err != nil {
				t.Error(err)
				return
			}
		}
	})
	errs := make([]error, 4)
	var wg sync.WaitGroup
	times := sized(10, 25, 250)
	for i := range errs {
		wg.Go(func() {
			for range times {
				c, err := dialer(patience).Dial("rdma", l.Addr().String())
				if err != nil {
					errs[i] = err
					return
				}
				if err := errors.Join(exchange(c, int64(i), 1000), c.Close()); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	within(t, 4*patience, "all dials", wg.Wait)
	close(stop)
	signals.Wait()
	require.NoError(t, errors.Join(errs...))
}

// signalThreads sends a signal to each thread of this process.
func signalThreads(signal unix.Signal) error {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			return err
		}
		// One that has just ended does not matter.
		if err := unix.Tgkill(os.Getpid(), tid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("signal thread %d: %w", tid, err)
		}
	}
	return nil
}
