package iwarp

import "encoding/binary"

// This file is the wire format of frames, as functions over bytes: FPDUs (RFC
// 5044, section 4), DDP segments (RFC 5041, section 4) and RDMAP headers (RFC
// 5040, section 4).
//
//	tagged        length 2 | DDP control 1 | RDMAP control 1 | STag 4 | tagged offset 8 | payload
//	untagged      length 2 | DDP control 1 | RDMAP control 1 | STag to invalidate 4 |
//	              queue number 4 | message number 4 | message offset 4 | payload
//	either        ... | 0 to 3 bytes of padding | CRC32c 4
//
// The length is that of the ULPDU: what lies between the length and the padding.

// Sizes in bytes. Those of headers count the length field that leads a frame.
const (
	lengthSize      = 2
	crcSize         = 4
	taggedSize      = 16
	untaggedSize    = 20
	readRequestSize = untaggedSize + 28

	maxHeader  = readRequestSize
	maxTrailer = 3 + crcSize
	maxULPDU   = 1<<16 - 1

	// maxFrame is the size of the longest frame.
	maxFrame = lengthSize + maxULPDU + maxTrailer
)

// An opcode is RDMAP's (RFC 5040, figure 4).
type opcode uint8

const (
	opWrite              opcode = 0
	opReadRequest        opcode = 1
	opReadResponse       opcode = 2
	opSend               opcode = 3
	opSendInvalidate     opcode = 4
	opSendSolicited      opcode = 5
	opSendSolicitedInval opcode = 6
	opTerminate          opcode = 7
)

func (o opcode) String() string {
	switch o {
	case opWrite:
		return "RDMA Write"
	case opReadRequest:
		return "RDMA Read Request"
	case opReadResponse:
		return "RDMA Read Response"
	case opSend, opSendSolicited:
		return "Send"
	case opSendInvalidate, opSendSolicitedInval:
		return "Send with Invalidate"
	case opTerminate:
		return "Terminate"
	}
	return "reserved opcode"
}

func (o opcode) tagged() bool { return o == opWrite || o == opReadResponse }

func (o opcode) send() bool { return o >= opSend && o <= opSendSolicitedInval }

func (o opcode) invalidates() bool { return o == opSendInvalidate || o == opSendSolicitedInval }

// The queues of untagged messages.
const (
	queueSend      = 0
	queueRead      = 1
	queueTerminate = 2
)

// queue is the queue of an untagged opcode.
func (o opcode) queue() uint32 {
	switch o {
	case opReadRequest:
		return queueRead
	case opTerminate:
		return queueTerminate
	}
	return queueSend
}

const (
	ddpTagged   = 0x80
	ddpLast     = 0x40
	ddpVersion  = 1
	versionMask = 0x03

	rdmapVersion      = 1
	rdmapVersionShift = 6
	opcodeMask        = 0x0f
)

// A header is all that leads a frame's payload.
type header struct {
	ulpdu   int // the length field
	payload int // bytes behind the headers
	last    bool
	op      opcode

	// tagged
	stag uint32
	to   uint64

	// untagged
	invalidate uint32
	qn         uint32
	msn        uint32
	mo         uint32

	read readRequest // of opReadRequest
}

// A readRequest is the header of an RDMA Read Request behind the untagged one.
type readRequest struct {
	sinkSTag uint32
	sinkTO   uint64
	size     uint32
	srcSTag  uint32
	srcTO    uint64
}

// sizeOf is the size of a frame's headers with its length field, of a Terminate
// the size of all but padding and CRC. It wants the first four bytes of the
// frame, and checks what they say.
func sizeOf(b []byte) (int, *violation) {
	ulpdu := int(binary.BigEndian.Uint16(b))
	ddp, rdmap := b[2], b[3]
	op := opcode(rdmap & opcodeMask)
	tagged := ddp&ddpTagged != 0
	switch {
	case ddp&versionMask != ddpVersion && tagged:
		return 0, errTaggedVersion
	case ddp&versionMask != ddpVersion:
		return 0, errUntaggedVersion
	case rdmap>>rdmapVersionShift != rdmapVersion:
		return 0, errRDMAPVersion
	case op > opTerminate || tagged != op.tagged():
		return 0, errOpcode
	}
	size := untaggedSize
	switch {
	case tagged:
		size = taggedSize
	case op == opReadRequest:
		size = readRequestSize
	case op == opTerminate:
		size = untaggedSize + terminateControlSize
	}
	switch n := lengthSize + ulpdu; {
	case n < size:
		return 0, errLength
	case n > size && op == opReadRequest:
		return 0, errTooLong
	case op == opTerminate:
		return n, nil
	}
	return size, nil
}

// parseHeader reads the headers of a frame. b holds at least the bytes of them,
// as sizeOf tells.
func parseHeader(b []byte) (h header, v *violation) {
	size, v := sizeOf(b)
	if v != nil {
		return header{}, v
	}
	be := binary.BigEndian
	h.ulpdu = int(be.Uint16(b))
	h.payload = lengthSize + h.ulpdu - size
	h.last = b[2]&ddpLast != 0
	h.op = opcode(b[3] & opcodeMask)
	if h.op.tagged() {
		h.stag = be.Uint32(b[4:])
		h.to = be.Uint64(b[8:])
		return h, nil
	}
	h.invalidate = be.Uint32(b[4:])
	h.qn = be.Uint32(b[8:])
	h.msn = be.Uint32(b[12:])
	h.mo = be.Uint32(b[16:])
	switch {
	case h.qn > queueTerminate:
		return h, errQueue
	case h.qn != h.op.queue():
		return h, errOpcode
	}
	if h.op == opReadRequest {
		h.read = readRequest{
			sinkSTag: be.Uint32(b[20:]), sinkTO: be.Uint64(b[24:]), size: be.Uint32(b[32:]),
			srcSTag: be.Uint32(b[36:]), srcTO: be.Uint64(b[40:]),
		}
	}
	return h, nil
}

// trailer is the size of the padding and the CRC behind a ULPDU.
func trailer(ulpdu int) int { return padding(ulpdu) + crcSize }

func padding(ulpdu int) int { return -(lengthSize + ulpdu) & 3 }

// The put functions write the headers of a frame with so many bytes of payload
// into b and return their size.

func putControl(b []byte, ulpdu int, ddp byte, last bool, op opcode) {
	binary.BigEndian.PutUint16(b, uint16(ulpdu))
	if last {
		ddp |= ddpLast
	}
	b[2] = ddp | ddpVersion
	b[3] = rdmapVersion<<rdmapVersionShift | byte(op)
}

func putTagged(b []byte, payload int, last bool, op opcode, stag uint32, to uint64) int {
	_ = b[taggedSize-1]
	putControl(b, taggedSize-lengthSize+payload, ddpTagged, last, op)
	binary.BigEndian.PutUint32(b[4:], stag)
	binary.BigEndian.PutUint64(b[8:], to)
	return taggedSize
}

func putUntagged(b []byte, payload int, last bool, op opcode, msn, mo uint32) int {
	_ = b[untaggedSize-1]
	putControl(b, untaggedSize-lengthSize+payload, 0, last, op)
	binary.BigEndian.PutUint32(b[4:], 0)
	binary.BigEndian.PutUint32(b[8:], op.queue())
	binary.BigEndian.PutUint32(b[12:], msn)
	binary.BigEndian.PutUint32(b[16:], mo)
	return untaggedSize
}

func putReadRequest(b []byte, msn uint32, r *readRequest) int {
	_ = b[readRequestSize-1]
	n := putUntagged(b, readRequestSize-untaggedSize, true, opReadRequest, msn, 0)
	be := binary.BigEndian
	be.PutUint32(b[n:], r.sinkSTag)
	be.PutUint64(b[n+4:], r.sinkTO)
	be.PutUint32(b[n+12:], r.size)
	be.PutUint32(b[n+16:], r.srcSTag)
	be.PutUint64(b[n+20:], r.srcTO)
	return readRequestSize
}
