//go:build !unix && !windows

package iwarp

import "syscall"

func peek(syscall.Conn, []byte) (int, error) { return 0, socketsSupported() }
