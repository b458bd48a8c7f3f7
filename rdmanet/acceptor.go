package rdmanet

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// An acceptor is where a Listener's connections come from: one *cm.Listener, or
// several as one.
type acceptor interface {
	Accept() (*cm.Connection, error)
	SetDeadline(time.Time) error
	Close() error
	Addr() netip.AddrPort
}

// merged is several listeners as one. A goroutine for each takes the connections
// out of it and hands them over, one at a time, so that each keeps its backlog.
//
//	listener ─▶ pump ─┐
//	listener ─▶ pump ─┴▶ conns, errs ─▶ Accept
//
// A listener whose device has gone ends alone, and Accept says so once, by a temporary
// error; that of the last one ends them all.
type merged struct {
	parts    []*cm.Listener
	addr     netip.AddrPort
	conns    chan *cm.Connection
	errs     chan error // temporary ones
	broken   chan error // the last part's last word; holds one
	closed   chan struct{}
	close    sync.Once
	pumps    sync.WaitGroup
	deadline cm.Deadline

	mu    sync.Mutex
	alive int
}

// merge makes one acceptor of listeners; addr is what it calls its address.
func merge(addr netip.AddrPort, parts ...*cm.Listener) acceptor {
	if len(parts) == 1 {
		return parts[0]
	}
	m := &merged{
		parts: parts, addr: addr, alive: len(parts),
		conns: make(chan *cm.Connection), errs: make(chan error),
		broken: make(chan error, 1), closed: make(chan struct{}),
	}
	for _, part := range parts {
		m.pumps.Go(func() { m.pump(part) })
	}
	return m
}

// pump hands over what one listener accepts.
func (m *merged) pump(part *cm.Listener) {
	for {
		c, err := part.Accept()
		switch {
		case err == nil:
			select {
			case m.conns <- c:
			case <-m.closed:
				go c.Discard()
				return
			}
		case errors.Is(err, net.ErrClosed):
			return
		case isTemporary(err):
			select {
			case m.errs <- err:
			case <-m.closed:
				return
			}
		default:
			m.mu.Lock()
			m.alive--
			last := m.alive == 0
			m.mu.Unlock()
			if last {
				m.broken <- err
				return
			}
			select {
			case m.errs <- &partError{err}:
			case <-m.closed:
			}
			return
		}
	}
}

// Accept is as cm.Listener's.
func (m *merged) Accept() (*cm.Connection, error) {
	expired := m.deadline.Wait()
	select {
	case <-m.closed:
		return nil, net.ErrClosed
	case <-expired:
		return nil, os.ErrDeadlineExceeded
	default:
	}
	select {
	case c := <-m.conns:
		return c, nil
	case err := <-m.errs:
		return nil, err
	case err := <-m.broken:
		m.broken <- err // for the next one, too
		return nil, err
	case <-m.closed:
		return nil, net.ErrClosed
	case <-expired:
		return nil, os.ErrDeadlineExceeded
	}
}

// SetDeadline is as cm.Listener's.
func (m *merged) SetDeadline(t time.Time) error {
	select {
	case <-m.closed:
		return net.ErrClosed
	default:
	}
	m.deadline.Set(t)
	return nil
}

// Close closes all parts, at once, and takes no longer than one.
func (m *merged) Close() error {
	err := net.ErrClosed
	m.close.Do(func() {
		close(m.closed)
		m.deadline.Set(time.Time{})
		var wg sync.WaitGroup
		for _, part := range m.parts {
			wg.Go(func() { part.Close() })
		}
		wg.Wait()
		m.pumps.Wait()
		err = nil
	})
	return err
}

// Addr is the address that was listened on.
func (m *merged) Addr() netip.AddrPort { return m.addr }

// A partError is why one of several listeners has ended. The others go on, so it is
// temporary.
type partError struct{ error }

func (e *partError) Error() string {
	return e.error.Error() + "; peers are still accepted otherwise"
}
func (e *partError) Unwrap() error   { return e.error }
func (e *partError) Timeout() bool   { return false }
func (e *partError) Temporary() bool { return true }
