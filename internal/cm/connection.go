package cm

import (
	"net"
	"syscall"
)

// A Connection is an established connection that has been handed over: its
// owner calls the methods of the ID from then on, and releases the endpoint and
// destroys the ID in the end.
//
// Events that come from the establishment on are kept until the owner calls
// Handle, in order, none lost: a Disconnected among them, for instance, when
// the peer was quicker than Accept.
//
// A connection that is none of RDMA's has Plain, which is its owner's, and the two
// addresses, and nothing else.
type Connection struct {
	ID
	Endpoint Endpoint
	Plain    net.Conn // see ListenRequest.Plain

	// Local and Remote are the addresses of the two ends, as they were when
	// the connection was established.
	Local, Remote Addr

	kept []Event // events behind the Established one that the worker had read
}

// Handle sets the function that gets the identifier's events, as ID.Handle
// does. The owner must call this Handle, not the ID's own.
func (c *Connection) Handle(fn func(Event)) {
	if fn != nil {
		kept := c.kept
		c.kept = nil
		for _, ev := range kept {
			fn(ev)
		}
	}
	c.ID.Handle(fn)
}

// newConnection takes the identifier from the worker that has established it:
// its events go to the identifier's mailbox from here on, behind those that
// the worker has read already.
func newConnection(id ID, ep Endpoint, box *inbox) *Connection {
	id.Handle(nil)
	return &Connection{
		ID: id, Endpoint: ep, kept: box.drain(),
		Local:  Addr{AddrPort: id.LocalAddr()},
		Remote: Addr{AddrPort: id.RemoteAddr()},
	}
}

// newPlainConnection takes the connection of a peer that speaks no RDMA from its
// identifier, whose end this is.
func newPlainConnection(id ID) (*Connection, error) {
	p, ok := id.(PlainID)
	if !ok {
		return nil, syscall.EPROTO
	}
	conn, err := p.AcceptPlain()
	if err != nil {
		return nil, err
	}
	c := &Connection{Plain: conn, Local: Addr{AddrPort: id.LocalAddr()}, Remote: Addr{AddrPort: id.RemoteAddr()}}
	_ = id.Destroy() // it has nothing left
	return c, nil
}
