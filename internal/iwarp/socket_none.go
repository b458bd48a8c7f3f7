//go:build !unix && !windows

package iwarp

import (
	"errors"
	"fmt"
	"runtime"
)

func socketsSupported() error {
	return fmt.Errorf("iwarp: the software RDMA NIC does not run on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func newSocket(conn tcpConn) (wire, error) { return nil, socketsSupported() }
