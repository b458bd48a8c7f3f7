package iwarp

import (
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// A scarceListener has a limit of how many of its connections there may be, as a
// process has of descriptors.
type scarceListener struct {
	tcpListener
	limit, used atomic.Int32
}

// A scarceConn counts until it is closed.
type scarceConn struct {
	tcpConn
	l      *scarceListener
	closed atomic.Bool
}

func (l *scarceListener) accept() (tcpConn, error) {
	if l.used.Load() >= l.limit.Load() {
		return nil, syscall.EMFILE
	}
	conn, err := l.tcpListener.accept()
	if err != nil {
		return nil, err
	}
	if l.used.Add(1) > l.limit.Load() { // the limit has changed during accept
		l.used.Add(-1)
		conn.Close()
		return nil, syscall.EMFILE
	}
	return &scarceConn{tcpConn: conn, l: l}, nil
}

func (c *scarceConn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.l.used.Add(-1)
	}
	return c.tcpConn.Close()
}

// listenScarce makes an identifier whose listener may have so many connections.
func listenScarce(t *testing.T, nic *NIC, limit int32, refused func(netip.AddrPort, error)) (*identifier, *scarceListener, chan cm.Event) {
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	addr := addrPort(tcp.Addr())
	own, err := newTCPListener(tcp.(*net.TCPListener), nic.cfg.KeepAlive)
	require.NoError(t, err)
	scarce := &scarceListener{tcpListener: own}
	scarce.limit.Store(limit)
	id := nic.newIdentifier()
	events := handle(id)
	id.bound = true
	id.BoundRequests(0, refused)
	id.setAddrs(addr, netip.AddrPort{})
	id.listener = &listener{id: id, tcp: scarce, backlog: 64, undecided: make(chan struct{}, 64)}
	id.listener.change.L = &id.listener.mu
	id.work.Go(id.listener.accept)
	return id, scarce, events
}

// Where descriptors run out, the owner is told again and again, and the peers wait in
// the kernel's queue until there are some.
func TestOutOfDescriptors(t *testing.T) {
	nic := openNIC(t, Config{RequestTimeout: time.Minute})
	lid, scarce, events := listenScarce(t, nic, 0, nil)
	p := dialRaw(t, lid.LocalAddr())
	p.write(appendSetup(nil, requestKey, &enhancedRequest))
	for range 3 {
		ev := next(t, events, cm.UnknownEvent)
		require.Equal(t, -int(syscall.EMFILE), ev.Status)
		require.ErrorIs(t, ev.Err, syscall.EMFILE)
	}
	scarce.limit.Store(1)
	for {
		ev := <-events
		if ev.Type == cm.UnknownEvent {
			continue
		}
		require.Equal(t, cm.ConnectRequest, ev.Type)
		require.NoError(t, ev.Request.Reject(nil))
		require.NoError(t, ev.Request.Destroy())
		break
	}
	require.True(t, p.readSetup(replyKey).reject)
	require.NoError(t, lid.Destroy())
}

// Before others have to wait for descriptors, silent peers have to go, the oldest
// first, and each is told of.
func TestSilentPeersGiveTheirDescriptors(t *testing.T) {
	const limit = 10
	nic := openNIC(t, Config{RequestTimeout: time.Minute})
	refused := make(chan error, 100)
	lid, _, events := listenScarce(t, nic, limit, func(_ netip.AddrPort, err error) { refused <- err })
	var silent []*rawPeer
	for range 3 * limit {
		silent = append(silent, dialRaw(t, lid.LocalAddr()))
	}
	p := dialRaw(t, lid.LocalAddr())
	p.write(appendSetup(nil, requestKey, &enhancedRequest))
	for {
		ev := <-events
		if ev.Type == cm.UnknownEvent {
			continue // as long as none of them had had its grace
		}
		require.Equal(t, cm.ConnectRequest, ev.Type)
		require.NoError(t, ev.Request.Reject(nil))
		require.NoError(t, ev.Request.Destroy())
		break
	}
	require.True(t, p.readSetup(replyKey).reject)
	for _, s := range silent[:2*limit] {
		s.gone()
	}
	for range 2 * limit {
		require.Equal(t, errEvicted, <-refused)
	}
	require.NoError(t, lid.Destroy())
}

// A peer that has spoken does not have to go because this host is slow to read it.
func TestSpokenPeerStays(t *testing.T) {
	client, server := acceptedPair(t)
	l := &listener{pending: []pendingPeer{{conn: server, since: time.Now().Add(-time.Hour)}}}
	l.change.L = &l.mu
	require.NoError(t, server.SetReadDeadline(time.Now().Add(patience)))
	_, err := client.Write([]byte("x"))
	require.NoError(t, err)
	require.Eventually(t, server.unread, patience, time.Millisecond)
	require.False(t, l.makeRoom(syscall.EMFILE))
	_, err = io.ReadFull(server, make([]byte, 1))
	require.NoError(t, err)
	require.False(t, l.makeRoom(syscall.ECONNABORTED), "not for want of anything")

	// The request has been read, and its goroutine has not come to say so.
	roomMade := make(chan bool)
	go func() { roomMade <- l.makeRoom(syscall.EMFILE) }()
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.evicted == 1
	}, patience, time.Millisecond)
	require.Empty(t, l.pending)
	require.NoError(t, l.leave(server, nil))
	require.True(t, <-roomMade)
	require.NoError(t, server.SetReadDeadline(time.Now().Add(patience)))
	_, err = client.Write([]byte("y"))
	require.NoError(t, err)
	_, err = io.ReadFull(server, make([]byte, 1))
	require.NoError(t, err)
}

// The number of undecided requests keeps its bound also when all the silent ones speak
// at once, and then they come in turn.
func TestUndecidedBound(t *testing.T) {
	nic := openNIC(t, Config{RequestTimeout: time.Minute})
	lid, events := listen(t, nic, "127.0.0.1:0") // backlog 16
	var late []*rawPeer
	for range 16 {
		late = append(late, dialRaw(t, lid.LocalAddr()))
	}
	l := lid.(*identifier).listener
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.pending) == 16
	}, patience, time.Millisecond)
	for range 16 {
		l.undecided <- struct{}{} // as many as may be
	}
	for _, p := range late {
		p.write(appendSetup(nil, requestKey, &enhancedRequest))
	}
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.pending) == 0
	}, patience, time.Millisecond)
	require.Empty(t, events)
	for range 16 {
		l.decide()
		ev := next(t, events, cm.ConnectRequest)
		require.Empty(t, events)
		defer func() { require.NoError(t, ev.Request.Destroy()) }()
	}
	require.NoError(t, lid.Destroy())
}

// acceptedPair is a connection, one end of which is the NIC's.
func acceptedPair(t *testing.T) (*net.TCPConn, tcpConn) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	own, err := newTCPListener(l.(*net.TCPListener), net.KeepAliveConfig{})
	require.NoError(t, err)
	defer own.close()
	client := dialRaw(t, addrPort(l.Addr())).conn
	server, err := own.accept()
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	return client, server
}

// A plain connection has its peer's address, whatever the peer does after it has
// spoken; one whose address the kernel knows no more is not handed out.
func TestPlainKeepsItsAddress(t *testing.T) {
	nic := openNIC(t, Config{})
	lid, events := listenPlain(t, nic)
	p := dialRaw(t, lid.LocalAddr())
	p.write([]byte("GET"))
	ev := next(t, events, cm.ConnectRequest)
	require.NoError(t, p.conn.SetLinger(0))
	p.conn.Close()
	time.Sleep(10 * time.Millisecond)
	c, err := ev.Request.(cm.PlainID).AcceptPlain()
	require.NoError(t, err)
	require.NoError(t, ev.Request.Destroy())
	require.Equal(t, p.conn.LocalAddr().String(), c.RemoteAddr().String())
	require.Equal(t, p.conn.RemoteAddr().String(), c.LocalAddr().String())
	require.NoError(t, c.Close())
	require.NoError(t, lid.Destroy())

	client, server := acceptedPair(t)
	require.NoError(t, client.SetLinger(0))
	client.Close()
	require.Eventually(t, server.ended, patience, time.Millisecond)
	_, err = server.plain()
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.Equal(t, client.LocalAddr().String(), server.RemoteAddr().String(), "accept has told it")
}
