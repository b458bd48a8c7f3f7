package rdmanet

import (
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
	if conn.closeTimeout == 0 {
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
		c.stream.Disconnected(ev.Err)
	case cm.DeviceRemoval:
		c.stream.Disconnected(deviceRemoved(c.info.Device))
	}
}

// Read reads what the peer has sent, at least one byte unless b is empty. It
// returns io.EOF when the peer has ended the stream and all of it has been read.
//
// How the peer ended the stream is told apart more finely than over TCP. A peer
// that has closed the connection gives io.EOF, also if it had not read all that
// was written here (over TCP: ECONNRESET). A peer whose process was killed, or
// exited without Close, gives ECONNRESET (over TCP: io.EOF).
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.stream.Read(b)
	return n, c.wrap(opRead, err)
}

// Write sends b. It returns when all of b has been accepted into registered
// memory, from which the device sends it; n is how much has been.
//
// When the peer has closed the connection, Write fails with EPIPE, but the first
// Write after that is accepted and dropped if Read has returned io.EOF, or if the
// connection was in use within the last 50 ms: if Write was called or Read
// returned bytes. So a goodbye that crosses the peer's is no error, as over TCP. On a connection
// that has been idle for longer, Write looks for the peer's end first, and fails
// with n = 0: a pool can then take another connection.
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

// ErrNotDelivered is, by errors.Is, the error of a Close that does not know that
// the peer's device has all that Write accepted. The error also holds the reason:
// how the connection failed, or that the time for Close was over, and then its
// Timeout is true and delivery goes on behind the caller.
var ErrNotDelivered = rsocket.ErrNotDelivered

// lingerTimeout is how much longer than CloseTimeout what Write has accepted may
// take, behind the caller of Close.
const lingerTimeout = 10 * time.Second

// Close ends the connection. Read and Write under way and later return
// net.ErrClosed. The peer reads what was written, then io.EOF.
//
// Close returns at once when the peer's device is known to have all that Write
// has accepted, as it is when nothing was written, or when the connection has
// been quiet for two seconds. Otherwise it waits until that is known, whatever
// the deadlines, for Dialer.CloseTimeout or ListenConfig.CloseTimeout at the most.
// So a program may exit when Close has returned nil. Close does not wait until
// the peer's program has read. What else is to be done happens behind the caller.
//
// If it is not known, Close returns an error that is ErrNotDelivered: the
// connection has failed, before Close or during it, or time is over, and then
// delivery goes on behind the caller for some seconds. A peer that has closed the
// connection first takes nothing more, and what it has not taken is no error, as
// over TCP.
func (c *Conn) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return c.wrap(opClose, net.ErrClosed)
	}
	err := c.stream.Close(c.closeTimeout)
	if c.light && c.stream.Parted() {
		c.cm.End()
	} else {
		go c.finish(err)
	}
	return c.wrap(opClose, err)
}

// finish does what is left behind the caller of Close, which has returned err.
func (c *Conn) finish(err error) {
	limit := partingTimeout
	if err != nil {
		limit = lingerTimeout
	}
	c.stream.Linger(limit)
	if c.light { // no kernel is kept busy by it
		c.cm.End()
	} else {
		c.cm.EndInTurn()
	}
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
