package rdmanet

import (
	"errors"
	"net"
)

// errNotRDMA is why AcceptRDMA does not return a connection.
var errNotRDMA = errors.New("the peer speaks no RDMA, and only RDMA is accepted")

// plainConn makes a connection of AcceptPlain ready for its user, as package net
// does: the software NIC knows nothing of the listener's keepalive.
func plainConn(c net.Conn, keepAlive net.KeepAliveConfig) net.Conn {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(keepAlive) // fails where the peer has gone already
	}
	return c
}
