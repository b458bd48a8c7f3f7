// Package rdmanet gives a program an RDMA connection the way package net gives
// it a TCP one.
//
//	d := rdmanet.Dialer{Timeout: 5 * time.Second}
//	c, err := d.DialContext(ctx, "rdma", "10.0.0.7:9000")
//
// The connection is a net.Conn. Behind DialContext the RDMA connection manager
// resolves the address and the route and connects, each stage under the
// context: its deadline becomes the stage's timeout, its cancellation takes
// effect at once. ListenConfig, Listen and Listener are the other end.
//
// # On the wire
//
// What a connection carries is the rsockets stream protocol of librdmacm, so
// that the other end may be a C program that uses rsocket(7), or any program
// run under librspreload.so.
//
// # Networks
//
// The networks are "rdma", "rdma4" (IPv4 only) and "rdma6" (IPv6 only). "tcp",
// "tcp4" and "tcp6" are taken to mean the same, because callers such as
// http.Transport always say so; it is RDMA that is dialed all the same. "ib" dials an
// InfiniBand service by its name or service ID, resolved by the subnet
// administrator; it needs a Dialer.LocalAddr that names the InfiniBand port.
//
// # Addresses
//
// The addresses of connections, listeners and errors are *net.TCPAddr, as those
// of package net. On an InfiniBand or RoCE device the port is one of the
// connection manager's TCP port space, which is apart from TCP's own. InfoOf
// tells RDMA connections from others. Only in the network "ib" an address is an
// *IBAddr.
//
// # Peers that speak no RDMA
//
// Dialer.Fallback dials servers that speak TCP alone, and with
// ListenConfig.AcceptPlain the port of the software NIC serves clients that do.
// Such connections are those of package net, and not a *Conn.
//
// # Errors
//
// The end of the stream is io.EOF itself. Every other error is a *net.OpError
// with Net "rdma". In a dial's there is a *StageError that tells which stage
// failed, by which call or event, with which status; errors.Is finds
// context.DeadlineExceeded, context.Canceled, or the syscall.Errno.
package rdmanet
