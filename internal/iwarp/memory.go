package iwarp

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// pageSize is what the addresses of regions are multiples of.
const pageSize = 4096

// maxRegion is the most that one region can have. A scatter/gather element
// cannot name more.
const maxRegion = 1<<31 - pageSize

// A protectionDomain is a verbs.PD.
type protectionDomain struct {
	nic *NIC
	use atomic.Int64 // regions and queue pairs
}

func (p *protectionDomain) Device() verbs.Device { return p.nic }

func (p *protectionDomain) Dealloc() error {
	if n := p.use.Load(); n != 0 {
		return fmt.Errorf("protection domain still has %d regions or queue pairs: %w", n, syscall.EBUSY)
	}
	return nil
}

// RegisterMemory makes a region.
func (p *protectionDomain) RegisterMemory(size int, access verbs.Access) (verbs.MR, error) {
	switch {
	case size <= 0 || size > maxRegion:
		return nil, fmt.Errorf("a region has 1 to %d bytes, not %d: %w", maxRegion, size, syscall.EINVAL)
	case access&verbs.RemoteWrite != 0 && access&verbs.LocalWrite == 0:
		return nil, fmt.Errorf("remote write demands local write: %w", syscall.EINVAL)
	}
	mem, err := allocate(size)
	if err != nil {
		return nil, err
	}
	r := &region{pd: p, mem: mem, access: access}
	p.nic.regions.add(r)
	p.use.Add(1)
	return r, nil
}

// A region is a verbs.MR. One key, the STag, serves local and remote use.
//
// The address of its first byte is not that of the memory but a number made
// up at random, a multiple of the page size: a peer learns nothing of this
// process's memory, and cannot guess where a region is.
type region struct {
	pd     *protectionDomain
	mem    []byte
	base   uint64
	stag   uint32
	access verbs.Access

	// dirty has a bit for each of eraseParts equal parts of the region, set
	// where it holds what came from peers.
	dirty atomic.Uint64

	// A peer's access holds mu for reading while bytes are moved, so that none
	// lands, and none is read, once Deregister has returned. Local access by
	// sends needs no lock: the region's owner sees to it that none is under
	// way.
	mu   sync.RWMutex
	gone bool // deregistered
}

func (r *region) Bytes() []byte { return r.mem }
func (r *region) Addr() uint64  { return r.base }
func (r *region) LKey() uint32  { return r.stag }
func (r *region) RKey() uint32  { return r.stag }

// Deregister waits for what the peer is doing to the region at this moment.
func (r *region) Deregister() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return fmt.Errorf("region is deregistered already: %w", syscall.EINVAL)
	}
	r.pd.nic.regions.remove(r)
	r.gone = true
	mem := r.mem
	r.mem = nil
	r.pd.use.Add(-1)
	return free(mem)
}

// eraseParts is how many parts of a region are erased or left alone, each as a
// whole. One byte that a peer writes at the end of a region must not make us
// touch all of it.
const eraseParts = 64

func (r *region) part() int { return (len(r.mem) + eraseParts - 1) / eraseParts }

// Erase zeroes the parts of the region that peers have written to.
func (r *region) Erase() {
	r.mu.Lock()
	defer r.mu.Unlock()
	part := r.part()
	for dirty := r.dirty.Swap(0); dirty != 0; dirty &= dirty - 1 {
		from := bits.TrailingZeros64(dirty) * part
		clear(r.mem[from:min(from+part, len(r.mem))])
	}
}

// sink is slice for what is about to be written there.
func (r *region) sink(addr uint64, n int) ([]byte, bool) {
	dst, ok := r.slice(addr, n)
	if !ok || n == 0 {
		return dst, ok
	}
	part := r.part()
	from := int(addr-r.base) / part
	to := (int(addr-r.base) + n - 1) / part
	written := ^uint64(0) << from & (^uint64(0) >> (eraseParts - 1 - to))
	if r.dirty.Load()&written != written {
		r.dirty.Or(written)
	}
	return dst, true
}

// slice returns n bytes at an address of the region, and false if they are not
// all within it. Called with mu held, or by the region's owner.
func (r *region) slice(addr uint64, n int) ([]byte, bool) {
	off := addr - r.base // an address below the base wraps to a huge offset
	size := uint64(len(r.mem))
	if off > size || uint64(n) > size-off {
		return nil, false
	}
	return r.mem[off : off+uint64(n) : off+uint64(n)], true
}

// allows reports whether the peer has a right. Called with mu held.
func (r *region) allows(right verbs.Access) bool {
	return r.access&right != 0
}

// A regionTable finds the regions of a NIC by their STags.
type regionTable struct {
	mu sync.RWMutex
	of map[uint32]*region
}

// add gives the region its STag and its address. STags are drawn at random from
// all 32 bits, so a peer that guesses finds one of a thousand regions once in
// four million tries, and its first wrong guess ends its connection. 0 is no
// STag: zero-length operations carry it.
func (t *regionTable) add(r *region) {
	var b [12]byte
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = make(map[uint32]*region)
	}
	for {
		_, _ = rand.Read(b[:]) // never fails: see its documentation
		stag := binary.NativeEndian.Uint32(b[:])
		if stag == 0 || t.of[stag] != nil {
			continue
		}
		r.stag = stag
		// At most 2⁶²: no region ends anywhere near the wrap.
		r.base = binary.NativeEndian.Uint64(b[4:]) >> 2 &^ (pageSize - 1)
		r.base = max(r.base, pageSize)
		t.of[stag] = r
		return
	}
}

func (t *regionTable) remove(r *region) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, r.stag)
}

func (t *regionTable) find(stag uint32) *region {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.of[stag]
}

// A regionCache remembers the few regions that a queue pair's traffic goes to,
// so that a frame need not take the table's lock. It belongs to one direction
// and is guarded by that direction's lock.
type regionCache [4]*region

// find returns the region of a key, or nil. A region found here may be gone.
func (c *regionCache) find(t *regionTable, stag uint32) *region {
	slot := &c[stag%uint32(len(c))]
	if r := *slot; r != nil && r.stag == stag {
		return r
	}
	r := t.find(stag)
	if r != nil {
		*slot = r
	}
	return r
}

// local returns n bytes at addr of a region of the domain, for local use; nil if
// there are none.
func (c *regionCache) local(pd *protectionDomain, key uint32, addr uint64, n int) ([]byte, bool) {
	if n == 0 {
		return nil, true
	}
	r := c.find(&pd.nic.regions, key)
	if r == nil || r.pd != pd {
		return nil, false
	}
	return r.slice(addr, n)
}
