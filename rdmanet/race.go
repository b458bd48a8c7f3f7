package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/hashicorp/go-multierror"
)

// defaultFallbackDelay is that of package net (RFC 8305).
const defaultFallbackDelay = 300 * time.Millisecond

// deafTime is how long runners have to return when the context has ended. Ours
// return at once; a Dialer.Fallback may not.
const deafTime = 5 * time.Millisecond

// errUnavailable marks the error of a provider that this machine does not have.
var errUnavailable = errors.New("provider unavailable")

// A runner is one way to make a connection.
type runner struct {
	name string
	dial func(context.Context) (net.Conn, error)
}

// race lets the runners dial, in their order: the next begins at once when one
// has failed, and after delay when the last to begin has not answered; never, if
// delay is negative, before that one has. The first to connect wins. The others
// are cancelled, and a connection that one of them makes all the same is closed.
//
//	       begin the first
//	              │
//	┌─────▶ wait for any of
//	│             ├─ a connection ─▶ cancel the others, return it
//	│             ├─ a failure ────▶ begin the next; if there is none, and
//	│             │                  nobody runs, return all errors
//	│             ├─ delay ────────▶ begin the next
//	│             └─ the context ──▶ the runners fail by it, at once
//	└─────────────┘
//
// A single runner runs in the caller's goroutine, and its error is its own.
func race(ctx context.Context, delay time.Duration, runners []runner) (net.Conn, error) {
	if len(runners) == 1 {
		return runners[0].dial(ctx)
	}
	if delay == 0 {
		delay = defaultFallbackDelay
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	type result struct {
		i    int
		conn net.Conn
		err  error
	}
	results := make(chan result)
	won := make(chan struct{})
	defer close(won)
	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()

	begun, running := 0, 0
	begin := func() {
		i := begun
		begun++
		running++
		go func() {
			conn, err := runners[i].dial(ctx)
			select {
			case results <- result{i, conn, err}:
			case <-won:
				if err == nil {
					conn.Close()
				}
			}
		}()
		if delay > 0 && begun < len(runners) {
			timer.Reset(delay)
		}
	}
	begin()
	errs := make([]error, len(runners))
	var failed []int // in the order in which they failed
	ended := ctx.Done()
	for {
		select {
		case <-ended:
			ended = nil
			timer.Reset(deafTime)
		case r := <-results:
			if r.err == nil {
				return r.conn, nil
			}
			running--
			errs[r.i] = r.err
			failed = append(failed, r.i)
			switch {
			case begun < len(runners) && ended != nil && ctx.Err() == nil:
				timer.Stop()
				begin()
			case running == 0:
				if begun < len(runners) {
					errs[begun] = ctx.Err() // why it was not begun
					failed = append(failed, begun)
				}
				return nil, raceError(runners, errs, failed)
			}
		case <-timer.C:
			if ended != nil {
				begin()
				continue
			}
			for i := range begun {
				if errs[i] == nil {
					errs[i] = ctx.Err()
					failed = append(failed, i)
				}
			}
			return nil, raceError(runners, errs, failed)
		}
	}
}

// raceError makes one error of those of the runners, each with its runner's
// name. failed is the order in which they came. That a provider is not to be had
// counts only if there is nothing else.
func raceError(runners []runner, errs []error, failed []int) error {
	all := &multierror.Error{ErrorFormat: listRunners}
	var last int
	for _, unavailable := range []bool{false, true} {
		when := -1
		for i, err := range errs {
			if err == nil || errors.Is(err, errUnavailable) != unavailable {
				continue
			}
			if at := slices.Index(failed, i); at > when {
				when, last = at, len(all.Errors)
			}
			all.Errors = append(all.Errors, &runnerError{runners[i].name, err})
		}
		if len(all.Errors) > 0 {
			break
		}
	}
	if len(all.Errors) == 1 {
		return errors.Unwrap(all.Errors[0])
	}
	return &multiError{all, last}
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
