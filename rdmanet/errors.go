package rdmanet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"

	"github.com/hashicorp/go-multierror"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// The operations in the Op of a *net.OpError. Programs look for some of them:
// net/http for "read".
const (
	opDial   = "dial"
	opListen = "listen"
	opAccept = "accept"
	opRead   = "read"
	opWrite  = "write"
	opClose  = "close"
	opSet    = "set"
)

// netName is the Net of every *net.OpError.
const netName = "rdma"

// Stage is a step of a dial, or of accepting a peer, by its short name.
type Stage string

// The stages of a dial, in order, and those of a listener.
const (
	StageOpen     Stage = "open"     // making an identifier of the connection manager
	StageAddrInfo Stage = "addrinfo" // names and services to addresses
	StageAddr     Stage = "addr"     // address to device: rdma_resolve_addr(3)
	StageRoute    Stage = "route"    // device to path: rdma_resolve_route(3)
	StageConnect  Stage = "connect"  // rdma_connect(3) and the peer's answer

	StageBind      Stage = "bind"      // rdma_bind_addr(3)
	StageListen    Stage = "listen"    // rdma_listen(3)
	StageHandshake Stage = "handshake" // rdma_accept(3) of a peer
)

var stages = map[cm.Stage]Stage{
	cm.StageOpen: StageOpen, cm.StageAddrInfo: StageAddrInfo, cm.StageAddr: StageAddr,
	cm.StageRoute: StageRoute, cm.StageConnect: StageConnect,
	cm.StageBind: StageBind, cm.StageListen: StageListen, cm.StageAccept: StageHandshake,
}

// A StageError tells at which stage a dial or a listener failed, and why. It is
// found in a *net.OpError by errors.As. By errors.Is it is
//
//   - syscall.ECONNREFUSED if the peer refused, or nobody listens there;
//   - syscall.ETIMEDOUT if the peer does not answer, with Timeout true;
//   - syscall.ENODEV if there is no device, or it has gone;
//   - context.DeadlineExceeded if time was up, with Timeout true;
//   - context.Canceled if the context was cancelled;
//   - otherwise the errno of the call or of the event.
type StageError struct {
	Stage   Stage
	Call    string        // what was called, such as "rdma_resolve_route", or "lookup" for a name
	Addr    net.Addr      // the address that was dialed or listened on; nil before there is one
	Attempt int           // from 0: how often the stage was tried before
	Event   string        // the event that ended it, such as "REJECTED"; "" if none did
	Status  int           // the status of that event, see rdma_get_cm_event(3)
	Errno   syscall.Errno // what it stands for; 0 if that is no errno

	inner *cm.StageError
}

// Error names the stage and the cause, and where it is known what to do.
func (e *StageError) Error() string { return e.inner.Error() }

// Unwrap returns the cause.
func (e *StageError) Unwrap() error { return e.inner.Unwrap() }

// Timeout reports whether time was up, for the caller or for the protocol.
func (e *StageError) Timeout() bool { return e.inner.Timeout() }

// Temporary reports whether the same may succeed later.
func (e *StageError) Temporary() bool { return e.inner.Temporary() }

// A multiError holds the errors of several addresses, or ways, in the order in
// which they were tried. net.OpError asks the error that it holds, and no deeper
// one, for Timeout and Temporary: both are those of the attempt that ended the
// dial.
type multiError struct {
	all  *multierror.Error
	last int // the index of that attempt's
}

func (e *multiError) Error() string   { return e.all.Error() }
func (e *multiError) Timeout() bool   { return isTimeout(e.all.Errors[e.last]) }
func (e *multiError) Temporary() bool { return isTemporary(e.all.Errors[e.last]) }

// Unwrap returns all the errors, for errors.Is and errors.As.
func (e *multiError) Unwrap() []error { return e.all.Errors }

func isTimeout(err error) bool {
	t, ok := err.(interface{ Timeout() bool })
	return ok && t.Timeout()
}

func isTemporary(err error) bool {
	t, ok := err.(interface{ Temporary() bool })
	return ok && t.Temporary()
}

// publicError gives the connection manager's errors their public form, also
// those that others of this package hold.
func publicError(err error) error {
	switch err := err.(type) {
	case *cm.StageError:
		e := &StageError{
			Stage: stages[err.Stage], Call: err.Call, Addr: publicAddr(err.Addr), Attempt: err.Attempt,
			Status: err.Status, Errno: err.Errno, inner: err,
		}
		if err.Event != cm.None {
			e.Event = err.Event.String()
		}
		return e
	case *cm.DialError:
		all := err.WrappedErrors()
		return publicErrors(all, len(all)-1, func([]error) string { return err.Error() })
	case *multiError:
		return publicErrors(err.all.Errors, err.last, err.all.ErrorFormat)
	case *runnerError:
		return &runnerError{err.name, publicError(err.err)}
	}
	return err
}

func publicErrors(errs []error, last int, format multierror.ErrorFormatFunc) error {
	all := &multierror.Error{ErrorFormat: format}
	for _, err := range errs {
		all.Errors = append(all.Errors, publicError(err))
	}
	return &multiError{all, last}
}

// errorAddr is the address of a dial's or a listener's *net.OpError: the one
// that failed last, or the one that was asked for if that is a number.
func errorAddr(err error, address string) net.Addr {
	if many := (*cm.DialError)(nil); errors.As(err, &many) {
		all := many.WrappedErrors()
		return errorAddr(all[len(all)-1], address)
	}
	if stage := (*cm.StageError)(nil); errors.As(err, &stage) {
		if a := publicAddr(stage.Addr); a != nil {
			return a
		}
	}
	if ap, err := netip.ParseAddrPort(address); err == nil {
		return addrOf(ap)
	}
	return nil
}

// wrap makes the error of an operation on a connection. The end of the stream
// stays as it is.
func (c *Conn) wrap(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: netName, Source: c.local, Addr: c.remote, Err: err}
}

// deviceRemoved is why a connection ends when its device goes away.
func deviceRemoved(device string) error {
	return fmt.Errorf("the RDMA device %s was removed: %w", device, syscall.ENODEV)
}
