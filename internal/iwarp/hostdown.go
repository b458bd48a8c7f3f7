//go:build !wasip1

package iwarp

import "syscall"

const errHostDown = syscall.EHOSTDOWN
