package simqp

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// A pd is a protection domain.
type pd struct {
	dev *Device

	mu   sync.Mutex
	mrs  []*mr
	gone bool
}

func (p *pd) Device() verbs.Device { return p.dev }

func (p *pd) RegisterMemory(size int, access verbs.Access) (verbs.MR, error) {
	if fail := p.dev.FailRegister; fail != nil {
		if err := fail(size); err != nil {
			return nil, err
		}
	}
	f := p.dev.fabric
	f.mu.Lock()
	m := &mr{pd: p, buf: make([]byte, size), addr: f.nextAddr, lkey: f.nextKey, rkey: f.nextKey + 1, access: access}
	f.nextAddr += uint64(size) + 1<<20
	f.nextKey += 0x10
	f.mu.Unlock()
	p.mu.Lock()
	p.mrs = append(p.mrs, m)
	p.mu.Unlock()
	p.dev.mrs.Add(1)
	p.dev.registrations.Add(1)
	return m, nil
}

func (p *pd) Dealloc() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mrs) > 0 || p.gone {
		return fmt.Errorf("simqp: protection domain with %d regions deallocated", len(p.mrs))
	}
	p.gone = true
	p.dev.pds.Add(-1)
	return nil
}

// find returns n bytes at addr of the region with the given key, or nil.
func (p *pd) find(addr uint64, n int, key uint32, remote bool, need verbs.Access) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.mrs {
		k := m.lkey
		if remote {
			k = m.rkey
		}
		if k != key || m.access&need != need || addr < m.addr {
			continue
		}
		off := addr - m.addr
		if off > uint64(len(m.buf)) || uint64(n) > uint64(len(m.buf))-off {
			return nil
		}
		return m.buf[off:][:n]
	}
	return nil
}

// An mr is a memory region.
type mr struct {
	pd         *pd
	buf        []byte
	addr       uint64
	lkey, rkey uint32
	access     verbs.Access
}

func (m *mr) Bytes() []byte { return m.buf }
func (m *mr) Addr() uint64  { return m.addr }
func (m *mr) LKey() uint32  { return m.lkey }
func (m *mr) RKey() uint32  { return m.rkey }

func (m *mr) Deregister() error {
	m.pd.mu.Lock()
	defer m.pd.mu.Unlock()
	for i, other := range m.pd.mrs {
		if other == m {
			m.pd.mrs = append(m.pd.mrs[:i], m.pd.mrs[i+1:]...)
			m.pd.dev.mrs.Add(-1)
			return nil
		}
	}
	return fmt.Errorf("simqp: region deregistered twice")
}

// place copies src to registered memory as a device would: whole words of a
// small aligned piece at once.
func place(dst, src []byte) {
	if len(src) > 64 || len(src)%4 != 0 || len(src) == 0 || uintptr(unsafe.Pointer(&dst[0]))%4 != 0 {
		copy(dst, src)
		return
	}
	for i := 0; i < len(src); i += 4 {
		var word uint32
		copy((*[4]byte)(unsafe.Pointer(&word))[:], src[i:])
		atomic.StoreUint32((*uint32)(unsafe.Pointer(&dst[i])), word)
	}
}
