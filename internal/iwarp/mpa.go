package iwarp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"syscall"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// This file is the wire format of MPA's set-up frames (RFC 5044, section 7.1;
// RFC 6581, section 9), as functions over bytes:
//
//	key 16 | flags 1 | revision 1 | length of private data 2 | private data
//
// With the flag for the enhanced set-up, private data begins with four bytes
// that count in its length: IRD 2 | ORD 2, each with two flags at the top.

const (
	requestKey = "MPA ID Req Frame"
	replyKey   = "MPA ID Rep Frame"

	setupHeaderSize = 20
	enhancedSize    = 4

	// maxPrivate is what RFC 5044 allows in a frame, the four bytes included.
	// maxPrivateRev1 and maxPrivateRev2 are the user's bytes that we send: siw
	// closes the connection if there are more.
	maxPrivate     = 512
	maxPrivateRev1 = 255
	maxPrivateRev2 = 251

	maxSetupFrame = setupHeaderSize + maxPrivate
)

const (
	flagMarkers  = 0x80
	flagCRC      = 0x40
	flagReject   = 0x20
	flagEnhanced = 0x10

	depthMask = 1<<14 - 1

	irdPeerToPeer = 0x8000
	irdSendRTR    = 0x4000
	ordWriteRTR   = 0x8000
	ordReadRTR    = 0x4000
)

// A setupFrame is an MPA request or reply.
type setupFrame struct {
	markers  bool // the sender wants to receive markers
	crc      bool
	reject   bool // of a reply
	revision uint8

	enhanced   bool // what follows is there
	ird, ord   uint16
	peerToPeer bool
	sendRTR    bool
	writeRTR   bool
	readRTR    bool

	private []byte // the user's
}

// appendSetup appends the frame to b.
func appendSetup(b []byte, key string, f *setupFrame) []byte {
	var flags byte
	set := func(to *byte, on bool, bit byte) {
		if on {
			*to |= bit
		}
	}
	set(&flags, f.markers, flagMarkers)
	set(&flags, f.crc, flagCRC)
	set(&flags, f.reject, flagReject)
	set(&flags, f.enhanced, flagEnhanced)
	n := len(f.private)
	if f.enhanced {
		n += enhancedSize
	}
	b = append(b, key...)
	b = append(b, flags, f.revision)
	b = binary.BigEndian.AppendUint16(b, uint16(n))
	if f.enhanced {
		b = binary.BigEndian.AppendUint16(b, depth(f.ird, f.peerToPeer, irdPeerToPeer, f.sendRTR, irdSendRTR))
		b = binary.BigEndian.AppendUint16(b, depth(f.ord, f.writeRTR, ordWriteRTR, f.readRTR, ordReadRTR))
	}
	return append(b, f.private...)
}

func depth(n uint16, a bool, aBit uint16, b bool, bBit uint16) uint16 {
	n &= depthMask
	if a {
		n |= aBit
	}
	if b {
		n |= bBit
	}
	return n
}

// errShort says that a frame is not there as a whole yet, but right so far.
var errShort = errors.New("incomplete MPA set-up frame")

// A setupError is a set-up frame that is not one.
type setupError string

func (e setupError) Error() string { return "MPA set-up: " + string(e) }
func (e setupError) Unwrap() error { return syscall.EPROTO }

// A notMPAError is what a peer says that speaks some other protocol.
type notMPAError struct{ said string }

func (e *notMPAError) Error() string {
	return "the peer does not speak MPA, it said " + e.said + ": " + cm.ErrNotRDMA.Error()
}
func (e *notMPAError) Unwrap() []error { return []error{syscall.EPROTO, cm.ErrNotRDMA} }

// quote is the beginning of what a peer said, for a person.
func quote(b []byte) string {
	const most = 32
	line, _, more := bytes.Cut(b, []byte("\n"))
	if line = bytes.TrimSuffix(line, []byte("\r")); len(line) > most {
		line, more = line[:most], true
	}
	if more {
		return strconv.Quote(string(line)) + "..."
	}
	return strconv.Quote(string(line))
}

// parseSetup reads a frame with the given key, and returns its size too. The
// frame's private data is b's. It fails with errShort where more is needed; what
// cannot become a frame it refuses as soon as that shows.
func parseSetup(b []byte, key string) (f setupFrame, size int, err error) {
	if n := min(len(b), len(key)); !bytes.Equal(b[:n], []byte(key[:n])) {
		return f, 0, &notMPAError{quote(b)}
	}
	if len(b) < setupHeaderSize {
		return f, 0, errShort
	}
	flags := b[16]
	f.markers = flags&flagMarkers != 0
	f.crc = flags&flagCRC != 0
	f.reject = flags&flagReject != 0
	f.enhanced = flags&flagEnhanced != 0
	f.revision = b[17]
	n := int(binary.BigEndian.Uint16(b[18:]))
	switch {
	case n > maxPrivate:
		return f, 0, setupError(fmt.Sprintf("%d bytes of private data are too many", n))
	case f.enhanced && f.revision < 2:
		return f, 0, setupError(fmt.Sprintf("revision %d has no enhanced set-up", f.revision))
	case f.enhanced && n < enhancedSize:
		return f, 0, setupError("the depths of an enhanced set-up are missing")
	}
	size = setupHeaderSize + n
	if len(b) < size {
		return f, 0, errShort
	}
	f.private = b[setupHeaderSize:size:size]
	if f.enhanced {
		ird, ord := binary.BigEndian.Uint16(f.private), binary.BigEndian.Uint16(f.private[2:])
		f.ird, f.ord = ird&depthMask, ord&depthMask
		f.peerToPeer = ird&irdPeerToPeer != 0
		f.sendRTR = ird&irdSendRTR != 0
		f.writeRTR = ord&ordWriteRTR != 0
		f.readRTR = ord&ordReadRTR != 0
		f.private = f.private[enhancedSize:]
	}
	return f, size, nil
}
