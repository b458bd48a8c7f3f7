package iwarp

import "encoding/binary"

// A batch is a run of whole frames made ready for one system call: headers,
// trailers and small payloads in its own memory, large payloads where they lie
// in registered memory. What the socket does not take stays in it until there is
// room. Connections share batches: one has a batch only while there is something
// to send.
type batch struct {
	vec    [maxVec][]byte
	homes  [maxVec][]byte // of slices that are borrowed: see payload
	n      int            // slices in vec
	first  int            // the first that has bytes left to write
	joined bool           // the last slice ends where scratch is used up to, and can grow

	scratch [scratchSize]byte
	used    int
	most    int // of used, since the batch came from the pool

	size int // bytes of all frames
	sent int // bytes of them written

	// ends says up to where in the batch each of the requests goes that end in
	// it.
	ends   [maxEnds]int
	nends  int
	passed int // requests whose end has been written

	source *region // what a Read Response in the batch reads; nil if none
	record bool    // the batch is one frame, to be kept apart
}

// A payload is that of a frame, in up to two pieces. A piece with a home is
// borrowed, not registered memory: if it cannot be sent at once it is copied
// there, as many bytes of registered memory.
type payload struct{ data, home [2][]byte }

const (
	scratchSize = 2048
	maxEnds     = 64

	// copyLimit is up to how long payloads are copied rather than pointed at.
	copyLimit = 256
)

// putBatch gives a batch to the pool, as good as new.
func putBatch(b *batch) {
	b.reset()
	clear(b.scratch[:b.most])
	b.most = 0
	batches.Put(b)
}

// reset empties the batch and lets go of memory that it pointed at.
func (b *batch) reset() {
	b.most = max(b.most, b.used)
	clear(b.ends[:b.nends])
	clear(b.vec[:b.n])
	clear(b.homes[:b.n])
	b.n, b.first, b.joined, b.used = 0, 0, false, 0
	b.size, b.sent, b.nends, b.passed = 0, 0, 0, 0
	b.source, b.record = nil, false
}

// room reports whether any frame still fits: its headers, perhaps in a slice of
// their own, two pieces of payload, its trailer.
func (b *batch) room() bool {
	slices := 3
	if !b.joined {
		slices++
	}
	return b.n+slices <= maxVec && b.used+maxHeader+copyLimit+maxTrailer <= scratchSize && b.nends < maxEnds && !b.record
}

// header is where the next frame's headers are to be written.
func (b *batch) header() []byte { return b.scratch[b.used:] }

// grow takes the next n bytes of scratch into the frames.
func (b *batch) grow(n int) {
	from := b.used
	b.used += n
	b.size += n
	if b.joined {
		last := &b.vec[b.n-1]
		*last = b.scratch[from-len(*last) : b.used]
		return
	}
	b.vec[b.n] = b.scratch[from:b.used]
	b.n++
	b.joined = true
}

// add adds payload.
func (b *batch) add(p, home []byte) {
	if len(p) == 0 {
		return
	}
	b.vec[b.n], b.homes[b.n] = p, home
	b.n++
	b.size += len(p)
	b.joined = false
}

// frame adds a frame: its headers, which have been written at header and are so
// long, its payload, its trailer.
func (b *batch) frame(headers int, p payload, crc bool) {
	p0, p1 := p.data[0], p.data[1]
	head := b.scratch[b.used : b.used+headers]
	ulpdu := int(binary.BigEndian.Uint16(head))
	var sum uint32
	if crc {
		sum = addCRC(addCRC(addCRC(0, head), p0), p1)
	}
	b.grow(headers)
	if len(p0)+len(p1) <= copyLimit {
		n := copy(b.scratch[b.used:], p0)
		n += copy(b.scratch[b.used+n:], p1)
		b.grow(n)
	} else {
		b.add(p0, p.home[0])
		b.add(p1, p.home[1])
	}
	pad := padding(ulpdu)
	tail := b.scratch[b.used : b.used+pad+crcSize]
	clear(tail)
	if crc {
		putCRC(tail[pad:], addCRC(sum, tail[:pad]))
	}
	b.grow(len(tail))
}

// copyBorrowed copies what is borrowed, as far as it has not been written.
func (b *batch) copyBorrowed() {
	for i := b.first; i < b.n; i++ {
		home := b.homes[i]
		if home == nil {
			continue
		}
		home = home[len(home)-len(b.vec[i]):]
		copy(home, b.vec[i])
		b.vec[i], b.homes[i] = home, nil
	}
}

// endRequest notes that a request ends with the last frame.
func (b *batch) endRequest() {
	b.ends[b.nends] = b.size
	b.nends++
}

// rest is what is left to write.
func (b *batch) rest() [][]byte { return b.vec[b.first:b.n] }

func (b *batch) done() bool { return b.sent == b.size }

// advance notes that n bytes have been written, and returns how many requests
// end with them.
func (b *batch) advance(n int) int {
	b.sent += n
	for n > 0 {
		v := &b.vec[b.first]
		if n < len(*v) {
			*v = (*v)[n:]
			break
		}
		n -= len(*v)
		*v = nil
		b.first++
	}
	before := b.passed
	for b.passed < b.nends && b.ends[b.passed] <= b.sent {
		b.passed++
	}
	return b.passed - before
}
