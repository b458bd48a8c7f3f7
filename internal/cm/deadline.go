package cm

import (
	"sync"
	"time"
)

// A Deadline is a channel that is closed when a moment has come which may be
// moved while somebody waits. The zero value is no deadline.
type Deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	over  chan struct{} // made when first needed
	past  bool          // over is closed
}

// Wait returns the channel that is closed at the deadline. It stays the right
// one as long as the deadline has not passed.
func (d *Deadline) Wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.channel()
}

func (d *Deadline) channel() chan struct{} {
	if d.over == nil {
		d.over = make(chan struct{})
	}
	return d.over
}

// Set moves the deadline; zero is none.
func (d *Deadline) Set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.past {
		d.over, d.past = nil, false
	}
	if t.IsZero() {
		return
	}
	over := d.channel()
	left := time.Until(t)
	if left <= 0 {
		d.past = true
		close(over)
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(left, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.timer == timer { // not moved since
			d.timer, d.past = nil, true
			close(over)
		}
	})
	d.timer = timer
}
