package iwarp

import (
	"sync"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// The rings of queues are most of what a connection needs of memory, and most
// connections of a program need rings of the same sizes. So those of connections
// that have gone are used again.
var (
	sendRings       ringPool[verbs.SendWR]
	recvRings       ringPool[verbs.RecvWR]
	completionRings ringPool[verbs.WC]
)

// A ringPool holds rings by their size.
type ringPool[T any] struct {
	sizes sync.Map // int to *sync.Pool of *[]T
}

func (p *ringPool[T]) of(size int) *sync.Pool {
	if pool, ok := p.sizes.Load(size); ok {
		return pool.(*sync.Pool)
	}
	pool, _ := p.sizes.LoadOrStore(size, new(sync.Pool))
	return pool.(*sync.Pool)
}

// get returns a ring, all zero.
func (p *ringPool[T]) get(size int) []T {
	if ring, ok := p.of(size).Get().(*[]T); ok {
		return *ring
	}
	return make([]T, size)
}

func (p *ringPool[T]) put(ring []T) {
	clear(ring)
	p.of(len(ring)).Put(&ring)
}

// wrap is i modulo n for an i below 2·n, without a division: a connection's end
// flushes hundreds of receives.
func wrap(i, n int) int {
	if i >= n {
		return i - n
	}
	return i
}
