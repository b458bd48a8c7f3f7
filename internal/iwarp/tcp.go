package iwarp

import (
	"net"
	"syscall"
)

// A tcpConn is a TCP connection while it is set up. newSocket makes a wire of it.
type tcpConn interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
	SetKeepAliveConfig(net.KeepAliveConfig) error

	// plain is the connection as package net has it. It takes over the
	// connection, unless it fails.
	plain() (net.Conn, error)

	// ended reports whether the peer has ended the connection behind what it
	// has sent; false where the platform cannot tell without taking that.
	ended() bool

	// unread reports whether there is something to be read; false where the
	// platform cannot tell.
	unread() bool
}

// A tcpListener accepts TCP connections. A close ends an accept with an error that
// is net.ErrClosed.
type tcpListener interface {
	accept() (tcpConn, error)
	close() error
}
