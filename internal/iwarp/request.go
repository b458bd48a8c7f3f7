package iwarp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// Why a peer was not served, beside what is wrong with its request.
var (
	errEvicted    = errors.New("the peer sent no connect request, with others waiting")
	errNoRequest  = errors.New("the peer did not send its connect request in time")
	errNothing    = errors.New("the peer closed the connection without a connect request")
	errPart       = errors.New("the peer sent no connect request, it closed the connection in the middle of one")
	errNotRequest = errors.New("the peer sent something that is no connect request")
)

// serve reads a connection's request and delivers it, or finds out that there is
// none that can be served. Then the listener's owner is told, once.
func (l *listener) serve(conn tcpConn) {
	plain, frame, err := l.request(conn)
	err = l.leave(conn, err)
	if err == nil && !plain {
		if err = refusal(&frame); err != nil {
			l.reject(conn, &frame)
			l.refuse(conn, err)
			return
		}
	}
	r := &connectRequest{listener: l, conn: conn, frame: frame}
	if err == nil && plain {
		r.plain, err = l.takePlain(conn)
	}
	if err != nil {
		conn.Close() // a peer that does not speak MPA is owed no answer
		l.refuse(conn, err)
		return
	}
	if !l.turn() {
		r.close()
		return
	}
	child := l.id.nic.newIdentifier()
	child.bound = true
	child.request = r
	child.setAddrs(addrPort(conn.LocalAddr()), addrPort(conn.RemoteAddr()))
	ev := cm.Event{Type: cm.ConnectRequest, Request: child, Plain: plain}
	if !plain {
		ev.Param = eventParam(&frame)
	}
	if !l.id.Deliver(ev) {
		_ = child.Destroy() // nobody takes it
	}
}

// takePlain makes the connection of a peer that speaks no MPA one of package net's,
// early: of one that the peer has reset, package net would not learn the address.
func (l *listener) takePlain(conn tcpConn) (net.Conn, error) {
	plain, err := conn.plain()
	for err != nil && l.makeRoom(err) { // it needs a descriptor more, for a moment
		plain, err = conn.plain()
	}
	if scarce(err) {
		l.fail(plainError(err))
	}
	return plain, err
}

// request reads a connection's request, or finds that its peer speaks no MPA.
func (l *listener) request(conn tcpConn) (plain bool, req setupFrame, err error) {
	if l.plain {
		if plain, err = l.speaksPlain(conn); plain || err != nil {
			return plain, req, err
		}
	}
	req, surplus, err := readSetup(conn, requestKey, 0)
	switch {
	case errors.Is(err, syscall.EPROTO):
		err = fmt.Errorf("%w: %w", errNotRequest, err)
	case err == nil && len(surplus) > 0:
		err = setupError("the peer sent frames before the reply")
	case err == nil && req.reject:
		err = setupError("the peer sent a request that rejects")
	}
	return false, req, err
}

// reject tells a peer that its request cannot be served, if its revision of MPA is one
// in which that can be said.
func (l *listener) reject(conn tcpConn, req *setupFrame) {
	cfg := &l.id.nic.cfg
	if rej, err := rejection(req, nil); req.revision <= 2 && err == nil {
		_ = writeSetup(conn, replyKey, &rej, cfg.RequestTimeout) // it finds out by the end
	}
	l.id.nic.closeBehind(conn)
}

// refuse tells of a peer that was not served, unless the listener is closed.
func (l *listener) refuse(conn tcpConn, err error) {
	switch {
	case err == net.ErrClosed:
		return
	case isTimeout(err):
		err = errNoRequest
	case err == io.EOF, errors.Is(err, syscall.ECONNRESET):
		err = errNothing
	case err == io.ErrUnexpectedEOF:
		err = errPart
	}
	if refused := l.id.requests.refused; refused != nil {
		refused(addrPort(conn.RemoteAddr()), err)
	}
}
