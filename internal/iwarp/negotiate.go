package iwarp

import (
	"fmt"
	"math"
	"syscall"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// This file is what two ends agree on by their set-up frames, in functions
// without I/O.

// An agreement is what a set-up has come to, as one end sees it.
type agreement struct {
	crc       bool
	initiator bool
	rtr       RTR // how the initiator lets the responder speak, if by anything agreed
	ird       int // Reads of the peer served at once
	ord       int // Reads outstanding at once
}

// request is the initiator's frame.
func request(cfg *Config, p *cm.ConnParam) (setupFrame, error) {
	f := setupFrame{crc: cfg.CRC, revision: uint8(cfg.Revision), private: p.PrivateData}
	limit := maxPrivateRev1
	if cfg.Revision >= 2 {
		limit = maxPrivateRev2
		f.enhanced = true
		f.ird = uint16(min(int(p.ResponderResources), cfg.MaxReads))
		f.ord = uint16(min(int(p.InitiatorDepth), cfg.MaxReads))
		f.peerToPeer = cfg.RTR != NoRTR
		f.writeRTR = cfg.RTR == WriteRTR
		f.readRTR = cfg.RTR == ReadRTR
		if f.readRTR {
			f.ord = max(f.ord, 1)
		}
	}
	return f, checkPrivate(p.PrivateData, limit)
}

func checkPrivate(data []byte, limit int) error {
	if len(data) > limit {
		return fmt.Errorf("iwarp: %d bytes of private data, of at most %d: %w", len(data), limit, syscall.EINVAL)
	}
	return nil
}

// refusal is why a request cannot be served; nil if it can.
func refusal(req *setupFrame) error {
	switch {
	case req.revision > 2:
		return setupError(fmt.Sprintf("unknown revision %d", req.revision))
	case req.markers:
		return setupError("the peer wants markers, which are not supported")
	case req.peerToPeer && responderRTR(req) == NoRTR:
		return setupError("the peer offers no way to begin a peer-to-peer connection that is supported")
	}
	return nil
}

// responderRTR chooses among what a peer-to-peer request offers.
func responderRTR(req *setupFrame) RTR {
	switch {
	case !req.peerToPeer:
		return NoRTR
	case req.writeRTR:
		return WriteRTR
	case req.readRTR && req.ord > 0:
		return ReadRTR
	}
	return NoRTR
}

// reply is the responder's frame to a request that is served, and what is agreed
// by it. The responder serves as many Reads as the peer wants to have
// outstanding, at least, and has no more outstanding than the peer serves.
// Revision 1 says nothing of either: the initiator's wishes are then unknown, so
// as many as possible are served, and the user is trusted to know what the peer
// serves.
func reply(cfg *Config, req *setupFrame, p *cm.ConnParam) (setupFrame, agreement, error) {
	f := setupFrame{
		crc:      cfg.CRC || req.crc,
		revision: req.revision,
		enhanced: req.enhanced,
		private:  p.PrivateData,
	}
	a := agreement{
		crc: f.crc,
		ird: cfg.MaxReads,
		ord: min(int(p.InitiatorDepth), cfg.MaxReads),
	}
	if !req.enhanced {
		return f, a, checkPrivate(p.PrivateData, maxPrivateRev1)
	}
	a.rtr = responderRTR(req)
	a.ird = min(max(int(p.ResponderResources), int(req.ord)), cfg.MaxReads)
	a.ord = min(a.ord, int(req.ird))
	f.ird, f.ord = uint16(a.ird), uint16(a.ord)
	f.peerToPeer = a.rtr != NoRTR
	f.writeRTR = a.rtr == WriteRTR
	f.readRTR = a.rtr == ReadRTR
	return f, a, checkPrivate(p.PrivateData, maxPrivateRev2)
}

// rejection is the responder's frame to a request that is refused.
func rejection(req *setupFrame, private []byte) (setupFrame, error) {
	f := setupFrame{crc: req.crc, reject: true, revision: min(req.revision, 2), private: private}
	limit := maxPrivateRev1
	if req.enhanced && f.revision == 2 {
		f.enhanced = true
		limit = maxPrivateRev2
	}
	return f, checkPrivate(private, limit)
}

// agree is what the initiator makes of a reply that is no reject.
func agree(cfg *Config, req, rep *setupFrame, p *cm.ConnParam) (agreement, error) {
	a := agreement{
		crc:       req.crc || rep.crc,
		initiator: true,
		ird:       cfg.MaxReads,
		ord:       min(int(p.InitiatorDepth), cfg.MaxReads),
	}
	switch {
	case rep.markers:
		return a, setupError("the peer wants markers, which are not supported")
	case rep.revision > 2:
		return a, setupError(fmt.Sprintf("reply of unknown revision %d", rep.revision))
	case !req.enhanced || !rep.enhanced:
		// The peer knows nothing of depths, nor of who speaks first.
		return a, nil
	}
	// The responder's answer is final: it has seen what was asked.
	a.ird = min(max(int(req.ird), int(rep.ord)), cfg.MaxReads)
	a.ord = min(int(req.ord), int(rep.ird))
	switch {
	case !req.peerToPeer || !rep.peerToPeer:
	case req.writeRTR && rep.writeRTR:
		a.rtr = WriteRTR
	case req.readRTR && rep.readRTR && a.ord > 0:
		a.rtr = ReadRTR
	default:
		return a, setupError("the peer chose no way to begin a peer-to-peer connection that was offered")
	}
	return a, nil
}

// eventParam are a peer's parameters as an event has them: what they mean for
// this side.
func eventParam(f *setupFrame) cm.ConnParam {
	p := cm.ConnParam{PrivateData: append([]byte(nil), f.private...)}
	if f.enhanced {
		p.ResponderResources = uint8(min(f.ord, math.MaxUint8))
		p.InitiatorDepth = uint8(min(f.ird, math.MaxUint8))
	}
	return p
}
