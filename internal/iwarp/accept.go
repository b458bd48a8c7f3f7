package iwarp

import (
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// A connectRequest is a peer that waits for an answer.
type connectRequest struct {
	listener *listener
	conn     tcpConn
	frame    setupFrame
	plain    net.Conn // in place of both, of a peer that speaks no MPA
	once     sync.Once
}

// take makes the answer: it is decided from here on.
func (r *connectRequest) take() { r.once.Do(r.listener.decide) }

// drop refuses the peer without a word.
func (r *connectRequest) drop() {
	r.take()
	r.close()
}

func (r *connectRequest) close() {
	if r.plain != nil {
		r.plain.Close()
	} else {
		r.conn.Close()
	}
}

// Accept answers the peer's request. The answer is what establishes the
// connection for this side; the peer is then heard, and answered to, when its
// first frame has come.
func (i *identifier) Accept(p cm.ConnParam) error {
	if i.request == nil || i.request.plain != nil || i.qp == nil {
		return fmt.Errorf("the identifier has no connect request or no queue pair: %w", syscall.EINVAL)
	}
	cfg := &i.nic.cfg
	r := i.request
	rep, a, err := reply(cfg, &r.frame, &p)
	if err != nil {
		return err
	}
	i.request = nil
	r.take()
	if err := writeSetup(r.conn, replyKey, &rep, cfg.RequestTimeout); err != nil {
		r.conn.Close()
		return plainError(err)
	}
	w, err := newSocket(r.conn)
	if err != nil {
		return err
	}
	if err := i.qp.start(w, a, nil, cm.Event{Type: cm.Established}); err != nil {
		_ = w.close() // the error before is the one that counts
		return err
	}
	return nil
}

// AcceptPlain hands over the TCP connection of a peer that speaks no MPA, from
// which nothing has been read.
func (i *identifier) AcceptPlain() (net.Conn, error) {
	if i.request == nil || i.request.plain == nil {
		return nil, fmt.Errorf("the identifier has no connection that is not RDMA's: %w", syscall.EINVAL)
	}
	r := i.request
	i.request = nil
	r.take()
	if err := r.plain.SetDeadline(time.Time{}); err != nil { // that of the set-up
		r.plain.Close()
		return nil, plainError(err)
	}
	return r.plain, nil
}

// Reject refuses the peer. One that speaks no MPA would not understand an answer:
// its connection is closed.
func (i *identifier) Reject(privateData []byte) error {
	if i.request == nil {
		return fmt.Errorf("the identifier has no connect request: %w", syscall.EINVAL)
	}
	r := i.request
	if r.plain != nil {
		i.request = nil
		r.drop()
		return nil
	}
	rej, err := rejection(&r.frame, privateData)
	if err != nil {
		return err
	}
	i.request = nil
	r.take()
	err = writeSetup(r.conn, replyKey, &rej, i.nic.cfg.RequestTimeout)
	i.nic.closeBehind(r.conn)
	if err != nil {
		return plainError(err)
	}
	return nil
}
