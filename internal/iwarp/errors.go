package iwarp

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// A violation is something that a peer must not do. It ends the connection, with
// the Terminate that it holds.
type violation struct {
	termination
	what string

	// status is how the receive ends that the violation is about, if it is
	// about one; WCSuccess if not.
	status verbs.WCStatus
}

func (v *violation) Error() string {
	return fmt.Sprintf("the peer violated the protocol: %s (%v)", v.what, v.termination)
}

func (v *violation) Unwrap() error { return syscall.EPROTO }

func newViolation(layer, etype, code uint8, what string) *violation {
	return &violation{termination: termination{layer, etype, code}, what: what}
}

// What can be wrong with a frame.
var (
	errCRC    = newViolation(layerMPA, mpaError, 0x02, "a frame's CRC does not match")
	errLength = newViolation(layerMPA, mpaError, 0x03, "a frame is shorter than its headers")

	errTaggedVersion   = newViolation(layerDDP, ddpTaggedBuffer, 0x04, "a tagged segment has an unknown DDP version")
	errUntaggedVersion = newViolation(layerDDP, ddpUntaggedBuf, 0x06, "an untagged segment has an unknown DDP version")
	errRDMAPVersion    = newViolation(layerRDMAP, rdmapOperation, 0x05, "a message has an unknown RDMAP version")
	errOpcode          = newViolation(layerRDMAP, rdmapOperation, 0x06, "an opcode is unknown or out of place")
	errQueue           = newViolation(layerDDP, ddpUntaggedBuf, 0x01, "an untagged segment names an unknown queue")
	errMessageNumber   = newViolation(layerDDP, ddpUntaggedBuf, 0x03, "a message's number is out of order")
	errMessageOffset   = newViolation(layerDDP, ddpUntaggedBuf, 0x04, "a segment's offset in its message is wrong")
	errTooLong         = newViolation(layerDDP, ddpUntaggedBuf, 0x05, "a Read Request is too long")

	errNoReceive = newViolation(layerDDP, ddpUntaggedBuf, 0x02, "a Send found no receive posted")
	errSendLong  = &violation{termination{layerDDP, ddpUntaggedBuf, 0x05}, "a Send is longer than the receive posted for it", verbs.WCLocLenErr}
	errReceiveMR = &violation{termination{layerRDMAP, rdmapCatastrophic, 0x00}, "a posted receive is not in registered memory", verbs.WCLocProtErr}

	errWriteSTag   = newViolation(layerDDP, ddpTaggedBuffer, 0x00, "an RDMA Write names no region")
	errWriteBounds = newViolation(layerDDP, ddpTaggedBuffer, 0x01, "an RDMA Write is not within its region")
	errWritePD     = newViolation(layerDDP, ddpTaggedBuffer, 0x02, "an RDMA Write names a region of another protection domain")
	errWriteWrap   = newViolation(layerDDP, ddpTaggedBuffer, 0x03, "an RDMA Write's offset wraps")
	errWriteRights = newViolation(layerRDMAP, rdmapProtection, 0x02, "an RDMA Write goes to a region without remote write")

	errReadSTag   = newViolation(layerRDMAP, rdmapProtection, 0x00, "an RDMA Read names no region")
	errReadBounds = newViolation(layerRDMAP, rdmapProtection, 0x01, "an RDMA Read is not within its region")
	errReadPD     = newViolation(layerRDMAP, rdmapProtection, 0x03, "an RDMA Read names a region of another protection domain")
	errReadWrap   = newViolation(layerRDMAP, rdmapProtection, 0x04, "an RDMA Read's offset wraps")
	errReadRights = newViolation(layerRDMAP, rdmapProtection, 0x02, "an RDMA Read asks for a region without remote read")
	errReadDepth  = newViolation(layerDDP, ddpUntaggedBuf, 0x02, "there are more RDMA Reads at once than were agreed")
	errReadSplit  = newViolation(layerRDMAP, rdmapOperation, 0xff, "a Read Request is not a whole message")

	errResponseNone   = newViolation(layerRDMAP, rdmapOperation, 0x06, "a Read Response came without a request")
	errResponseSTag   = newViolation(layerDDP, ddpTaggedBuffer, 0x00, "a Read Response names another region than the request")
	errResponseBounds = newViolation(layerDDP, ddpTaggedBuffer, 0x01, "a Read Response does not go where the request asked")
	errResponseSize   = newViolation(layerRDMAP, rdmapOperation, 0xff, "a Read Response is not as long as the request asked")

	errInvalidate = newViolation(layerRDMAP, rdmapProtection, 0x09, "a Send with Invalidate, though no region can be invalidated")
	errRegionGone = newViolation(layerDDP, ddpTaggedBuffer, 0x00, "a region was deregistered while the peer wrote to it")
	errSourceGone = newViolation(layerRDMAP, rdmapProtection, 0x00, "a region was deregistered while the peer read it")
	errResponseMR = newViolation(layerRDMAP, rdmapCatastrophic, 0x00, "the sink of an RDMA Read was deregistered")
)

// A terminated is the peer's Terminate.
type terminated struct{ termination }

func (t *terminated) Error() string {
	return fmt.Sprintf("the peer's device ended the connection for an error that it found: %v", t.termination)
}

func (t *terminated) Unwrap() error { return syscall.ECONNRESET }

// Why a connection ended, where nobody violated anything.
var (
	errPeerClosed = errors.New("the peer closed the connection")
	errTruncated  = fmt.Errorf("the peer closed the connection in the middle of a frame: %w", syscall.ECONNRESET)
	errErrorState = errors.New("the queue pair was moved to the error state")
	errOverflow   = errors.New("a completion queue overflowed")
)

// errAgain is what a socket says that has nothing to read or no room to write.
var errAgain = errors.New("would block")

// errnoOf is the errno in an error, or a default.
func errnoOf(err error, def syscall.Errno) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return def
}
