package simqp

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// A cq is a completion queue.
type cq struct {
	dev   *Device
	depth int
	qps   atomic.Int64

	polling, waiting atomic.Bool

	mu     sync.Mutex
	cond   sync.Cond
	wcs    []verbs.WC
	armed  bool
	event  bool
	awake  bool
	broken error
}

func (c *cq) Poll(wc []verbs.WC) (int, error) {
	if !c.polling.CompareAndSwap(false, true) {
		c.dev.fabric.fault("two goroutines in Poll")
	}
	defer c.polling.Store(false)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return 0, c.broken
	}
	n := copy(wc, c.wcs)
	c.wcs = c.wcs[:copy(c.wcs, c.wcs[n:])]
	return n, nil
}

func (c *cq) Arm() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = true
	return c.broken
}

func (c *cq) Wait() error {
	if !c.waiting.CompareAndSwap(false, true) {
		c.dev.fabric.fault("two goroutines in Wait")
	}
	defer c.waiting.Store(false)
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.event && !c.awake && c.broken == nil {
		c.cond.Wait()
	}
	c.event, c.awake = false, false
	return c.broken
}

func (c *cq) Wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awake = true
	c.cond.Broadcast()
}

func (c *cq) Destroy() error {
	if c.waiting.Load() || c.polling.Load() {
		c.dev.fabric.fault("completion queue destroyed in use")
	}
	if n := c.qps.Load(); n > 0 {
		return fmt.Errorf("simqp: completion queue of %d queue pairs destroyed", n)
	}
	c.dev.cqs.Add(-1)
	return nil
}

// push adds a completion.
func (c *cq) push(wc verbs.WC) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.wcs) == c.depth {
		c.dev.fabric.fault("completion queue of %d entries overflows", c.depth)
		return
	}
	c.wcs = append(c.wcs, wc)
	if c.armed {
		c.armed, c.event = false, true
		c.cond.Broadcast()
	}
}
