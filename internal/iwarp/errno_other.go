//go:build !windows

package iwarp

// portableError gives an error of a socket the errno that package syscall has
// for it.
func portableError(err error) error { return err }
