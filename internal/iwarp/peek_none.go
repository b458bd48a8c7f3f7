//go:build !unix && !windows

package iwarp

import "net"

func peek(*net.TCPConn, []byte) (int, error) { return 0, socketsSupported() }
