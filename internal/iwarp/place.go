package iwarp

import "github.com/rdmanet/rdmanet/internal/verbs"

// This file is what a frame means: accept checks it, headers and destination as
// a whole, before anything of it is placed; endFrame acts on it when all of it
// has been.

// accept checks a frame and sets where its payload goes. b are its headers.
func (q *queuePair) accept(h *header, b []byte) *violation {
	switch {
	case h.op == opWrite:
		return q.acceptWrite(h)
	case h.op == opReadResponse:
		return q.acceptResponse(h)
	case h.op.send():
		return q.acceptSend(h)
	case h.op == opReadRequest:
		return q.acceptRead(h)
	}
	return q.acceptTerminate(h, b)
}

// endFrame acts on a frame that has been placed.
func (q *queuePair) endFrame(h *header) {
	r := &q.rx
	switch {
	case h.op == opReadResponse:
		r.answer.got += uint32(h.payload)
		if h.last {
			r.answer.active = false
			q.readDone()
		}
	case h.op.send():
		r.recv.got += uint32(h.payload)
		if h.last {
			q.received()
		}
	case h.op == opReadRequest:
		r.msn[queueRead]++
		q.respond(&h.read)
	case h.op == opTerminate:
		q.end(ending{err: &terminated{r.terminate}, readStatus: r.terminateRead})
	}
}

// acceptWrite checks an RDMA Write. One of no length is not checked: it may
// carry any STag, and serves as a sign of life.
func (q *queuePair) acceptWrite(h *header) *violation {
	if h.payload == 0 {
		return nil
	}
	r := q.rx.cache.find(&q.nic.regions, h.stag)
	if r == nil {
		return errWriteSTag
	}
	if r.pd != q.pd {
		return errWritePD
	}
	if h.to+uint64(h.payload) < h.to {
		return errWriteWrap
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	switch _, ok := r.slice(h.to, h.payload); {
	case r.gone:
		return errWriteSTag
	case !ok:
		return errWriteBounds
	case !r.allows(verbs.RemoteWrite):
		return errWriteRights
	}
	dst, _ := r.sink(h.to, h.payload)
	q.rx.dst, q.rx.region = dst, r
	return nil
}

// acceptSend checks a segment of a Send and finds the receive for it.
//
// A Send must not invalidate: a region here outlives the connection that it was
// granted to, and what a peer took from it would be missing to the next one.
func (q *queuePair) acceptSend(h *header) *violation {
	r := &q.rx
	switch {
	case h.msn != r.msn[queueSend]:
		return errMessageNumber
	case !r.recv.active && h.mo != 0 || r.recv.active && h.mo != r.recv.got:
		return errMessageOffset
	case h.op.invalidates():
		return errInvalidate
	}
	if !r.recv.active {
		wr, ok := q.rq.pop()
		if !ok {
			return errNoReceive
		}
		r.recv = pendingReceive{active: true, wr: wr}
	}
	sge := &r.recv.wr.SGE
	if uint64(r.recv.got)+uint64(h.payload) > uint64(sge.Length) {
		return errSendLong
	}
	if h.payload == 0 {
		return nil
	}
	region := r.cache.find(&q.nic.regions, sge.LKey)
	if region == nil || region.pd != q.pd || region.access&verbs.LocalWrite == 0 {
		return errReceiveMR
	}
	region.mu.RLock()
	defer region.mu.RUnlock()
	dst, ok := region.sink(sge.Addr+uint64(r.recv.got), h.payload)
	if !ok || region.gone {
		return errReceiveMR
	}
	r.dst, r.region = dst, region
	return nil
}

// received completes the receive of a Send.
func (q *queuePair) received() {
	r := &q.rx
	r.msn[queueSend]++
	r.recv.active = false
	q.cq.push(verbs.WC{ID: r.recv.wr.ID, Opcode: verbs.WCRecv, ByteLen: r.recv.got}, r.quiet)
}

// acceptRead checks an RDMA Read Request. One of no length may carry any STag.
func (q *queuePair) acceptRead(h *header) *violation {
	switch {
	case h.msn != q.rx.msn[queueRead]:
		return errMessageNumber
	case h.mo != 0:
		return errMessageOffset
	case !h.last:
		return errReadSplit
	case !q.mayRespond():
		return errReadDepth
	}
	if h.read.size == 0 {
		return nil
	}
	_, v := q.readSource(&q.rx.cache, &h.read)
	return v
}

// readSource finds what the peer wants to read.
func (q *queuePair) readSource(cache *regionCache, rr *readRequest) (*region, *violation) {
	r := cache.find(&q.nic.regions, rr.srcSTag)
	if r == nil {
		return nil, errReadSTag
	}
	if r.pd != q.pd {
		return nil, errReadPD
	}
	if rr.srcTO+uint64(rr.size) < rr.srcTO {
		return nil, errReadWrap
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	switch _, ok := r.slice(rr.srcTO, int(rr.size)); {
	case r.gone:
		return nil, errReadSTag
	case rr.size > maxRegion || !ok:
		return nil, errReadBounds
	case !r.allows(verbs.RemoteRead):
		return nil, errReadRights
	}
	return r, nil
}

// acceptResponse checks a segment of an RDMA Read Response against the oldest
// Read that is outstanding: it goes exactly where the request asked, in order,
// and as a whole is exactly as long.
func (q *queuePair) acceptResponse(h *header) *violation {
	a := &q.rx.answer
	if !a.active {
		read, ok := q.oldestRead()
		if !ok {
			return errResponseNone
		}
		*a = readAnswer{active: true, read: read}
	}
	end := uint64(a.got) + uint64(h.payload)
	switch {
	case h.stag != a.read.sink.LKey:
		return errResponseSTag
	case h.to != a.read.sink.Addr+uint64(a.got) || end > uint64(a.read.sink.Length):
		return errResponseBounds
	case h.last != (end == uint64(a.read.sink.Length)):
		return errResponseSize
	case h.payload == 0:
		return nil
	}
	region := q.rx.cache.find(&q.nic.regions, h.stag)
	if region == nil || region.pd != q.pd {
		return errResponseMR
	}
	region.mu.RLock()
	defer region.mu.RUnlock()
	dst, ok := region.sink(h.to, h.payload)
	if !ok || region.gone {
		return errResponseMR
	}
	q.rx.dst, q.rx.region = dst, region
	return nil
}

// acceptTerminate reads the peer's Terminate, which is in the buffer as a whole.
func (q *queuePair) acceptTerminate(h *header, b []byte) *violation {
	body := b[untaggedSize:]
	q.rx.terminate = parseTerminate(body)
	q.rx.terminateRead = terminatedRead(body)
	return nil
}
