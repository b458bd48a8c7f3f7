package cm

import (
	"fmt"
	"strings"

	"github.com/hashicorp/go-multierror"
)

// A DialError holds the errors of several addresses, in the order in which they
// were tried. errors.Is and errors.As look into all of them.
type DialError struct {
	all *multierror.Error
}

func (e *DialError) Error() string { return e.all.Error() }

// Unwrap returns the chain of the errors.
func (e *DialError) Unwrap() error { return e.all.Unwrap() }

// WrappedErrors returns the errors, as those of go-multierror do.
func (e *DialError) WrappedErrors() []error { return e.all.WrappedErrors() }

// Timeout reports whether the attempt that ended the dial ran out of time.
func (e *DialError) Timeout() bool {
	t, ok := e.last().(interface{ Timeout() bool })
	return ok && t.Timeout()
}

// Temporary is that of the attempt that ended the dial.
func (e *DialError) Temporary() bool {
	t, ok := e.last().(interface{ Temporary() bool })
	return ok && t.Temporary()
}

func (e *DialError) last() error { return e.all.Errors[len(e.all.Errors)-1] }

// dialError makes one error of the errors of a dial: the only one as it is.
func dialError(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return &DialError{all: &multierror.Error{Errors: errs, ErrorFormat: listErrors}}
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
