package cm

// An Endpoint is what a connection is for: the stream above, as the dial and
// the accept sequence see it. One is made for each attempt to connect.
//
// The methods are called by the sequence's own goroutine, one after the other.
type Endpoint interface {
	// Prepare builds everything the connection needs on id: the queue pair,
	// its memory, its posted receives. On the dialing side it is called when
	// the route is known, with the zero Event, and returns what to connect
	// with; on the accepting side with the ConnectRequest, whose private
	// data it checks, and returns what to accept with. An error ends the
	// attempt, and refuses the peer. The private data is the endpoint's own:
	// what has to lead a request's between InfiniBand addresses, the
	// sequence puts there.
	Prepare(id ID, request Event) (ConnParam, error)

	// Established is told of the event by which the connection came to be.
	// On the dialing side it carries the peer's answer. An error ends the
	// connection.
	Established(ev Event) error

	// Release frees all that Prepare has built, the queue pair first, and is
	// called, once, before the identifier is destroyed, when the attempt has
	// failed or was abandoned; also when Prepare itself failed. Of a connection
	// that has been handed over, Connection.End and Discard call it.
	Release()
}
