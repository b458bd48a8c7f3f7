package iwarp

import "syscall"

// errHostDown is an errno that no call returns: WASI has none for a host that is
// down.
const errHostDown = syscall.Errno(1<<16 - 1)
