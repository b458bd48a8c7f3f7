//go:build linux && cgo

package rdmacore

import (
	"math"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The hint about locked memory is given only where the limit is the reason.
func TestMemlockHint(t *testing.T) {
	const kib = 1 << 10
	for _, c := range []struct {
		code                syscall.Errno
		limit, pinned, size uint64
		want                bool
	}{
		{syscall.ENOMEM, 64 * kib, 0, 128 * kib, true},
		{syscall.ENOMEM, 64 * kib, 32 * kib, 64 * kib, true},
		{syscall.ENOMEM, 64 * kib, 32 * kib, 32 * kib, false},
		{syscall.ENOMEM, 64 * kib, 1024 * kib, 64 * kib, false}, // the limit does not hold for this process
		{syscall.ENOMEM, 0, 0, 4 * kib, true},
		{syscall.ENOMEM, math.MaxUint64, 1024 * kib, 64 * kib, false},
		{syscall.EPERM, 0, 0, 64 * kib, true},
		{syscall.EPERM, 64 * kib, 0, 128 * kib, false},
		{syscall.EINVAL, 0, 0, 64 * kib, false},
	} {
		got := memlockReason(c.code, c.limit, c.pinned, c.size)
		require.Equal(t, c.want, got != "", "%v", c)
		if c.want {
			require.Contains(t, got, "ulimit -l")
		}
	}
	require.Contains(t, memlockReason(syscall.ENOMEM, 64*kib, 32*kib, 1024*kib),
		"1024 KiB more are wanted, and RLIMIT_MEMLOCK allows 64 KiB of locked memory, of which 32 are in use")
	require.Less(t, pinnedMemory(), uint64(1)<<40)
}
