package rsocket

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// A Memory keeps the registered memory of a device's streams for use by later
// ones, because registering is the slow part of a dial.
//
// What it keeps are blocks, each with a protection domain of its own. A peer
// that writes outside the windows it was granted, or guesses keys, can
// therefore reach nothing but the memory of its own connection. Within a block,
// the peer can write the region that holds the target SGL and the read ring,
// as the protocol wants it; the write ring, and the memory of messages, lie in
// a second region without remote access. No region can be read remotely.
type Memory struct {
	dev verbs.Device

	mu   sync.Mutex
	idle []*block // by the time of their return, oldest first
	live int      // blocks in use
	trim *time.Timer
}

const (
	// idleTime is how long memory that no stream uses is kept, and maxIdle
	// how many blocks at most.
	idleTime = 2 * time.Second
	maxIdle  = 32
)

// memories holds the Memory of each device that has blocks.
var memories struct {
	sync.Mutex
	of map[verbs.Device]*Memory
}

// MemoryOf returns the Memory of a device, the same for all callers as long as
// there is anything in it.
func MemoryOf(dev verbs.Device) *Memory {
	memories.Lock()
	defer memories.Unlock()
	m := memories.of[dev]
	if m == nil {
		m = &Memory{dev: dev}
		if memories.of == nil {
			memories.of = make(map[verbs.Device]*Memory)
		}
		memories.of[dev] = m
	}
	return m
}

// forget drops m from the table if it is empty. A caller of MemoryOf may still
// hold it: it works on, outside the table.
func (m *Memory) forget() {
	memories.Lock()
	defer memories.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.live == 0 && len(m.idle) == 0 && memories.of[m.dev] == m {
		delete(memories.of, m.dev)
	}
}

// A block is the registered memory of one stream.
type block struct {
	pd       verbs.PD
	remote   verbs.MR // the peer may write: target SGL, read ring
	local    verbs.MR // for the device alone: write ring, messages
	returned time.Time

	ends []int64 // of the send queue, for the next stream
}

// ringOffset is where the read ring begins in the remote region, behind the
// target SGL. It keeps the ring's pages whole.
const ringOffset = 4096

// get returns a block whose remote region has room for a read ring of the given
// size and whose local region has the given size. Its target SGL is zero, and
// its read ring holds nothing of another connection.
func (m *Memory) get(ring, local int) (*block, error) {
	m.mu.Lock()
	for i := len(m.idle) - 1; i >= 0; i-- {
		b := m.idle[i]
		if len(b.remote.Bytes()) == ringOffset+ring && len(b.local.Bytes()) == local {
			m.idle = append(m.idle[:i], m.idle[i+1:]...)
			m.live++
			m.mu.Unlock()
			return b, nil
		}
	}
	m.live++
	idle := len(m.idle)
	m.mu.Unlock()

	b, err := m.register(ring, local)
	if err != nil && idle > 0 {
		// The limit on locked memory counts what lies idle too.
		m.Trim()
		b, err = m.register(ring, local)
	}
	if err != nil {
		m.mu.Lock()
		m.live--
		m.mu.Unlock()
		m.forget()
	}
	return b, err
}

func (m *Memory) register(ring, local int) (*block, error) {
	pd, err := m.dev.AllocPD()
	if err != nil {
		return nil, fmt.Errorf("allocate protection domain: %w", err)
	}
	b := &block{pd: pd}
	b.remote, err = pd.RegisterMemory(ringOffset+ring, verbs.LocalWrite|verbs.RemoteWrite)
	if err == nil {
		b.local, err = pd.RegisterMemory(local, verbs.LocalWrite)
	}
	if err != nil {
		err = fmt.Errorf("register %d KiB of memory: %w", (ringOffset+ring+local)>>10, err)
		return nil, errors.Join(err, b.free())
	}
	return b, nil
}

// put takes a block back. The queue pair that used it must be destroyed. What a
// connection has received is erased, because a peer may announce data that it
// has not written.
func (m *Memory) put(b *block) error {
	if e, ok := b.remote.(verbs.Eraser); ok {
		e.Erase()
	} else {
		clear(b.remote.Bytes())
	}
	if !m.keeps() {
		m.mu.Lock()
		m.live--
		m.mu.Unlock()
		err := b.free()
		m.forget()
		return err
	}
	m.mu.Lock()
	m.live--
	b.returned = time.Now()
	m.idle = append(m.idle, b)
	var extra *block
	if len(m.idle) > maxIdle {
		extra = m.idle[0]
		m.idle = append(m.idle[:0], m.idle[1:]...)
	}
	if m.trim == nil {
		m.trim = time.AfterFunc(idleTime, m.trimIdle)
	}
	m.mu.Unlock()
	if extra != nil {
		return extra.free()
	}
	return nil
}

// keeps reports whether blocks may be used again. Real iWARP devices let a peer
// invalidate any region of its connection's domain by a Send (siw, for one), and do
// not tell: the next connection would die with its first byte.
func (m *Memory) keeps() bool {
	info := m.dev.Info()
	return info.Transport != verbs.IWARP || info.CallerDriven
}

// lose gives up on a block that the device may still use: it is never freed.
func (m *Memory) lose() {
	m.mu.Lock()
	m.live--
	m.mu.Unlock()
	m.forget()
}

// trimIdle frees what has been idle for idleTime.
func (m *Memory) trimIdle() {
	now := time.Now()
	m.mu.Lock()
	n := 0
	for n < len(m.idle) && now.Sub(m.idle[n].returned) >= idleTime {
		n++
	}
	old := append([]*block(nil), m.idle[:n]...)
	m.idle = append(m.idle[:0], m.idle[n:]...)
	m.trim = nil
	if len(m.idle) > 0 {
		m.trim = time.AfterFunc(idleTime-now.Sub(m.idle[0].returned), m.trimIdle)
	}
	m.mu.Unlock()
	m.freeAll(old)
}

// Trim frees all that is idle.
func (m *Memory) Trim() {
	m.mu.Lock()
	old := m.idle
	m.idle = nil
	if m.trim != nil {
		m.trim.Stop()
		m.trim = nil
	}
	m.mu.Unlock()
	m.freeAll(old)
}

// freeAll frees blocks that no queue pair uses. What the device refuses to free
// there is nobody to tell: it goes with the process.
func (m *Memory) freeAll(blocks []*block) {
	for _, b := range blocks {
		_ = b.free()
	}
	m.forget()
}

func (b *block) free() error {
	var errs []error
	for _, mr := range []verbs.MR{b.remote, b.local} {
		if mr != nil {
			errs = append(errs, mr.Deregister())
		}
	}
	errs = append(errs, b.pd.Dealloc())
	return errors.Join(errs...)
}
