package cm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// Stage is a step of the dial or the accept sequence.
type Stage uint8

// The stages. The first five are those of a dial, in order.
const (
	StageOpen     Stage = iota + 1 // making an identifier
	StageAddrInfo                  // names and services to addresses
	StageAddr                      // address to device
	StageRoute                     // device to path
	StageConnect                   // queue pair, request, answer
	StageBind                      // a listener's address
	StageListen                    // a listener
	StageAccept                    // a peer's handshake with a listener
)

var stageNames = [...]string{
	StageOpen: "open", StageAddrInfo: "resolve addrinfo", StageAddr: "resolve address",
	StageRoute: "resolve route", StageConnect: "connect",
	StageBind: "bind", StageListen: "listen", StageAccept: "handshake",
}

func (s Stage) String() string {
	if int(s) < len(stageNames) && stageNames[s] != "" {
		return stageNames[s]
	}
	return fmt.Sprintf("stage %d", uint8(s))
}

// callLookup is the Call of what Go's resolver does.
const callLookup = "lookup"

// A StageError says at which stage a dial or an accept failed and why. What can
// be told from it with errors.Is and errors.As:
//
//   - a refusal, by whatever event, status or call: syscall.ECONNREFUSED
//   - one that may pass (a stale connection, no resources at the peer):
//     syscall.EAGAIN, Temporary is true
//   - nobody answers: syscall.ETIMEDOUT, Timeout is true
//   - no device there, or it has gone: syscall.ENODEV
//   - an answer that makes no sense, an event that does not belong: syscall.EPROTO
//   - the context has expired: context.DeadlineExceeded, Timeout is true
//   - the context was cancelled: context.Canceled, Timeout is false
//   - in both cases context.Cause of it
//   - a name that does not resolve: *net.DNSError
//   - otherwise the syscall.Errno of the call or of the event's status
//   - whatever the provider's own error holds.
type StageError struct {
	Stage   Stage
	Call    string // the call's name in librdmacm, or "lookup"
	Addr    Addr   // the address that was dialed; zero where there is none yet
	Attempt int    // from 0, within the stage

	Event  EventType     // the event that ended it; None if the call failed or time did
	Status int           // that event's status
	Errno  syscall.Errno // what it stands for; 0 if no errno does

	Err  error  // the cause, which holds Errno
	Hint string // what a person can do; may be empty
}

// Error names the stage, the cause, what the event said, and what to do.
func (e *StageError) Error() string {
	if e.Call == callLookup {
		return e.Err.Error() // the resolver's errors begin with "lookup"
	}
	var notes []string
	if e.Event != None {
		notes = append(notes, eventNote(e.Event, e.Status))
	}
	if e.Attempt > 0 {
		notes = append(notes, fmt.Sprintf("attempt %d", e.Attempt+1))
	}
	if e.Hint != "" {
		notes = append(notes, e.Hint)
	}
	// An error of a call begins with the call's name, which Call has, or says
	// the same as the stage.
	stage := e.Stage.String() + ": "
	s := stage + strings.TrimPrefix(strings.TrimPrefix(e.Err.Error(), e.Call+": "), stage)
	if len(notes) > 0 {
		s += " (" + strings.Join(notes, "; ") + ")"
	}
	return s
}

// Unwrap returns the cause.
func (e *StageError) Unwrap() error { return e.Err }

// Timeout reports whether time has run out: the caller's or the protocol's.
func (e *StageError) Timeout() bool {
	if e.Errno != 0 {
		return e.Errno == syscall.ETIMEDOUT
	}
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// Temporary reports whether the same may succeed later: a time-out, or
// resources that were exhausted.
func (e *StageError) Temporary() bool {
	if e.Errno != 0 {
		return e.Errno == syscall.ETIMEDOUT || e.exhausted()
	}
	var t interface{ Temporary() bool }
	return errors.As(e.Err, &t) && t.Temporary()
}

// exhausted reports whether this host has run out of something: descriptors,
// memory, queue pairs, memory that may be locked. The kernel says EPERM where no
// memory at all may be locked, to the memory that comes with a queue pair; of
// other calls it is a refusal.
func (e *StageError) exhausted() bool {
	return exhausted(e.Errno) || e.Errno == syscall.EPERM && e.Call == callCreateQP
}

func exhausted(errno syscall.Errno) bool {
	switch errno {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.ENOSPC, syscall.EAGAIN:
		return true
	}
	return false
}

// ErrNotRDMA is in a provider's error about a peer whose answer, or silence, to a
// connect request is that of a server that speaks no RDMA.
var ErrNotRDMA = errors.New("it seems to speak no RDMA")

// errnoOf is the errno that an error holds, or 0.
func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return 0
}

// A contextError is the end of a context, with its cause, in package net's
// words.
type contextError struct {
	err   error // ctx.Err()
	cause error // context.Cause(ctx)
}

func newContextError(ctx context.Context) *contextError {
	return &contextError{err: ctx.Err(), cause: context.Cause(ctx)}
}

func (e *contextError) Error() string {
	s := "operation was canceled"
	if e.Timeout() {
		s = "i/o timeout"
	}
	if e.cause != nil && e.cause != e.err {
		s += ": " + e.cause.Error()
	}
	return s
}

func (e *contextError) Unwrap() []error { return []error{e.err, e.cause} }

// Timeout is about the context only: a cancellation whose cause is a time-out
// of something else stays a cancellation.
func (e *contextError) Timeout() bool   { return e.err == context.DeadlineExceeded }
func (e *contextError) Temporary() bool { return e.Timeout() }

// A guardError is the end of a wait that should have ended by itself.
type guardError struct{ after time.Duration }

func (e *guardError) Error() string {
	return fmt.Sprintf("no answer from the connection manager within %v", e.after)
}
func (e *guardError) Unwrap() error { return syscall.ETIMEDOUT }

// An unexpectedEvent is an event that makes no sense at its stage.
type unexpectedEvent struct{ got, want EventType }

func (e *unexpectedEvent) Error() string {
	return fmt.Sprintf("unexpected event %v instead of %v", e.got, e.want)
}
func (e *unexpectedEvent) Unwrap() error { return syscall.EPROTO }
