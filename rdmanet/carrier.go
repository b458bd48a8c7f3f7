package rdmanet

import (
	"context"
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
	seen time.Time // when what is preferred was last tried behind a dial
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
		m.put(key, carrier{name: name, when: time.Now(), seen: m.of[key].seen})
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

const (
	// recheckTime is how long what is preferred may take behind a dial that Fallback
	// has carried, and recheckEvery how far apart such tries are.
	recheckTime  = 2 * time.Second
	recheckEvery = 5 * time.Second
)

// recheck tries, behind a dial that Fallback has carried, what is preferred to it. A
// server that speaks RDMA also takes TCP's connections, but serves none of them: if it
// was only slow, or has learnt RDMA since, the next dial must not begin with Fallback.
func (m *carrierMemory) recheck(key carrierKey, rdma []runner) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.of[key]
	if !ok || time.Since(c.seen) < recheckEvery {
		return
	}
	c.seen = time.Now()
	m.of[key] = c
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), recheckTime)
		defer cancel()
		conn, winner, _ := cm.Race(ctx, 0, ways(rdma), discardConn)
		if winner < 0 {
			return
		}
		discardConn(conn)
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.of, key)
	}()
}
