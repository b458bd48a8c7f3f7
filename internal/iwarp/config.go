package iwarp

import (
	"fmt"
	"net"
	"syscall"
	"time"
)

// RTR is how the initiator of a peer-to-peer connection lets its responder
// speak: by which message of no length (RFC 6581, section 9).
type RTR uint8

// The RTR messages. A Send is a third one in the RFC; neither siw nor this
// package has it.
const (
	NoRTR    RTR = iota // no peer-to-peer
	WriteRTR            // an RDMA Write
	ReadRTR             // an RDMA Read
)

// Config says how a NIC behaves. The zero value is good.
type Config struct {
	// Name is the device's name; "iwarp0" if empty.
	Name string

	// FrameSize is the size of the longest frame (FPDU) sent, in bytes, from
	// its length field to its CRC: 256 to 65,544, which 0 stands for. siw
	// takes that whatever the MSS is. Where CRC is in use frames are no longer
	// than the connection's MSS, whatever FrameSize says, unless that is below
	// 1,024.
	FrameSize int

	// FrameMSS keeps all frames within the connection's MSS, as RFC 5044
	// wants it and as hardware may need it, unless that is below 1,024.
	FrameMSS bool

	// CRC asks for CRCs in frames. They are used if either end asks.
	CRC bool

	// Revision is the MPA revision that a connect request has: 2, which 0
	// stands for, or 1. Requests of both are served.
	Revision int

	// RTR asks, when dialing with revision 2, for a peer-to-peer connection
	// and says by which message it is to begin. Requests with Writes and with
	// Reads are served.
	RTR RTR

	// MaxReads is how many RDMA Reads may be outstanding on a queue pair in
	// each direction: 1 to 128; 0 stands for 128.
	MaxReads int

	// KeepAlive is TCP's own, on every connection. The zero value is on, with
	// net's defaults; a negative Idle turns it off.
	KeepAlive net.KeepAliveConfig

	// RequestTimeout is how long a TCP peer may take for its connect request;
	// 0 stands for 5 s, as siw has it.
	RequestTimeout time.Duration

	// ReplyTimeout is how long a peer may take for its answer to a connect
	// request once TCP is connected; 0 stands for 10 s, as siw has it.
	ReplyTimeout time.Duration

	// CloseTimeout is how long a connection that was ended is kept, behind
	// its user's back, for the peer to take what was sent; 0 stands for 2 s.
	CloseTimeout time.Duration
}

const (
	minFrameSize = 256
	maxReads     = 128

	// minFramePayload is the least room for payload in a frame.
	minFramePayload = 64
)

func (c *Config) resolve() error {
	if c.Name == "" {
		c.Name = "iwarp0"
	}
	if c.FrameSize == 0 {
		c.FrameSize = maxFrame
	}
	if c.FrameSize < minFrameSize || c.FrameSize > maxFrame {
		return fmt.Errorf("iwarp: frame size %d is not within %d and %d: %w", c.FrameSize, minFrameSize, maxFrame, syscall.EINVAL)
	}
	if c.Revision == 0 {
		c.Revision = 2
	}
	if c.Revision != 1 && c.Revision != 2 {
		return fmt.Errorf("iwarp: MPA revision %d is neither 1 nor 2: %w", c.Revision, syscall.EINVAL)
	}
	if c.RTR > ReadRTR || c.RTR != NoRTR && c.Revision == 1 {
		return fmt.Errorf("iwarp: peer-to-peer set-up needs revision 2 and a Write or a Read: %w", syscall.EINVAL)
	}
	if c.MaxReads == 0 {
		c.MaxReads = maxReads
	}
	if c.MaxReads < 1 || c.MaxReads > maxReads {
		return fmt.Errorf("iwarp: %d Reads at once are not within 1 and %d: %w", c.MaxReads, maxReads, syscall.EINVAL)
	}
	c.KeepAlive.Enable = c.KeepAlive.Idle >= 0
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{
		{&c.RequestTimeout, 5 * time.Second},
		{&c.ReplyTimeout, 10 * time.Second},
		{&c.CloseTimeout, 2 * time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.def
		}
	}
	return nil
}
