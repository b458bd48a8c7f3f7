package cm

import (
	"runtime"
	"sync/atomic"
	"time"
)

// How connections are taken down
//
// rdma_disconnect and the calls that destroy take a kernel some milliseconds for
// each connection, and now and then seconds. Programs close hundreds of
// connections in a row, and wait for none of it; so that those calls do not take
// the processors from the program, only a few connections are taken down at a
// time. The others wait for their turn. A connection that the kernel blocks for
// longer than longTurn no longer counts. And while connections are being closed none
// is taken down at all, for a time: the one who closes them has the processors.
var turns = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

const longTurn = 50 * time.Millisecond

// A connection is taken down when none has been closed for as long as pauseBefore,
// or when it has waited for as long as longestPause.
const (
	pauseBefore  = 10 * time.Millisecond
	longestPause = 100 * time.Millisecond
)

// lastClosed is when EndInTurn was last called, since epoch.
var (
	lastClosed atomic.Int64
	epoch      = time.Now()
)

// awaitPause waits until no more connections are being closed.
func awaitPause() {
	began := time.Since(epoch)
	lastClosed.Store(int64(began))
	for now := began; now-began < longestPause; now = time.Since(epoch) {
		left := pauseBefore - (now - time.Duration(lastClosed.Load()))
		if left <= 0 {
			return
		}
		time.Sleep(left)
	}
}

// inTurn waits for a turn and calls f.
func inTurn(f func()) {
	turns <- struct{}{}
	over := make(chan struct{}, 1) // the turn's end, which only one may take
	over <- struct{}{}
	end := func() {
		select {
		case <-over:
			<-turns
		default:
		}
	}
	t := time.AfterFunc(longTurn, end)
	f()
	t.Stop()
	end()
}

// A Parter is an Endpoint that tells its peer of the end.
type Parter interface {
	Endpoint

	// Part tells the peer of an established connection that nobody wants that
	// it ends. It may wait for a bounded time, and is called before Release.
	Part()
}

// End takes a connection down that its owner has closed: it disconnects, releases
// the endpoint and destroys the identifier. A kernel may let it wait.
func (c *Connection) End() {
	_ = c.ID.Disconnect() // fails where the peer was first, and then is not needed
	c.Endpoint.Release()
	_ = c.ID.Destroy() // nobody is left to tell
}

// EndInTurn is End when the connection's turn has come.
func (c *Connection) EndInTurn() {
	awaitPause()
	inTurn(c.End)
}

// Discard ends a connection that nobody wants. Its owner may call it in place of
// everything else. It waits for the peer to hear of it, and then as EndInTurn does.
func (c *Connection) Discard() {
	if c.Plain != nil {
		_ = c.Plain.Close() // nobody is left to tell
		return
	}
	if p, ok := c.Endpoint.(Parter); ok {
		p.Part()
	}
	inTurn(func() {
		c.Endpoint.Release()
		_ = c.ID.Destroy() // nobody is left to tell
	})
}
