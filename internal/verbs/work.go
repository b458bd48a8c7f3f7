package verbs

import "fmt"

// Opcode is the operation of a send work request.
type Opcode uint8

// The operations. OpWriteImm exists only where Transport.HasImmediate.
const (
	OpSend Opcode = iota
	OpWrite
	OpWriteImm
	OpRead
)

// SendFlags modify a send work request.
type SendFlags uint8

const (
	// FlagSignaled asks for a completion when the request has succeeded. A
	// request that fails, or is flushed, completes without it too.
	FlagSignaled SendFlags = 1 << iota
	// FlagInline copies the payload while posting: its memory is free when
	// PostSend returns. It must still be registered memory.
	FlagInline
	// FlagFence holds the request back until all Reads before it are done.
	FlagFence
	// FlagSolicited makes the peer's completion a solicited one.
	FlagSolicited
)

// MaxSGE is how many scatter/gather elements a SendWR can hold: a piece of a
// ring buffer that wraps is two.
const MaxSGE = 2

// SGE is a scatter/gather element: Length bytes at Addr of the region LKey.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// SendWR is a send work request. The layout is fixed: 64 bytes, no pointers.
type SendWR struct {
	ID         uint64 // handed back in the completion
	RemoteAddr uint64 // Write, Read: the address in the peer's region
	RKey       uint32 // Write, Read: the key of that region
	Imm        uint32 // OpWriteImm: a number; it travels big-endian
	Opcode     Opcode
	Flags      SendFlags
	NumSGE     uint8 // elements of SGE that count, 0 to MaxSGE
	_          [5]uint8
	SGE        [MaxSGE]SGE
}

// RecvWR is a receive work request. A Length of 0 posts a receive without
// memory, enough for a Write with immediate data. The layout is fixed: 24
// bytes, no pointers.
type RecvWR struct {
	ID  uint64 // handed back in the completion
	SGE SGE
}

// WCOpcode says which kind of work a completion ends. It is valid only when the
// status is WCSuccess; of failed work only ID and Status are known.
type WCOpcode uint32

// The kinds of completed work.
const (
	WCSend WCOpcode = iota
	WCWrite
	WCRead
	WCRecv    // a Send of the peer
	WCRecvImm // a Write with immediate data of the peer
)

// WC is a work completion. The layout is fixed: 32 bytes, no pointers.
type WC struct {
	ID        uint64
	Status    WCStatus
	Opcode    WCOpcode
	VendorErr uint32
	ByteLen   uint32 // WCRecv: bytes received; WCRecvImm: bytes written
	Imm       uint32 // WCRecvImm: the number that the peer sent
	_         uint32
}

// WCStatus is how a work request ended, numbered as enum ibv_wc_status.
type WCStatus uint32

// The statuses that the stream tells apart; see ibv_poll_cq(3) for all.
const (
	WCSuccess         WCStatus = 0
	WCLocLenErr       WCStatus = 1
	WCLocQPOpErr      WCStatus = 2
	WCLocProtErr      WCStatus = 4
	WCWRFlushErr      WCStatus = 5
	WCRemInvReqErr    WCStatus = 9
	WCRemAccessErr    WCStatus = 10
	WCRemOpErr        WCStatus = 11
	WCRetryExcErr     WCStatus = 12
	WCRNRRetryExcErr  WCStatus = 13
	WCRemAbortErr     WCStatus = 16
	WCFatalErr        WCStatus = 19
	WCRespTimeoutErr  WCStatus = 20
	WCGeneralErr      WCStatus = 21
	lastKnownWCStatus          = WCGeneralErr
)

var wcStatusText = [lastKnownWCStatus + 1]string{
	0: "success", 1: "local length error", 2: "local queue pair operation error",
	3: "local end-to-end context error", 4: "local protection error", 5: "work request flushed",
	6: "memory window bind error", 7: "bad response", 8: "local access error",
	9: "remote invalid request", 10: "remote access error", 11: "remote operation error",
	12: "transport retry counter exceeded", 13: "receiver not ready: retry counter exceeded",
	14: "local RDD violation", 15: "remote invalid RD request", 16: "remote aborted",
	17: "invalid end-to-end context number", 18: "invalid end-to-end context state",
	19: "fatal error", 20: "response timeout", 21: "general error",
}

func (s WCStatus) String() string {
	if int(s) < len(wcStatusText) {
		return wcStatusText[s]
	}
	return fmt.Sprintf("work completion status %d", uint32(s))
}
