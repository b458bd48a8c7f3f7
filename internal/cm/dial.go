package cm

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// A DialRequest says whom to dial and how.
type DialRequest struct {
	Network Network

	// Host is a host name or a numeric address, with its zone where it needs
	// one; empty, or an unspecified address, is this host. Network IB ignores
	// it.
	Host string
	// Service is a port's number or name; in network IB an InfiniBand service
	// name or ID.
	Service string
	Names   Names

	// Local is the address to dial from, which picks the device on a host with
	// several; zero leaves the choice to the connection manager. Network IB
	// needs one, to know the port on which to ask the subnet administrator.
	Local Addr

	// PlainAdvice is what a person can do about a server that speaks no RDMA. It
	// becomes the hint where the peer seems to be one; it may be empty.
	PlainAdvice string

	// NewEndpoint makes what a connection is for; it is called once for each
	// address that comes as far as the connect stage.
	NewEndpoint func() Endpoint

	Trace *Trace // may be nil
}

// Dial connects. The context bounds all of it: when it ends, Dial returns at
// once, whatever is going on, and what was begun is cleaned up behind it.
// Several addresses of one name are tried in order, and share the time.
//
// It fails with a *StageError, or with a *DialError if several addresses were
// tried. After it has returned a connection, the context means nothing to it.
func (m *Manager) Dial(ctx context.Context, r DialRequest) (*Connection, error) {
	targets, err := m.targets(ctx, &r)
	if err != nil {
		return nil, err
	}
	return m.dialSerial(ctx, &r, targets)
}

// targets are the addresses to dial.
func (m *Manager) targets(ctx context.Context, r *DialRequest) ([]target, error) {
	if r.Network == IB {
		return m.resolveService(ctx, r)
	}
	addrs, err := r.Names.resolve(ctx, r.Network, r.Host, r.Service, r.Trace)
	if err != nil {
		return nil, err
	}
	return r.reachable(addrs)
}

// dialSerial tries the targets one after the other, each for its share of the
// time that is left.
func (m *Manager) dialSerial(ctx context.Context, r *DialRequest, targets []target) (*Connection, error) {
	deadline, limited := ctx.Deadline()
	var errs []error
	for i, t := range targets {
		a, conn, err := m.dialOne(ctx, r, t, len(targets)-i)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil || limited && !time.Now().Before(deadline) {
			break
		}
		if isStage(err, StageOpen) {
			break // without a provider another address does not help
		}
		if i+1 < len(targets) && r.Local.IB == nil && r.Local.Port() != 0 {
			a.awaitGone(ctx)
		}
	}
	return nil, dialError(errs)
}

// portTries is how often a local port that the connection manager has chosen is
// given up because it turns out to be taken. An iWARP device that is Linux's siw
// has TCP's ports, and the connection manager, which chooses, does not know
// which of them TCP uses.
const portTries = 16

// dialOne tries one target, anew when the local port that was chosen for it is
// taken.
func (m *Manager) dialOne(ctx context.Context, r *DialRequest, t target, left int) (*attempt, *Connection, error) {
	for try := 1; ; try++ {
		a, stop := m.startAttempt(ctx, r, t, left)
		conn, err := a.dial()
		stop()
		chosen := r.Local.IB == nil && r.Local.Port() == 0
		if !chosen || !isStage(err, StageConnect) || !errors.Is(err, syscall.EADDRINUSE) || try == portTries || ctx.Err() != nil {
			return a, conn, err
		}
	}
}

// startAttempt is newAttempt with the share of the time of the first of so many
// targets.
func (m *Manager) startAttempt(ctx context.Context, r *DialRequest, t target, left int) (*attempt, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok || left == 1 {
		return m.newAttempt(ctx, r, t), func() {}
	}
	share, stop := context.WithDeadline(ctx, partialDeadline(time.Now(), deadline, left))
	return m.newAttempt(share, r, t), stop
}

// portRelease is how long the next address waits for an attempt that was given
// up to let go of the local port that both want.
const portRelease = time.Second

func (a *attempt) awaitGone(ctx context.Context) {
	t := time.NewTimer(portRelease)
	defer t.Stop()
	select {
	case <-a.gone:
	case <-t.C: // the next attempt says EADDRINUSE if that is so
	case <-ctx.Done():
	}
}

func isStage(err error, stage Stage) bool {
	var e *StageError
	return errors.As(err, &e) && e.Stage == stage
}
