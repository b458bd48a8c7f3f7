//go:build linux && cgo

package rdmacore

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// memlockHint says that the limit of locked memory is why size bytes more could not
// be registered, if it is: the kernel gives ENOMEM for other reasons, too.
func memlockHint(code syscall.Errno, size int) string {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) != nil {
		return ""
	}
	return memlockReason(code, limit.Cur, pinnedMemory(), uint64(size))
}

// memlockReason is memlockHint in figures. The kernel says ENOMEM when limit is
// passed, and EPERM where it is 0; a process that has more than limit is one that
// it does not hold for.
func memlockReason(code syscall.Errno, limit, pinned, size uint64) string {
	page := uint64(os.Getpagesize())
	size = (size + page - 1) &^ (page - 1)
	switch {
	case code == syscall.EPERM && limit == 0:
	case code == syscall.ENOMEM && pinned <= limit && size > limit-pinned:
	default:
		return ""
	}
	return fmt.Sprintf("%d KiB more are wanted, and RLIMIT_MEMLOCK allows %d KiB of locked memory, of which %d are in use: see 'ulimit -l', or LimitMEMLOCK of systemd",
		size>>10, limit>>10, pinned>>10)
}

// pinnedMemory is how much memory the process has registered, as the kernel counts
// it; 0 if that cannot be told.
func pinnedMemory() uint64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte("\nVmPin:"))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, err := strconv.ParseUint(string(fields[0]), 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}
