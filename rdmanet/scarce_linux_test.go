package rdmanet

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// TestAutoListenScarce: a process that can open few descriptors more listens with its
// device, or fails; it never listens without it.
func TestAutoListenScarce(t *testing.T) {
	const variable = "RDMANET_TEST_SPARE"
	on := deviceTarget(t)
	if os.Getenv(variable) == "" {
		for spare := range 16 {
			cmd := exec.Command(os.Args[0], "-test.run", "^TestAutoListenScarce$", "-test.v")
			cmd.Env = append(os.Environ(), variable+"="+strconv.Itoa(spare))
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%d to spare: %s", spare, out)
			t.Logf("%d to spare: %s", spare, out)
		}
		return
	}
	spare, err := strconv.Atoi(os.Getenv(variable))
	require.NoError(t, err)
	own, err := net.Listen("tcp", "127.0.0.1:0") // Go's poller needs some, and cannot do without
	require.NoError(t, err)
	defer own.Close()
	probe, err := os.Open("/dev/null")
	require.NoError(t, err)
	next := uint64(probe.Fd())
	probe.Close()
	var old syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old))
	few := old
	few.Cur = next + uint64(spare)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few))
	var lc ListenConfig
	l, err := lc.Listen(context.Background(), "rdma", port0(on.addr4))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old))
	if err != nil {
		t.Log(err)
		require.True(t, scarce(err), "%v", err)
		return
	}
	defer l.Close()
	t.Logf("%T", l.(*Listener).inner)
	if part, ok := l.(*Listener).inner.(*cm.Listener); ok {
		require.Equal(t, "verbs", part.Provider(), "the device is missing")
	}
}
