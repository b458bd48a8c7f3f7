//go:build !race

package iwarp

import "golang.org/x/sys/unix"

// keepSmall keeps huge pages away. Linux joins mappings that lie side by side, and the
// first byte of one connection would take two megabytes, of others' memory too.
func keepSmall(b []byte) {
	_ = unix.Madvise(b, unix.MADV_NOHUGEPAGE) // a kernel without huge pages refuses it
}
