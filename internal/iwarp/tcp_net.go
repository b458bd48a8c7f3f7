//go:build !linux

package iwarp

import (
	"context"
	"net"
	"net/netip"
)

// A netConn is a tcpConn of package net.
type netConn struct{ *net.TCPConn }

var _ tcpConn = netConn{}

func (c netConn) plain() (net.Conn, error) { return c.TCPConn, nil }

func (c netConn) ended() bool  { return false }
func (c netConn) unread() bool { return false }

// dialTCP connects, until ctx ends, from src if that is valid.
func dialTCP(ctx context.Context, src, dst netip.AddrPort, keep net.KeepAliveConfig) (tcpConn, error) {
	d := net.Dialer{KeepAliveConfig: keep}
	if !keep.Enable {
		d.KeepAlive = -1
	}
	d.SetMultipathTCP(false)
	if src.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(src)
	}
	conn, err := d.DialContext(ctx, "tcp", dst.String())
	if err != nil {
		return nil, err
	}
	return netConn{conn.(*net.TCPConn)}, nil
}

type netListener struct{ *net.TCPListener }

// newTCPListener takes over a listener, which sets keepalive by itself.
func newTCPListener(l *net.TCPListener, _ net.KeepAliveConfig) (tcpListener, error) {
	return netListener{l}, nil
}

func (l netListener) accept() (tcpConn, error) {
	conn, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	return netConn{conn}, nil
}

func (l netListener) close() error { return l.Close() }
