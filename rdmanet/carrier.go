package rdmanet

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// carriers remembers what carried the last connection to an address, if that was
// not the first choice: the next dial begins with it, and does not wait for what
// the peer does not have.
var carriers carrierMemory

const (
	// carrierTime is how long. It is not prolonged by dials that begin with what is
	// remembered, so that a peer which has learnt better is found after it.
	carrierTime = 2 * time.Minute

	// maxCarriers bounds the memory: beyond it the oldest is forgotten.
	maxCarriers = 1024
)

// A carrierKey is what is dialed, and what of the Dialer has a part in who wins.
type carrierKey struct {
	network, address, local string
	provider                Provider
}

type carrier struct {
	name string // the runner's
	when time.Time
}

type carrierMemory struct {
	mu sync.Mutex
	of map[carrierKey]carrier
}

// order puts the runner that is remembered before the others.
func (m *carrierMemory) order(key carrierKey, runners []runner) []runner {
	m.mu.Lock()
	c, ok := m.of[key]
	if ok && time.Since(c.when) >= carrierTime {
		delete(m.of, key)
		ok = false
	}
	m.mu.Unlock()
	i := slices.IndexFunc(runners, func(r runner) bool { return r.name == c.name })
	if !ok || i <= 0 {
		return runners
	}
	return slices.Concat(runners[i:i+1], runners[:i], runners[i+1:])
}

// won says who has won a dial in which the runners had this order, and who had
// failed before. preferred is their order of preference. What was preferred to the
// winner counts if it was tried, and if this machine has it.
func (m *carrierMemory) won(key carrierKey, preferred, order []runner, winner int, failed []cm.Failure) {
	name := order[winner].name
	unavailable := func(i int) bool {
		return slices.ContainsFunc(failed, func(f cm.Failure) bool { return f.Way == i && errors.Is(f.Err, errUnavailable) })
	}
	rank := func(name string) int {
		return slices.IndexFunc(preferred, func(r runner) bool { return r.name == name })
	}
	better := false
	for i, r := range order[:winner] {
		better = better || rank(r.name) < rank(name) && !unavailable(i)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case better:
		m.put(key, carrier{name, time.Now()})
	case winner > 0 || rank(name) == 0:
		delete(m.of, key) // what is remembered has lost, or is the first choice
	}
}

func (m *carrierMemory) put(key carrierKey, c carrier) {
	if m.of == nil {
		m.of = make(map[carrierKey]carrier)
	}
	if _, ok := m.of[key]; !ok && len(m.of) >= maxCarriers {
		var oldest carrierKey
		first := c.when
		for k, old := range m.of {
			if !old.when.After(first) {
				oldest, first = k, old.when
			}
		}
		delete(m.of, oldest)
	}
	m.of[key] = c
}
