//go:build unix && !linux

package iwarp

const recordFlag = 0

func (s *socket) unsent() bool       { return false }
func (s *socket) acknowledged() bool { return false }
