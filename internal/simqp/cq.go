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
	wcs    []completion
	heard  int  // how many of wcs are not of muted sends
	armed  bool // for any completion
	muted  bool // completions of sends wake nobody
	ears   bool // armed while they do not
	event  bool
	awake  bool
	broken error

	lingering bool // somebody is in Linger
	over      bool // whose time is over
	timer     *time.Timer
}

type completion struct {
	verbs.WC
	send bool
}

var (
	_ verbs.Lingerer  = (*cq)(nil)
	_ verbs.SendMuter = (*cq)(nil)
)

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
	return c.take(wc), nil
}

// take moves completions into wc.
func (c *cq) take(wc []verbs.WC) int {
	n := min(len(wc), len(c.wcs))
	for i := range n {
		wc[i] = c.wcs[i].WC
	}
	c.wcs = c.wcs[:copy(c.wcs, c.wcs[n:])]
	c.listen()
	return n
}

// listen counts the completions that end a Linger.
func (c *cq) listen() {
	c.heard = 0
	for i := range c.wcs {
		if !c.muted || !c.wcs[i].send {
			c.heard++
		}
	}
}

func (c *cq) Arm() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.muted {
		c.ears = true
	} else {
		c.armed = true
	}
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
	for c.heard == 0 && !c.awake && c.broken == nil && !c.over {
		slept = block > 0
		c.cond.Wait()
	}
	c.lingering = false
	c.timer.Stop() // if it is too late, the next Linger may return early
	if c.broken != nil {
		return 0, slept, c.broken
	}
	if c.heard > 0 {
		n = c.take(wc)
	}
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

// WakeTime is what it takes on a real processor.
func (c *cq) WakeTime() time.Duration { return 5 * time.Microsecond }

func (c *cq) MuteSends(muted bool) {
	if c.waiting.Load() || c.polling.Load() {
		c.dev.fabric.fault("completion queue muted in use")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.muted = muted
	c.listen()
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

// push adds a completion, of a receive or of a send.
func (c *cq) push(wc verbs.WC, send bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.wcs) == c.depth {
		c.dev.fabric.fault("completion queue of %d entries overflows", c.depth)
		return
	}
	c.wcs = append(c.wcs, completion{wc, send})
	if !c.muted || !send {
		c.heard++
	}
	if c.armed || c.ears && !send {
		c.armed, c.ears, c.event = false, false, true
		c.cond.Broadcast()
	}
	if c.lingering && c.heard > 0 {
		c.cond.Broadcast()
	}
}
