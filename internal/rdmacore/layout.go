//go:build linux && cgo

package rdmacore

// #include "shim.h"
import "C"

import (
	"unsafe"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// What crosses in batches lies in memory as C reads and writes it, and both count
// alike. Each line indexes an array of one element by a difference, and compiles
// only if that is 0.
func _() {
	var same [1]struct{}

	var send verbs.SendWR
	var csend C.struct_rn_go_send_wr
	_ = same[unsafe.Sizeof(send)-unsafe.Sizeof(csend)]
	_ = same[unsafe.Offsetof(send.ID)-unsafe.Offsetof(csend.id)]
	_ = same[unsafe.Offsetof(send.RemoteAddr)-unsafe.Offsetof(csend.remote_addr)]
	_ = same[unsafe.Offsetof(send.RKey)-unsafe.Offsetof(csend.rkey)]
	_ = same[unsafe.Offsetof(send.Imm)-unsafe.Offsetof(csend.imm)]
	_ = same[unsafe.Offsetof(send.Opcode)-unsafe.Offsetof(csend.opcode)]
	_ = same[unsafe.Offsetof(send.Flags)-unsafe.Offsetof(csend.flags)]
	_ = same[unsafe.Offsetof(send.NumSGE)-unsafe.Offsetof(csend.num_sge)]
	_ = same[unsafe.Offsetof(send.SGE)-unsafe.Offsetof(csend.sge)]
	_ = same[unsafe.Sizeof(send.SGE)-unsafe.Sizeof(csend.sge)]

	var sge verbs.SGE
	var csge C.struct_rn_sge
	_ = same[unsafe.Sizeof(sge)-unsafe.Sizeof(csge)]
	_ = same[unsafe.Offsetof(sge.Addr)-unsafe.Offsetof(csge.addr)]
	_ = same[unsafe.Offsetof(sge.Length)-unsafe.Offsetof(csge.length)]
	_ = same[unsafe.Offsetof(sge.LKey)-unsafe.Offsetof(csge.lkey)]

	var recv verbs.RecvWR
	var crecv C.struct_rn_go_recv_wr
	_ = same[unsafe.Sizeof(recv)-unsafe.Sizeof(crecv)]
	_ = same[unsafe.Offsetof(recv.ID)-unsafe.Offsetof(crecv.id)]
	_ = same[unsafe.Offsetof(recv.SGE)-unsafe.Offsetof(crecv.sge)]

	var wc verbs.WC
	var cwc C.struct_rn_go_wc
	_ = same[unsafe.Sizeof(wc)-unsafe.Sizeof(cwc)]
	_ = same[unsafe.Offsetof(wc.ID)-unsafe.Offsetof(cwc.id)]
	_ = same[unsafe.Offsetof(wc.Status)-unsafe.Offsetof(cwc.status)]
	_ = same[unsafe.Offsetof(wc.Opcode)-unsafe.Offsetof(cwc.opcode)]
	_ = same[unsafe.Offsetof(wc.VendorErr)-unsafe.Offsetof(cwc.vendor_err)]
	_ = same[unsafe.Offsetof(wc.ByteLen)-unsafe.Offsetof(cwc.byte_len)]
	_ = same[unsafe.Offsetof(wc.Imm)-unsafe.Offsetof(cwc.imm)]

	_ = same[verbs.OpSend-C.GO_OP_SEND]
	_ = same[verbs.OpWrite-C.GO_OP_WRITE]
	_ = same[verbs.OpWriteImm-C.GO_OP_WRITE_IMM]
	_ = same[verbs.OpRead-C.GO_OP_READ]
	_ = same[verbs.FlagSignaled-C.GO_SIGNALED]
	_ = same[verbs.FlagInline-C.GO_INLINE]
	_ = same[verbs.FlagFence-C.GO_FENCE]
	_ = same[verbs.FlagSolicited-C.GO_SOLICITED]
	_ = same[verbs.WCSend-C.GO_WC_SEND]
	_ = same[verbs.WCWrite-C.GO_WC_WRITE]
	_ = same[verbs.WCRead-C.GO_WC_READ]
	_ = same[verbs.WCRecv-C.GO_WC_RECV]
	_ = same[verbs.WCRecvImm-C.GO_WC_RECV_IMM]

	_ = same[sockaddrIBSize-C.RN_SOCKADDR_IB_SIZE]
	_ = same[afIB-C.RN_AF_IB]
	_ = same[verbs.MaxSGE-len(csend.sge)]
}
