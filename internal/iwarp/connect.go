package iwarp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// Connect begins the connect stage: TCP, then MPA, then the queue pair has its
// wire. How it ends, and with what event and status:
//
//	Established                  the peer accepted
//	Rejected     -ECONNREFUSED   nobody listens
//	             -ECONNRESET     the peer rejected, perhaps with private data,
//	                             or closed the connection before it answered
//	Unreachable  -ETIMEDOUT      no TCP connection, or no answer, in time
//	             -EHOSTUNREACH   and other errnos of the network
//	ConnectError -EPROTO         the peer is no MPA responder, or wants what
//	                             is not supported
//	             others          errnos of this host
//
// The time of TCP is the kernel's, minutes: the caller has a timer of its own,
// and Interrupt.
func (i *identifier) Connect(p cm.ConnParam) error {
	req, err := i.connectRequest(&p)
	if err == nil {
		i.work.Go(func() { i.connectAndTell(&req, &p) })
	}
	return err
}

// ConnectWait is Connect, but returns when the event has been delivered.
func (i *identifier) ConnectWait(p cm.ConnParam) error {
	req, err := i.connectRequest(&p)
	if err == nil {
		i.connectAndTell(&req, &p)
	}
	return err
}

func (i *identifier) connectRequest(p *cm.ConnParam) (setupFrame, error) {
	if i.qp == nil || !i.RemoteAddr().IsValid() {
		return setupFrame{}, fmt.Errorf("the identifier has no queue pair or no address: %w", syscall.EINVAL)
	}
	return request(&i.nic.cfg, p)
}

func (i *identifier) connectAndTell(req *setupFrame, p *cm.ConnParam) {
	if ev := i.connect(req, p); ev.Type != cm.None {
		i.Deliver(ev)
	}
}

// connect returns the event by which it failed; that of success has been
// delivered.
func (i *identifier) connect(req *setupFrame, p *cm.ConnParam) cm.Event {
	conn, err := dialTCP(i.ctx, i.src, i.RemoteAddr(), i.keepAlive())
	if err != nil {
		return dialFailed(plainError(err))
	}
	// The set-up ends with Interrupt, whose deadline must be the last to be set.
	if err := conn.SetDeadline(time.Now().Add(i.nic.cfg.ReplyTimeout)); err != nil {
		conn.Close()
		return connectError(err)
	}
	i.connected.Store(true)
	stop := context.AfterFunc(i.ctx, func() { _ = conn.SetDeadline(longAgo) })
	rep, surplus, err := i.exchange(conn, req)
	if !stop() && err == nil {
		err = context.Canceled
	}
	if err != nil {
		conn.Close()
		return setupFailed(err)
	}
	if rep.reject {
		conn.Close()
		return cm.Event{Type: cm.Rejected, Status: -int(syscall.ECONNRESET), Param: eventParam(&rep), Err: errRejected}
	}
	a, err := agree(&i.nic.cfg, req, &rep, p)
	if err != nil {
		conn.Close()
		return connectError(err)
	}
	i.setAddrs(addrPort(conn.LocalAddr()), addrPort(conn.RemoteAddr()))
	w, err := newSocket(conn)
	if err != nil {
		return connectError(err)
	}
	if err := i.qp.start(w, a, surplus, cm.Event{Type: cm.Established, Param: eventParam(&rep)}); err != nil {
		_ = w.close() // the error before is the one that counts
		return connectError(err)
	}
	return cm.Event{}
}

// exchange sends the request and reads the reply, within the connection's deadline.
func (i *identifier) exchange(conn net.Conn, req *setupFrame) (setupFrame, []byte, error) {
	if err := writeSetup(conn, requestKey, req, 0); err != nil {
		return setupFrame{}, nil, plainError(err)
	}
	rep, surplus, err := readSetup(conn, replyKey, 0)
	if err != nil {
		err = plainError(err)
	}
	return rep, surplus, err
}

// TCPConnected reports whether Connect has its TCP connection.
func (i *identifier) TCPConnected() bool { return i.connected.Load() }

// Why a set-up came to no agreement, where the peer is a server of another kind
// perhaps.
var (
	errNoAnswer = fmt.Errorf("the peer took the TCP connection and did not answer the connect request: %w", cm.ErrNotRDMA)
	errNoReply  = fmt.Errorf("the peer closed the TCP connection without an answer to the connect request: %w", cm.ErrNotRDMA)
	errHalf     = fmt.Errorf("the peer closed the TCP connection in the middle of its answer: %w", syscall.EPROTO)
	errRejected = errors.New("the peer rejected the connect request")
)

// dialFailed is the event for a TCP connection that did not come to be.
func dialFailed(err error) cm.Event {
	errno := errnoOf(err, syscall.EIO)
	switch {
	case isTimeout(err):
		errno = syscall.ETIMEDOUT
	case errno == syscall.ECONNRESET, errno == syscall.ENOTCONN:
		return setupFailed(io.EOF) // it was there, and has been closed already
	}
	ev := cm.Event{Type: cm.ConnectError, Status: -int(errno), Err: err}
	switch errno {
	case syscall.ECONNREFUSED:
		ev.Type = cm.Rejected
	case syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, errHostDown, syscall.ENETDOWN:
		ev.Type = cm.Unreachable
	}
	return ev
}

// setupFailed is the event for a set-up that did not come to an answer.
func setupFailed(err error) cm.Event {
	switch {
	case isTimeout(err):
		return cm.Event{Type: cm.Unreachable, Status: -int(syscall.ETIMEDOUT), Err: errNoAnswer}
	case err == io.EOF, errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return cm.Event{Type: cm.Rejected, Status: -int(syscall.ECONNRESET), Err: errNoReply}
	case err == io.ErrUnexpectedEOF:
		err = errHalf
	}
	return connectError(err)
}

func connectError(err error) cm.Event {
	return cm.Event{Type: cm.ConnectError, Status: -int(errnoOf(err, syscall.EPROTO)), Err: err}
}
