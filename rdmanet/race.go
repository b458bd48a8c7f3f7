package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/hashicorp/go-multierror"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// errUnavailable marks the error of a provider that this machine does not have.
var errUnavailable = errors.New("provider unavailable")

// A runner is one way to make a connection.
type runner struct {
	name string
	dial func(context.Context) (net.Conn, error)
}

// ways are the runners for cm.Race.
func ways(runners []runner) []cm.Way[net.Conn] {
	var ways []cm.Way[net.Conn]
	for _, r := range runners {
		ways = append(ways, r.dial)
	}
	return ways
}

// discardConn closes a connection that has lost.
func discardConn(c net.Conn) { _ = c.Close() } // nobody wants to know

// raceError makes one error of those of the runners, each with its runner's
// name. failed is the order in which they came. That a provider is not to be had
// counts only if there is nothing else.
func raceError(runners []runner, failed []cm.Failure) error {
	counts := slices.DeleteFunc(slices.Clone(failed), func(f cm.Failure) bool { return errors.Is(f.Err, errUnavailable) })
	if len(counts) == 0 {
		counts = slices.Clone(failed)
	}
	last := counts[len(counts)-1].Way
	slices.SortFunc(counts, func(a, b cm.Failure) int { return a.Way - b.Way })
	if len(counts) == 1 {
		return counts[0].Err
	}
	e := &multiError{all: &multierror.Error{ErrorFormat: listRunners}}
	for i, f := range counts {
		if f.Way == last {
			e.last = i
		}
		e.all.Errors = append(e.all.Errors, &runnerError{runners[f.Way].name, f.Err})
	}
	return e
}

// A runnerError says whose error it is.
type runnerError struct {
	name string
	err  error
}

func (e *runnerError) Error() string   { return e.name + ": " + e.err.Error() }
func (e *runnerError) Unwrap() error   { return e.err }
func (e *runnerError) Timeout() bool   { return isTimeout(e.err) }
func (e *runnerError) Temporary() bool { return isTemporary(e.err) }

func listRunners(errs []error) string {
	s := fmt.Sprintf("all %d ways failed", len(errs))
	for i, err := range errs {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		s += sep + err.Error()
	}
	return s
}
