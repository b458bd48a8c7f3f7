package cm

import (
	"fmt"
	"strings"

	"github.com/hashicorp/go-multierror"
)

// A DialError holds the errors of several addresses, in the order in which they
// were tried. errors.Is and errors.As look into all of them.
type DialError struct {
	all  *multierror.Error
	last int // the index of the one that failed last
}

func (e *DialError) Error() string { return e.all.Error() }

// Unwrap returns the chain of the errors.
func (e *DialError) Unwrap() error { return e.all.Unwrap() }

// WrappedErrors returns the errors, as those of go-multierror do.
func (e *DialError) WrappedErrors() []error { return e.all.WrappedErrors() }

// Last is the index of the error that ended the dial: the one that came last.
func (e *DialError) Last() int { return e.last }

// Timeout reports whether the attempt that ended the dial ran out of time.
func (e *DialError) Timeout() bool {
	t, ok := e.all.Errors[e.last].(interface{ Timeout() bool })
	return ok && t.Timeout()
}

// Temporary is that of the attempt that ended the dial.
func (e *DialError) Temporary() bool {
	t, ok := e.all.Errors[e.last].(interface{ Temporary() bool })
	return ok && t.Temporary()
}

// listErrors is the text of a DialError: one line, each address with its error.
func listErrors(errs []error) string {
	lines := make([]string, len(errs))
	for i, err := range errs {
		lines[i] = err.Error()
		if e, ok := err.(*StageError); ok && !e.Addr.IsZero() {
			lines[i] = e.Addr.String() + ": " + lines[i]
		}
	}
	return fmt.Sprintf("all %d addresses failed: %s", len(errs), strings.Join(lines, "; "))
}
