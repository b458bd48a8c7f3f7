package cm

import "sync"

// An inbox keeps an identifier's events for the goroutine that works on it. Its
// put is a handler for ID.Handle: it never blocks. One goroutine takes.
type inbox struct {
	ready chan struct{} // has a token whenever the queue may not be empty

	mu    sync.Mutex
	queue []Event
}

func newInbox() *inbox { return &inbox{ready: make(chan struct{}, 1)} }

func (b *inbox) put(ev Event) {
	b.mu.Lock()
	b.queue = append(b.queue, ev)
	b.mu.Unlock()
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// take returns the oldest event, if there is one.
func (b *inbox) take() (Event, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		return Event{}, false
	}
	ev := b.queue[0]
	b.queue = b.queue[1:]
	return ev, true
}

// next waits for an event until done is closed.
func (b *inbox) next(done <-chan struct{}) (Event, bool) {
	for {
		if ev, ok := b.take(); ok {
			return ev, true
		}
		select {
		case <-b.ready:
		case <-done:
			return Event{}, false
		}
	}
}

// drain takes all that is left.
func (b *inbox) drain() []Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := b.queue
	b.queue = nil
	return kept
}
