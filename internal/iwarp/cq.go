package iwarp

import (
	"fmt"
	"sync"
	"syscall"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// A completionQueue is a verbs.CQ. wait.go has the other half of it.
type completionQueue struct {
	mu        sync.Mutex
	ring      []verbs.WC
	head, n   int
	armed     bool // the next completion is an event
	fresh     bool // Arm has just been called: see Poll
	overflown bool
	destroyed bool
	users     int          // queue pairs made with it
	live      []*queuePair // those that are connected; replaced, never changed

	wait waitState
}

func newCompletionQueue(depth int) *completionQueue {
	c := &completionQueue{ring: completionRings.get(depth)}
	c.wait.token = make(chan struct{}, 1)
	c.wait.left.L = &c.mu
	return c
}

// Poll moves completions into wc. If there are none it first reads, without
// blocking, what the sockets of the queue's connections hold.
//
// The one Poll that follows Arm does not: Wait begins with the same reading.
func (c *completionQueue) Poll(wc []verbs.WC) (int, error) {
	c.mu.Lock()
	if c.n > 0 || c.fresh || c.overflown {
		defer c.mu.Unlock()
		c.fresh = false
		return c.take(wc)
	}
	live := c.live
	c.mu.Unlock()
	for _, q := range live {
		q.poll()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.take(wc)
}

// take is called with mu held.
func (c *completionQueue) take(wc []verbs.WC) (int, error) {
	n := min(len(wc), c.n)
	if n > 0 {
		first := copy(wc[:n], c.ring[c.head:])
		copy(wc[first:n], c.ring)
		c.head = (c.head + n) % len(c.ring)
		c.n -= n
	}
	if n == 0 && c.overflown {
		return 0, fmt.Errorf("%w: %w", errOverflow, syscall.EOVERFLOW)
	}
	return n, nil
}

// Arm requests an event.
func (c *completionQueue) Arm() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed, c.fresh, c.wait.event = true, true, false
	return nil
}

// push adds a completion, which is an event if the queue is armed. The goroutine
// in Wait, which looks for itself, pushes quietly: it need not be signalled.
func (c *completionQueue) push(wc verbs.WC, quiet bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(wc, quiet)
}

// add is push with mu held.
func (c *completionQueue) add(wc verbs.WC, quiet bool) {
	if c.n == len(c.ring) {
		c.overflown = true
	} else {
		c.ring[wrap(c.head+c.n, len(c.ring))] = wc
		c.n++
	}
	if c.armed {
		c.armed = false
		c.wait.event = true
		if !quiet {
			c.signal()
		}
	}
}

// pending reports whether there is a completion to take.
func (c *completionQueue) pending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n > 0
}

// use counts the queue pairs made with the queue.
func (c *completionQueue) use(change int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.destroyed && change > 0 {
		return fmt.Errorf("the completion queue is destroyed: %w", syscall.EINVAL)
	}
	c.users += change
	return nil
}

// Destroy destroys the queue.
func (c *completionQueue) Destroy() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users > 0 {
		return fmt.Errorf("the completion queue still has %d queue pairs: %w", c.users, syscall.EBUSY)
	}
	if c.destroyed {
		return fmt.Errorf("the completion queue is destroyed already: %w", syscall.EINVAL)
	}
	c.destroyed, c.n = true, 0
	completionRings.put(c.ring)
	c.ring = nil
	c.signal()
	return nil
}
