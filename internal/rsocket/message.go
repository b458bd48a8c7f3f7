package rsocket

import (
	"encoding/binary"
	"fmt"
)

// A message is the 32 bits that the two ends tell each other with, or right
// behind, an RDMA Write: the type in the top 3 bits, a value in the other 29.
type message uint32

// The types of messages.
const (
	msgData    = 0 // value: bytes just written into the current window
	msgCredits = 4 // value: credit limit; perhaps an SGL entry was written
	msgIOMap   = 6 // value: index of a direct placement entry
	msgControl = 7 // value: one of the control values
)

// The values of a msgControl.
const (
	ctrlDisconnect = 0
	ctrlKeepAlive  = 1
	ctrlShutdown   = 2
)

const (
	msgTypeShift = 29
	msgValueMask = 1<<msgTypeShift - 1

	// msgSize is the size of a message that travels as a Send.
	msgSize = 4
)

func newMessage(typ, value uint32) message {
	return message(typ<<msgTypeShift | value&msgValueMask)
}

func (m message) typ() uint32   { return uint32(m) >> msgTypeShift }
func (m message) value() uint32 { return uint32(m) & msgValueMask }

// credits is the limit that a msgCredits carries. The C side lets a carry run
// into bit 16 of the value at times: only the low 16 bits count.
func (m message) credits() uint16 { return uint16(m) }

func (m message) String() string {
	switch m.typ() {
	case msgData:
		return fmt.Sprintf("data of %d bytes", m.value())
	case msgCredits:
		return fmt.Sprintf("credits up to %d", m.credits())
	case msgIOMap:
		return fmt.Sprintf("direct placement entry %d", m.value())
	case msgControl:
		switch m.value() {
		case ctrlDisconnect:
			return "DISCONNECT"
		case ctrlKeepAlive:
			return "KEEPALIVE"
		case ctrlShutdown:
			return "SHUTDOWN"
		}
		return fmt.Sprintf("control %d", m.value())
	}
	return fmt.Sprintf("message type %d with value %d", m.typ(), m.value())
}

// sglEntrySize is the size of an entry of a target SGL: address, key, length,
// in the byte order of the host whose SGL it is.
const sglEntrySize = 16

// An endian is a host's byte order. It is not a binary.ByteOrder, because what is
// handed to a method of an interface is allocated.
type endian bool

const (
	littleEndian endian = false
	bigEndian    endian = true
)

var hostEndian = endian(binary.NativeEndian.Uint16([]byte{0, 1}) == 1)

func (e endian) uint32(b []byte) uint32 {
	if e == bigEndian {
		return binary.BigEndian.Uint32(b)
	}
	return binary.LittleEndian.Uint32(b)
}

func (e endian) putUint32(b []byte, v uint32) {
	if e == bigEndian {
		binary.BigEndian.PutUint32(b, v)
	} else {
		binary.LittleEndian.PutUint32(b, v)
	}
}

// entry reads an SGL entry.
func (e endian) entry(b []byte) Segment {
	s := Segment{Key: e.uint32(b[8:]), Len: e.uint32(b[12:])}
	if e == bigEndian {
		s.Addr = binary.BigEndian.Uint64(b)
	} else {
		s.Addr = binary.LittleEndian.Uint64(b)
	}
	return s
}

// putEntry writes an SGL entry.
func (e endian) putEntry(b []byte, s Segment) {
	if e == bigEndian {
		binary.BigEndian.PutUint64(b, s.Addr)
	} else {
		binary.LittleEndian.PutUint64(b, s.Addr)
	}
	e.putUint32(b[8:], s.Key)
	e.putUint32(b[12:], s.Len)
}
