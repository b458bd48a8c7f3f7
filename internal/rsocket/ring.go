package rsocket

import "github.com/rdmanet/rdmanet/internal/verbs"

// A ring is registered memory used round and round. Positions grow without
// bound; a byte at position p lies at p modulo the ring's size.
type ring struct {
	buf  []byte
	addr uint64 // of buf[0], for the device
	key  uint32 // local or remote key, by the ring's use
}

func (r *ring) size() int { return len(r.buf) }

// read copies bytes at pos into p.
func (r *ring) read(p []byte, pos int64) {
	n := copy(p, r.buf[pos%int64(len(r.buf)):])
	copy(p[n:], r.buf)
}

// write copies p to pos.
func (r *ring) write(pos int64, p []byte) {
	n := copy(r.buf[pos%int64(len(r.buf)):], p)
	copy(r.buf, p[n:])
}

// gather describes n bytes at pos: one element, or two where they wrap.
func (r *ring) gather(sge *[verbs.MaxSGE]verbs.SGE, pos int64, n int) (elements uint8) {
	off := int(pos % int64(len(r.buf)))
	first := min(n, len(r.buf)-off)
	sge[0] = verbs.SGE{Addr: r.addr + uint64(off), Length: uint32(first), LKey: r.key}
	if first == n {
		return 1
	}
	sge[1] = verbs.SGE{Addr: r.addr, Length: uint32(n - first), LKey: r.key}
	return 2
}
