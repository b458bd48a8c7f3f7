package rsocket

// A sendQueue counts the slots of the queue pair's send queue, and the bytes of
// the write ring that the work in them still needs. A device tells neither: a
// full queue is an error at best, and a request that asks for no completion is
// known to be done only when a later one completes. Guarded by Stream.mu.
type sendQueue struct {
	depth   int
	posted  uint64 // requests posted
	retired uint64 // requests known to be done
	asked   uint64 // requests up to and with the last that was signalled

	// The write ring: the writer puts bytes in at head; tail follows when the
	// work that needs them is done.
	head, tail int64
	askedHead  int64 // head at the last signalled request

	// ends[i] is head behind the request whose number is i modulo depth.
	ends []int64
}

// init sets the queue up. ends is used if it is of the right size.
func (q *sendQueue) init(depth int, ends []int64) {
	if len(ends) != depth {
		ends = make([]int64, depth)
	}
	*q = sendQueue{depth: depth, ends: ends}
}

// used is the number of slots taken.
func (q *sendQueue) used() int { return int(q.posted - q.retired) }

// add takes a slot for a request that needs n more bytes of the write ring, and
// returns the request's number.
func (q *sendQueue) add(n int) uint64 {
	q.head += int64(n)
	id := q.posted
	q.ends[id%uint64(q.depth)] = q.head
	q.posted++
	return id
}

// wantsSignal reports whether the last request should ask for a completion, so
// that a quarter of the slots, and of a ring of the given size, at most are
// taken by requests of which none ever tells that they are done.
func (q *sendQueue) wantsSignal(ring int) bool {
	return int(q.posted-q.asked) >= q.depth/4 || q.head-q.askedHead >= int64(ring/4)
}

// signal notes that the last request asks for a completion.
func (q *sendQueue) signal() { q.asked, q.askedHead = q.posted, q.head }

// retire takes the completion of a request, and so of all before it, but for a
// Read: siw lets what was posted behind a Read complete first, and a Read needs
// nothing that is kept here. It reports false if there is no such request.
func (q *sendQueue) retire(id uint64) bool {
	if id >= q.posted {
		return false
	}
	if id >= q.retired {
		q.tail = q.ends[id%uint64(q.depth)]
		q.retired = id + 1
	}
	return true
}
