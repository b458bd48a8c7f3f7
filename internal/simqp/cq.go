package simqp

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

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

	lingering bool // somebody is in Linger
	over      bool // whose time is over
	timer     *time.Timer
}

var _ verbs.Lingerer = (*cq)(nil)

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

// Linger waits for both times together.
func (c *cq) Linger(wc []verbs.WC, spin, block time.Duration) (n int, slept bool, err error) {
	if !c.polling.CompareAndSwap(false, true) {
		c.dev.fabric.fault("Linger during Poll")
	}
	defer c.polling.Store(false)
	if !c.waiting.CompareAndSwap(false, true) {
		c.dev.fabric.fault("Linger during Wait")
	}
	defer c.waiting.Store(false)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lingering, c.over = true, false
	if c.timer == nil {
		c.timer = time.AfterFunc(spin+block, c.timeOver)
	} else {
		c.timer.Reset(spin + block)
	}
	for len(c.wcs) == 0 && !c.awake && c.broken == nil && !c.over {
		slept = block > 0
		c.cond.Wait()
	}
	c.lingering = false
	c.timer.Stop() // if it is too late, the next Linger may return early
	if c.broken != nil {
		return 0, slept, c.broken
	}
	n = copy(wc, c.wcs)
	c.wcs = c.wcs[:copy(c.wcs, c.wcs[n:])]
	return n, slept, nil
}

func (c *cq) timeOver() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.cond.Broadcast()
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
	if c.lingering {
		c.cond.Broadcast()
	}
}
