//go:build race

package iwarp

// raceEnabled says that the race detector watches. golang.org/x/sys tells it that
// what came before a Writev comes before what follows the Read of it, which two
// ends in one process depend on; of sendmsg it does not.
const raceEnabled = true
