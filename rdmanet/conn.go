package rdmanet

import (
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/rsocket"
)

// defaultCloseTimeout is how long Close waits where nothing else was said.
const defaultCloseTimeout = time.Second

// Conn is a connection. All its methods may be called concurrently.
type Conn struct {
	stream       *rsocket.Stream
	cm           *cm.Connection
	local        net.Addr
	remote       net.Addr
	info         Info
	closeTimeout time.Duration
	closed       atomic.Bool
	light        bool // what is below takes no time to go
}

var _ net.Conn = (*Conn)(nil)

// newConn takes over a connection that the connection manager has established.
func newConn(c *cm.Connection) *Conn {
	e := c.Endpoint.(*endpoint)
	conn := &Conn{
		stream:       e.stream,
		cm:           c,
		local:        connAddr(c.Local, e.info.GID),
		remote:       connAddr(c.Remote, netip.Addr{}),
		info:         e.info,
		closeTimeout: e.cfg.closeTimeout,
		light:        e.info.Provider == Software,
	}
	if conn.closeTimeout <= 0 {
		conn.closeTimeout = defaultCloseTimeout
	}
	c.Handle(conn.event)
	return conn
}

// event is told what happens to the identifier of an established connection.
// UNREACHABLE is not among what ends it: the connection manager reports a link
// that is down by it, and a connection outlives that.
func (c *Conn) event(ev cm.Event) {
	switch ev.Type {
	case cm.Disconnected:
		c.stream.Disconnected(nil)
	case cm.DeviceRemoval:
		c.stream.Disconnected(deviceRemoved(c.info.Device))
	}
}

// Read reads what the peer has sent, at least one byte unless b is empty. It
// returns io.EOF when the peer has ended the stream and all of it has been read.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.stream.Read(b)
	return n, c.wrap(opRead, err)
}

// Write sends b. It returns when all of b has been accepted into registered
// memory, from which the device sends it; n is how much has been.
func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.stream.Write(b)
	return n, c.wrap(opWrite, err)
}

// WriteBuffers writes the slices of v one after the other as if they were one,
// and consumes v as net.Buffers.WriteTo does. That method itself would call
// Write for each slice: its way around this is private to package net.
func (c *Conn) WriteBuffers(v *net.Buffers) (int64, error) {
	n, err := c.stream.WriteBuffers(v)
	return n, c.wrap(opWrite, err)
}

// CloseRead ends reading. What the peer sends from now on is discarded, so that
// its writes go on succeeding.
func (c *Conn) CloseRead() error { return c.wrap(opClose, c.stream.CloseRead()) }

// CloseWrite ends writing: the peer reads what was written, then io.EOF.
func (c *Conn) CloseWrite() error { return c.wrap(opClose, c.stream.CloseWrite()) }

// lingerTimeout is how much longer than CloseTimeout what Write has accepted may
// take, behind the caller of Close.
const lingerTimeout = 10 * time.Second

// Close ends the connection. Read and Write under way and later return
// net.ErrClosed.
//
// What Write has accepted is still delivered: Close tells the peer that the
// stream ends here and waits, whatever the deadlines, until the peer's device
// has all of it, for Dialer.CloseTimeout or ListenConfig.CloseTimeout at the
// most. It does not wait until the peer's program has read. When that time is
// over it returns an error, and delivery goes on behind the caller for some
// seconds. It returns nil if the peer had ended the connection first.
func (c *Conn) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return c.wrap(opClose, net.ErrClosed)
	}
	deadline := time.Now().Add(c.closeTimeout)
	err := c.stream.Close(c.closeTimeout)
	if c.light && err == nil && c.stream.Idle() {
		c.tearDown()
		return nil
	}
	torn := make(chan struct{})
	go func() {
		defer close(torn)
		if errors.Is(err, rsocket.ErrNotDelivered) {
			c.stream.Linger(lingerTimeout)
		}
		c.tearDown()
	}()
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-torn:
	case <-timer.C: // the rest happens behind the caller
	}
	return c.wrap(opClose, err)
}

// tearDown takes the connection down to nothing. A kernel may let it wait.
func (c *Conn) tearDown() {
	c.cm.Disconnect() // fails where the peer was first, and then is not needed
	c.stream.Release()
	c.cm.Destroy()
}

// LocalAddr returns this end's address, a *net.TCPAddr; in the network "ib" an
// *IBAddr. The caller must not change it.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the peer's address, of the same type.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both deadlines, as net.Conn describes. Close ignores them.
func (c *Conn) SetDeadline(t time.Time) error { return c.wrap(opSet, c.stream.SetDeadline(t)) }

// SetReadDeadline sets the deadline of Read.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.wrap(opSet, c.stream.SetReadDeadline(t)) }

// SetWriteDeadline sets the deadline of Write. A Write that times out may have
// accepted some of its bytes.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.wrap(opSet, c.stream.SetWriteDeadline(t))
}
