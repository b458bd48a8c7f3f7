//go:build unix && !race

package iwarp

import (
	"os"

	"golang.org/x/sys/unix"
)

// Registered memory is mapped outside Go's heap. Little of it is ever touched where
// a connection is idle, but GOMEMLIMIT counts the heap's bytes whether they have
// been touched or not. Where the system allows no more mappings this fails with
// ENOMEM.
//
// With the race detector it is Go's, since the detector sees no other.
func allocate(size int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	keepSmall(b)
	return b, nil
}

// free gives memory back. Nobody may touch it any more: that is a fault of the
// process from now on.
func free(b []byte) error { return os.NewSyscallError("munmap", unix.Munmap(b)) }
