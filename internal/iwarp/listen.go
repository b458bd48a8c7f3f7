package iwarp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// A listener accepts TCP connections, and makes a ConnectRequest of each whose
// peer sends a connect request in time.
//
//	accept loop ──▶ pending: a goroutine each ──▶ turn ──▶ undecided: a ConnectRequest
//	  │               reads the request, bounded            each, until Accept, Reject
//	  │               by RequestTimeout                     or Destroy of the identifier
//	  │               and in number                         │
//	  └── waits for its turn, too ──────────────────────────┘
//
// Peers that connect and say nothing cost one goroutine and one socket each,
// for the RequestTimeout at the longest. When there are too many of them, or no
// descriptors are left, the oldest has to go, once it has had some time to speak:
// whoever speaks at once gets through. The undecided ones are the user's to decide;
// the others wait for their turn, in order, and none is refused for want of one.
// Peers that speak no MPA go the same way, where they are served: what they say first
// stands for the request.
type listener struct {
	id      *identifier
	tcp     tcpListener
	backlog int
	plain   bool // serves peers that speak no MPA, too

	undecided chan struct{} // a token for each undecided request

	mu      sync.Mutex
	closed  bool
	pending []pendingPeer // oldest first
	evicted int           // peers that had to go, whose goroutines do not know it yet
	change  sync.Cond     // of any of these
}

// A pendingPeer has a TCP connection and has not sent its request.
type pendingPeer struct {
	conn  tcpConn
	since time.Time
	part  bool // what it has said so far is looked at again and again
}

const (
	defaultBacklog = 128

	// acceptPause is how long the accept loop waits after a failure, such as
	// for want of descriptors, at first and at most.
	acceptPause    = 5 * time.Millisecond
	maxAcceptPause = 100 * time.Millisecond

	// pendingGrace is how long a peer is pending undisturbed, whoever waits.
	pendingGrace = 250 * time.Millisecond

	// maxEvictLook is how many of the oldest peers are looked at to find a silent
	// one, and evictPause how long after that they are looked at again.
	maxEvictLook = 64
	evictPause   = 5 * time.Millisecond
)

// A requestBound is how long peers may take for their request, and who is told of
// those that are not served; nil tells nobody.
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
	l := &listener{id: i, tcp: own, backlog: backlog, plain: plain, undecided: make(chan struct{}, backlog)}
	l.change.L = &l.mu
	i.listener = l
	i.setAddrs(addr, netip.AddrPort{})
	i.work.Go(l.accept)
	return nil
}

// accept is the accept loop. It takes no connection from the kernel's queue before
// those that it has taken have had their turn.
func (l *listener) accept() {
	pause := acceptPause
	for l.turn() {
		l.decide()
		conn, err := l.tcp.accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil && l.makeRoom(err):
			continue
		case err != nil:
			// It may pass, and the peers in the kernel's queue can wait.
			l.fail(plainError(err))
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

// fail tells the listener's owner that peers cannot be taken.
func (l *listener) fail(err error) {
	l.id.Deliver(cm.Event{Type: cm.UnknownEvent, Status: -int(errnoOf(err, syscall.EIO)), Err: err})
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

// turn waits until one more request may be undecided, in the order of the calls,
// and counts it. It reports false when the listener is closed.
func (l *listener) turn() bool {
	select {
	case l.undecided <- struct{}{}:
		return true
	case <-l.id.ctx.Done():
		return false
	}
}

// decide notes that a request has been decided.
func (l *listener) decide() { <-l.undecided }

// admit takes a connection among the pending ones as soon as there is room for
// it, and bounds its time. It reports false when the listener is closed.
func (l *listener) admit(conn tcpConn) bool {
	l.mu.Lock()
	for len(l.pending) >= l.backlog && !l.closed {
		if l.evict() {
			break
		}
		timer := time.AfterFunc(max(pendingGrace-time.Since(l.pending[0].since), evictPause), func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.change.Broadcast()
		})
		l.change.Wait()
		timer.Stop()
	}
	// Before close can see it, whose deadline must be the last.
	err := conn.SetReadDeadline(time.Now().Add(l.requestTimeout()))
	if err == nil && l.closed {
		err = net.ErrClosed
	}
	if err == nil {
		l.pending = append(l.pending, pendingPeer{conn: conn, since: time.Now()})
	}
	l.mu.Unlock()
	if err != nil {
		conn.Close()
		l.refuse(conn, err)
	}
	return err == nil
}

func (l *listener) requestTimeout() time.Duration {
	if limit := l.id.requests.limit; limit > 0 {
		return limit
	}
	return l.id.nic.cfg.RequestTimeout
}

// evict makes the oldest of the pending peers go that has had its grace and is silent:
// where something waits to be read, it is this host that is slow. It ends the read of
// the peer's goroutine, which calls leave: a peer whose request has been read by then
// stays. evict reports false if there is no such peer. Called with mu held.
func (l *listener) evict() bool {
	for i := range min(len(l.pending), maxEvictLook) {
		p := &l.pending[i]
		if time.Since(p.since) < pendingGrace {
			break
		}
		if p.part || !p.conn.unread() {
			_ = p.conn.SetReadDeadline(longAgo) // fails only of a connection that is closed
			l.remove(i)
			l.evicted++
			return true
		}
	}
	return false
}

// partly notes that a peer has said a part of what it may say.
func (l *listener) partly(conn tcpConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.pending {
		if l.pending[i].conn == conn {
			l.pending[i].part = true
		}
	}
}

// makeRoom has a pending peer go, if one has had its grace, after a failure for want
// of what its socket holds, and waits until that is free. It reports false if there is
// no such peer, or if the failure was another.
func (l *listener) makeRoom(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !scarce(err) || l.closed || !l.evict() {
		return false
	}
	for l.evicted > 0 {
		l.change.Wait()
	}
	return true
}

// scarce reports whether something failed for want of descriptors or memory.
func scarce(err error) bool {
	switch errnoOf(portableError(err), 0) {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS:
		return true
	}
	return false
}

// leave takes a connection out again, whose request has been read or has failed with
// err. It returns why the peer is not served: err, that it has had to go before its
// request was there, or that the listener has been closed. The descriptor of one that
// has had to go is free when makeRoom learns of it.
func (l *listener) leave(conn tcpConn, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.pending, func(p pendingPeer) bool { return p.conn == conn }); i >= 0 {
		l.remove(i)
	} else {
		if err != nil {
			err = errEvicted
			conn.Close()
		}
		l.evicted--
		l.change.Broadcast()
	}
	if l.closed {
		return net.ErrClosed
	}
	return err
}

// remove takes a pending peer out. Called with mu held.
func (l *listener) remove(i int) {
	l.pending = append(l.pending[:i], l.pending[i+1:]...)
	l.change.Broadcast()
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
