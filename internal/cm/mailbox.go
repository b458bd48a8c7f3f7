package cm

import "sync"

// Mailbox is how a provider hands an identifier its events: it keeps what comes
// before there is a handler, in order, and is embedded in a provider's ID. The
// zero value is ready.
//
// The handler is called with the mailbox locked, so that a change of handlers
// loses and reorders nothing; it must therefore not block and not call Handle.
type Mailbox struct {
	mu      sync.Mutex
	pending []Event
	handler func(Event)
	closed  bool
}

// Handle sets the handler and gives it what has been kept.
func (m *Mailbox) Handle(fn func(Event)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.handler = fn
	if fn == nil {
		return
	}
	kept := m.pending
	m.pending = nil
	for _, ev := range kept {
		fn(ev)
	}
}

// Deliver hands over an event. It reports false if the mailbox is closed: the
// event is then dropped, and its Request, if it has one, is the caller's to
// destroy.
func (m *Mailbox) Deliver(ev Event) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return false
	case m.handler != nil:
		m.handler(ev)
	default:
		m.pending = append(m.pending, ev)
	}
	return true
}

// Close ends delivery and returns the requests that nobody has taken; the
// caller destroys them. When it has returned, the handler runs no more.
func (m *Mailbox) Close() []ID {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed, m.handler = true, nil
	var ids []ID
	for _, ev := range m.pending {
		if ev.Request != nil {
			ids = append(ids, ev.Request)
		}
	}
	m.pending = nil
	return ids
}
