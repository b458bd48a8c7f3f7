package iwarp

import "fmt"

// A termination is the reason that a Terminate message gives: the layer that
// found the error, the type of the error, and its code (RFC 5040, section 4.8;
// RFC 5041, section 7; RFC 5044, section 8; RFC 6581).
type termination struct {
	layer, etype, code uint8
}

// The layers.
const (
	layerRDMAP = 0
	layerDDP   = 1
	layerMPA   = 2
)

// The error types, by layer.
const (
	rdmapCatastrophic = 0
	rdmapProtection   = 1
	rdmapOperation    = 2

	ddpCatastrophic = 0
	ddpTaggedBuffer = 1
	ddpUntaggedBuf  = 2

	mpaError = 0
)

var terminations = map[termination]string{
	{layerRDMAP, rdmapCatastrophic, 0x00}: "local catastrophic error",
	{layerRDMAP, rdmapProtection, 0x00}:   "remote protection error: invalid STag",
	{layerRDMAP, rdmapProtection, 0x01}:   "remote protection error: base or bounds violation",
	{layerRDMAP, rdmapProtection, 0x02}:   "remote protection error: access rights violation",
	{layerRDMAP, rdmapProtection, 0x03}:   "remote protection error: STag of another stream",
	{layerRDMAP, rdmapProtection, 0x04}:   "remote protection error: tagged offset wraps",
	{layerRDMAP, rdmapProtection, 0x09}:   "remote protection error: STag cannot be invalidated",
	{layerRDMAP, rdmapProtection, 0xff}:   "remote protection error",
	{layerRDMAP, rdmapOperation, 0x05}:    "remote operation error: invalid RDMAP version",
	{layerRDMAP, rdmapOperation, 0x06}:    "remote operation error: unexpected opcode",
	{layerRDMAP, rdmapOperation, 0x07}:    "remote operation error: catastrophic for the stream",
	{layerRDMAP, rdmapOperation, 0x08}:    "remote operation error: catastrophic",
	{layerRDMAP, rdmapOperation, 0x09}:    "remote operation error: STag cannot be invalidated",
	{layerRDMAP, rdmapOperation, 0xff}:    "remote operation error",

	{layerDDP, ddpCatastrophic, 0x00}: "local catastrophic error",
	{layerDDP, ddpTaggedBuffer, 0x00}: "tagged buffer error: invalid STag",
	{layerDDP, ddpTaggedBuffer, 0x01}: "tagged buffer error: base or bounds violation",
	{layerDDP, ddpTaggedBuffer, 0x02}: "tagged buffer error: STag of another stream",
	{layerDDP, ddpTaggedBuffer, 0x03}: "tagged buffer error: tagged offset wraps",
	{layerDDP, ddpTaggedBuffer, 0x04}: "tagged buffer error: invalid DDP version",
	{layerDDP, ddpUntaggedBuf, 0x01}:  "untagged buffer error: invalid queue number",
	{layerDDP, ddpUntaggedBuf, 0x02}:  "untagged buffer error: no buffer for the message",
	{layerDDP, ddpUntaggedBuf, 0x03}:  "untagged buffer error: invalid message number",
	{layerDDP, ddpUntaggedBuf, 0x04}:  "untagged buffer error: invalid message offset",
	{layerDDP, ddpUntaggedBuf, 0x05}:  "untagged buffer error: message too long",
	{layerDDP, ddpUntaggedBuf, 0x06}:  "untagged buffer error: invalid DDP version",

	{layerMPA, mpaError, 0x01}: "TCP connection lost",
	{layerMPA, mpaError, 0x02}: "CRC does not match",
	{layerMPA, mpaError, 0x03}: "marker and length do not match",
	{layerMPA, mpaError, 0x04}: "invalid MPA request or reply",
	{layerMPA, mpaError, 0x05}: "local catastrophic error",
	{layerMPA, mpaError, 0x06}: "insufficient IRD resources",
	{layerMPA, mpaError, 0x07}: "no matching RTR option",
}

func (t termination) String() string {
	layer := [...]string{layerRDMAP: "RDMAP", layerDDP: "DDP", layerMPA: "MPA"}
	name := "unknown layer"
	if int(t.layer) < len(layer) {
		name = layer[t.layer]
	}
	if text, ok := terminations[t]; ok {
		return name + " " + text
	}
	return fmt.Sprintf("%s error, type %d, code %#02x", name, t.etype, t.code)
}

// vendorError packs the reason into a completion's VendorErr.
func (t termination) vendorError() uint32 {
	return uint32(t.layer)<<12 | uint32(t.etype)<<8 | uint32(t.code)
}

// A Terminate's payload is 4 bytes of control, and then, as its flags say, the
// length of the offending DDP segment, that segment's DDP header, and the RDMAP
// header behind that of a Read Request:
//
//	layer | type 1 | code 1 | flags 1 | 0 1 [| length 2 [| DDP header [| RDMAP header]]]
//
// RFC 5040 puts the layer and the flags into the high bits of their bytes. siw
// on little-endian hosts has them the wrong way round, in the low bits. The
// flags tell which it is; a Terminate without flags is read the way that makes
// sense, and the RFC's if both do.
const terminateControlSize = 4

const (
	termLength      = 0x80
	termDDPHeader   = 0x40
	termRDMAPHeader = 0x20

	siwLength      = 0x01
	siwDDPHeader   = 0x02
	siwRDMAPHeader = 0x04
)

// maxTerminate is the size of the longest Terminate frame that we send, without
// padding and CRC.
const maxTerminate = untaggedSize + terminateControlSize + lengthSize + maxHeader

// putTerminate writes a Terminate frame, up to its padding, into b and returns
// its size. segment is what is known of the offending segment's headers, from
// its length field on; it may be nil, and less than all of them counts as none.
func putTerminate(b []byte, t termination, segment []byte) int {
	control := [terminateControlSize]byte{t.layer<<4 | t.etype, t.code}
	var quoted []byte
	if t.layer != layerMPA && len(segment) >= taggedSize {
		ddp := untaggedSize
		if segment[2]&ddpTagged != 0 {
			ddp = taggedSize
		}
		switch {
		case len(segment) >= readRequestSize && ddp == untaggedSize && opcode(segment[3]&opcodeMask) == opReadRequest:
			control[2] = termLength | termDDPHeader | termRDMAPHeader
			quoted = segment[:readRequestSize]
		case len(segment) >= ddp:
			control[2] = termLength | termDDPHeader
			quoted = segment[:ddp]
		}
	}
	n := putUntagged(b, terminateControlSize+len(quoted), true, opTerminate, 1, 0)
	n += copy(b[n:], control[:])
	n += copy(b[n:], quoted) // the length field leads the headers here as there
	return n
}

// parseTerminate reads the payload of a Terminate, which has at least its four
// bytes of control.
func parseTerminate(b []byte) termination {
	rfc := termination{layer: b[0] >> 4, etype: b[0] & 0x0f, code: b[1]}
	siw := termination{layer: rfc.etype, etype: rfc.layer, code: rfc.code}
	switch flags := b[2]; {
	case flags&(termLength|termDDPHeader|termRDMAPHeader) != 0:
		return rfc
	case flags&(siwLength|siwDDPHeader|siwRDMAPHeader) != 0:
		return siw
	}
	_, known := terminations[rfc]
	_, other := terminations[siw]
	if other && !known {
		return siw
	}
	return rfc
}

// terminatedRead reports whether a Terminate quotes one of our Read Requests.
func terminatedRead(b []byte) bool {
	const ddp = terminateControlSize + lengthSize
	return len(b) >= ddp+2 && b[2] != 0 && b[ddp]&ddpTagged == 0 && opcode(b[ddp+1]&opcodeMask) == opReadRequest
}
