//go:build unix && !linux

package iwarp

import (
	"os"
	"time"
)

// fileOf makes a file of a connection, also if it fails.
func fileOf(conn tcpConn) (*os.File, error) {
	defer conn.Close() // what it holds lives on in the duplicate
	return conn.(netConn).File()
}

const recordFlag = 0

func (s *socket) unsent() bool       { return false }
func (s *socket) acknowledged() bool { return false }

func (s *socket) silence() (time.Duration, bool) { return 0, false }
