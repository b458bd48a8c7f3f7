//go:build windows || (unix && !linux && !darwin && !freebsd)

package iwarp

func (s *socket) unconfirmed() (some, known bool) { return false, false }
