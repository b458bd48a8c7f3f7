package iwarp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// A listener accepts TCP connections, and makes a ConnectRequest of each whose
// peer sends a connect request in time.
//
//	accept loop ──▶ pending: a goroutine each ──▶ ConnectRequest ──▶ Accept, Reject
//	  │               reads the request, bounded     │                or Destroy of
//	  │               by RequestTimeout              │                the identifier
//	  │               and in number                  │
//	  └── stops while so many requests are undecided ┘
//
// Peers that connect and say nothing cost one goroutine and one socket each,
// for the RequestTimeout at the longest. When there are too many of them the
// oldest has to go, once it has had some time to speak: whoever speaks at once
// gets through. The undecided ones are the user's to decide; those behind them
// wait in the kernel's backlog. Peers that speak no MPA go the same way, where they
// are served: what they say first stands for the request.
type listener struct {
	id      *identifier
	tcp     tcpListener
	backlog int
	plain   bool // serves peers that speak no MPA, too

	mu        sync.Mutex
	closed    bool
	pending   []pendingPeer // oldest first
	undecided int
	change    sync.Cond // of any of these
}

// A pendingPeer has a TCP connection and has not sent its request.
type pendingPeer struct {
	conn  tcpConn
	since time.Time
}

const (
	defaultBacklog = 128

	// acceptPause is how long the accept loop waits after a failure, such as
	// for want of descriptors, at first and at most.
	acceptPause    = 5 * time.Millisecond
	maxAcceptPause = time.Second

	// pendingGrace is how long a peer is pending undisturbed, whoever waits.
	pendingGrace = 250 * time.Millisecond
)

// A requestBound is how long peers may take for their request, and who is told of
// those that bring none; nil tells nobody.
type requestBound struct {
	limit   time.Duration
	refused func(peer netip.AddrPort, err error)
}

// BoundRequests takes the place of Config.RequestTimeout.
func (i *identifier) BoundRequests(limit time.Duration, refused func(netip.AddrPort, error)) {
	i.requests = requestBound{limit, refused}
}

// Listen begins to listen. Its backlog is how many requests there may be that
// are not decided, and as many connections without a request.
func (i *identifier) Listen(backlog int) error { return i.listen(backlog, false) }

// ListenPlain is Listen, for peers that speak no MPA as well.
func (i *identifier) ListenPlain(backlog int) error { return i.listen(backlog, true) }

func (i *identifier) listen(backlog int, plain bool) error {
	local := i.LocalAddr()
	if !i.bound || i.listener != nil {
		return fmt.Errorf("the identifier is not bound, or listens already: %w", syscall.EINVAL)
	}
	if backlog <= 0 {
		backlog = defaultBacklog
	}
	lc := net.ListenConfig{KeepAliveConfig: i.keepAlive()}
	if !lc.KeepAliveConfig.Enable {
		lc.KeepAlive = -1
	}
	lc.SetMultipathTCP(false)
	network := "tcp6"
	switch {
	case local.Addr().Unmap().Is4():
		network = "tcp4"
	case local.Addr().IsUnspecified() && !i.v6only:
		network = "tcp" // both families
	}
	tcp, err := lc.Listen(i.ctx, network, local.String())
	if err != nil {
		return plainError(err)
	}
	addr := addrPort(tcp.Addr())
	own, err := newTCPListener(tcp.(*net.TCPListener), i.keepAlive())
	if err != nil {
		return err
	}
	l := &listener{id: i, tcp: own, backlog: backlog, plain: plain}
	l.change.L = &l.mu
	i.listener = l
	i.setAddrs(addr, netip.AddrPort{})
	i.work.Go(l.accept)
	return nil
}

// accept is the accept loop.
func (l *listener) accept() {
	pause := acceptPause
	for l.turn() {
		conn, err := l.tcp.accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// There is nobody to tell, and it may pass.
			if !l.sleep(pause) {
				return
			}
			pause = min(2*pause, maxAcceptPause)
			continue
		}
		pause = acceptPause
		if l.admit(conn) {
			l.id.work.Go(func() { l.serve(conn) })
		}
	}
}

func (l *listener) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.id.ctx.Done():
		return false
	}
}

// turn waits until another request may come in, and reports false when the
// listener is closed.
func (l *listener) turn() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.undecided >= l.backlog && !l.closed {
		l.change.Wait()
	}
	return !l.closed
}

// admit takes a connection among the pending ones as soon as there is room for
// it, and bounds its time. It reports false when the listener is closed.
func (l *listener) admit(conn tcpConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.pending) >= l.backlog && !l.closed {
		grace := pendingGrace - time.Since(l.pending[0].since)
		if grace <= 0 {
			l.pending[0].conn.Close() // its goroutine ends by that
			l.remove(0)
			break
		}
		timer := time.AfterFunc(grace, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.change.Broadcast()
		})
		l.change.Wait()
		timer.Stop()
	}
	// Before close can see it, whose deadline must be the last.
	err := conn.SetReadDeadline(time.Now().Add(l.requestTimeout()))
	if l.closed || err != nil {
		conn.Close()
		return false
	}
	l.pending = append(l.pending, pendingPeer{conn, time.Now()})
	return true
}

func (l *listener) requestTimeout() time.Duration {
	if limit := l.id.requests.limit; limit > 0 {
		return limit
	}
	return l.id.nic.cfg.RequestTimeout
}

// leave takes the connection out again, as an undecided request or not. It fails
// if the peer has had to go meanwhile, or the listener has been closed.
func (l *listener) leave(conn tcpConn, request bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	for i := range l.pending {
		if l.pending[i].conn == conn {
			l.remove(i)
			if request {
				l.undecided++
			}
			return nil
		}
	}
	return errEvicted
}

// Why a peer was not served.
var (
	errEvicted    = errors.New("the peer sent no connect request, with others waiting")
	errNoRequest  = errors.New("the peer did not send its connect request in time")
	errNothing    = errors.New("the peer closed the connection without a connect request")
	errNotRequest = errors.New("the peer sent something that is no connect request")
)

// refuse tells of a peer that brought no request, unless the listener is closed.
func (l *listener) refuse(conn tcpConn, err error) {
	switch {
	case err == net.ErrClosed:
		return
	case isTimeout(err):
		err = errNoRequest
	case err == io.EOF, errors.Is(err, syscall.ECONNRESET):
		err = errNothing
	case err != errEvicted:
		err = fmt.Errorf("%w: %w", errNotRequest, err)
	}
	if refused := l.id.requests.refused; refused != nil {
		refused(addrPort(conn.RemoteAddr()), err)
	}
}

// remove takes a pending peer out. Called with mu held.
func (l *listener) remove(i int) {
	l.pending = append(l.pending[:i], l.pending[i+1:]...)
	l.change.Broadcast()
}

// decide notes that a request has been decided.
func (l *listener) decide() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.undecided--
	l.change.Broadcast()
}

// serve reads a connection's request, or finds out that none will come.
func (l *listener) serve(conn tcpConn) {
	cfg := &l.id.nic.cfg
	var plain bool
	var req setupFrame
	var surplus []byte
	var err error
	if l.plain {
		plain, err = l.speaksPlain(conn)
	}
	if err == nil && !plain {
		req, surplus, err = readSetup(conn, requestKey, 0)
	}
	if err == nil && len(surplus) > 0 {
		err = setupError("the peer sent frames before the reply")
	}
	if err == nil && req.reject {
		err = setupError("a request that rejects")
	}
	if left := l.leave(conn, err == nil); left != nil {
		err = left
	}
	if err != nil {
		conn.Close() // a peer that does not speak MPA is owed no answer
		l.refuse(conn, err)
		return
	}
	if !plain && refusal(&req) != nil {
		if rej, err := rejection(&req, nil); req.revision <= 2 && err == nil {
			_ = writeSetup(conn, replyKey, &rej, cfg.RequestTimeout)
		}
		closeBehind(conn, cfg.CloseTimeout)
		l.decide()
		return
	}
	child := l.id.nic.newIdentifier()
	child.bound = true
	child.request = &connectRequest{listener: l, conn: conn, plain: plain, frame: req}
	child.setAddrs(addrPort(conn.LocalAddr()), addrPort(conn.RemoteAddr()))
	ev := cm.Event{Type: cm.ConnectRequest, Request: child, Plain: plain}
	if !plain {
		ev.Param = eventParam(&req)
	}
	if !l.id.Deliver(ev) {
		_ = child.Destroy() // nobody takes it
	}
}

// close ends the listener and the set-ups under way. Requests that were
// delivered are their owner's.
func (l *listener) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	_ = l.tcp.close() // nothing depends on it
	for _, p := range l.pending {
		_ = p.conn.SetDeadline(longAgo) // serve closes it
	}
	l.change.Broadcast()
}
