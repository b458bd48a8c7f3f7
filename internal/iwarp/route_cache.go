package iwarp

import (
	"net/netip"
	"sync"
	"time"
)

// A routeCache remembers for a moment which local addresses lead to which
// others: programs that dial often dial the same hosts. What has changed
// meanwhile shows when TCP connects, and the local address of a connection is
// taken from its socket.
type routeCache struct {
	mu sync.Mutex
	of map[routeKey]foundRoute
}

type routeKey struct{ src, dst netip.Addr }

type foundRoute struct {
	local netip.Addr
	when  time.Time
}

const (
	routeTime = time.Second
	maxRoutes = 256
)

// find is route, or what it said a moment ago.
func (c *routeCache) find(src netip.Addr, dst netip.AddrPort) (netip.Addr, error) {
	key := routeKey{src, dst.Addr()}
	now := time.Now()
	c.mu.Lock()
	found, ok := c.of[key]
	c.mu.Unlock()
	if ok && now.Sub(found.when) < routeTime {
		return found.local, nil
	}
	local, err := route(src, dst)
	if err != nil {
		return local, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil || len(c.of) >= maxRoutes {
		c.of = make(map[routeKey]foundRoute)
	}
	c.of[key] = foundRoute{local, now}
	return local, nil
}
