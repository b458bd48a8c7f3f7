package iwarp

import (
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// How a completion queue is waited for
//
// The goroutine in Wait parks in Go's poller, in a RawConn.Read of the socket
// of the queue's connection, and when the socket becomes readable it reads and
// processes what came itself, there and then. It leaves when that has made
// completions, or when somebody has ended the wait:
//
//	Wake                          woken
//	a completion, when armed      event
//	a connection came or went     changed
//	Destroy                       destroyed
//
// All of them set their mark under the queue's lock and then, if there is a
// goroutine in Wait, give the sockets that it is parked on a read deadline in
// the past (signal). That goroutine takes the deadline away again before it
// parks anew or leaves (unpark). The read deadline of a socket serves this
// purpose only as long as its connection belongs to a queue; release waits
// until the goroutine has left a socket that is to be closed.
//
// With no connection, it waits for a token instead. With several, it lends each
// a goroutine for the time of the wait: correct, and slower.
type waitState struct {
	woken   bool
	event   bool // stays when another goroutine's Poll has taken the completion
	changed bool
	waiting bool
	expired bool          // the parked sockets' deadline is in the past
	parked  []*queuePair  // the connections whose sockets Wait is parked on
	token   chan struct{} // wakes a Wait that is parked on none, or on several
	left    sync.Cond     // a Wait has been unparked
}

// longAgo is a deadline that is over.
var longAgo = time.Unix(1, 0)

// Wait waits for an event.
func (c *completionQueue) Wait() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.destroyed:
			return fmt.Errorf("the completion queue is destroyed: %w", net.ErrClosed)
		case c.overflown && c.n == 0:
			return fmt.Errorf("%w: %w", errOverflow, syscall.EOVERFLOW)
		case c.n > 0 || c.wait.event || c.wait.woken:
			c.wait.event, c.wait.woken = false, false
			return nil
		}
		c.wait.changed = false
		c.wait.waiting = true
		c.wait.parked = c.live
		c.mu.Unlock()
		c.park(c.wait.parked)
		c.mu.Lock()
		c.unpark()
	}
}

// park waits for one of the connections, or for signal.
func (c *completionQueue) park(live []*queuePair) {
	switch len(live) {
	case 0:
		<-c.wait.token
	case 1:
		// Whatever made it return, Wait looks at the queue again.
		_ = live[0].wire.waitReadable(live[0].rx.attempt)
	default:
		var wg sync.WaitGroup
		for _, q := range live {
			wg.Go(func() {
				_ = q.wire.waitReadable(q.rx.attempt)
				c.mu.Lock()
				defer c.mu.Unlock()
				c.signal() // one has something: the others leave too
			})
		}
		wg.Wait()
	}
}

// unpark undoes what signal did. Called with mu held.
func (c *completionQueue) unpark() {
	w := &c.wait
	if w.expired {
		w.expired = false
		for _, q := range w.parked {
			_ = q.wire.setReadDeadline(time.Time{}) // a closed socket needs none
		}
	}
	select {
	case <-w.token:
	default:
	}
	w.waiting = false
	w.parked = nil
	w.left.Broadcast()
}

// signal makes the goroutine in Wait, if there is one, look at the queue's
// marks. Called with mu held.
func (c *completionQueue) signal() {
	w := &c.wait
	if !w.waiting || w.expired {
		return
	}
	if len(w.parked) == 0 {
		select {
		case w.token <- struct{}{}:
		default:
		}
		return
	}
	w.expired = true
	for _, q := range w.parked {
		_ = q.wire.setReadDeadline(longAgo) // a closed socket wakes by itself
	}
}

// leaving reports whether the goroutine in Wait should leave the socket that it
// is parked on.
func (c *completionQueue) leaving() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n > 0 || c.wait.event || c.wait.woken || c.wait.changed || c.destroyed || c.overflown
}

// Wake ends the current Wait or the next.
func (c *completionQueue) Wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wait.woken = true
	c.signal()
}

// attach makes a connection one of those that the queue reads from.
func (c *completionQueue) attach(q *queuePair) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live = append(c.live[:len(c.live):len(c.live)], q)
	c.wait.changed = true
	c.signal()
}

// detach takes the connection away again. A goroutine in Wait leaves its socket
// soon, and may still be there when detach returns: see release.
func (c *completionQueue) detach(q *queuePair) {
	c.mu.Lock()
	defer c.mu.Unlock()
	live := make([]*queuePair, 0, len(c.live))
	for _, other := range c.live {
		if other != q {
			live = append(live, other)
		}
	}
	c.live = live
	c.wait.changed = true
	c.signal()
}

// release waits until no Wait is parked on the socket of a connection that has
// been detached. It must not be called with a lock that reading takes.
func (c *completionQueue) release(q *queuePair) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.parkedOn(q) {
		c.wait.left.Wait()
	}
}

// waitsFor reports whether a goroutine in Wait will take what comes on a
// connection.
func (c *completionQueue) waitsFor(q *queuePair) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parkedOn(q)
}

func (c *completionQueue) parkedOn(q *queuePair) bool {
	for _, p := range c.wait.parked {
		if p == q {
			return true
		}
	}
	return false
}
