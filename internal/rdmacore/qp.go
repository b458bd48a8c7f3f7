//go:build linux && cgo

package rdmacore

// #cgo noescape rn_post_send
// #cgo nocallback rn_post_send
// #cgo noescape rn_post_recv
// #cgo nocallback rn_post_recv
// #include "shim.h"
import "C"

import (
	"syscall"
	"unsafe"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// queuePair is the ibv_qp of an identifier.
type queuePair struct {
	id     *identifier
	c      *C.struct_rn_qp
	inline int
}

var _ verbs.QP = (*queuePair)(nil)

// CreateQP makes the identifier's queue pair. Where the device refuses the
// inline size that is asked for, it gets none.
func (id *identifier) CreateQP(pd verbs.PD, cq verbs.CQ, attr verbs.QPAttr) (verbs.QP, error) {
	const call = "rdma_create_qp"
	d, err := id.device()
	if err != nil {
		return nil, err
	}
	domain, ok1 := pd.(*protectionDomain)
	queue, ok2 := cq.(*completionQueue)
	if !ok1 || !ok2 || domain.dev != d || queue.dev != d {
		return nil, &Error{Call: call, Code: int(syscall.EINVAL), Hint: "the protection domain or the completion queue belongs to another device"}
	}
	ask := C.struct_rn_qp_ask{
		send_depth: C.int(attr.SendDepth),
		recv_depth: C.int(attr.RecvDepth),
		send_sge:   C.int(min(verbs.MaxSGE, d.info.MaxSGE)),
		max_inline: C.int(attr.MaxInline),
		signal_all: cBool(attr.SignalAll),
	}
	qp := &queuePair{id: id}
	code := id.createQP(domain, queue, &ask, qp)
	if code != 0 && attr.MaxInline > 0 {
		ask.max_inline = 0
		code = id.createQP(domain, queue, &ask, qp)
	}
	if code == C.RN_SILENT {
		// libsiw forgets to say why; what the kernel has refused it is memory
		return nil, &Error{Call: call, Code: int(syscall.ENOMEM), Hint: "the device gives no more queue pairs, or none this deep"}
	}
	if syscall.Errno(code) == syscall.ENOMEM {
		return nil, &Error{Call: call, Code: int(code), Hint: "the device may have no more queue pairs, or none this deep"}
	}
	if code != 0 {
		return nil, callError(call, code)
	}
	qp.inline = int(ask.max_inline)
	id.qp = qp
	return qp, nil
}

func (id *identifier) createQP(pd *protectionDomain, cq *completionQueue, ask *C.struct_rn_qp_ask, qp *queuePair) C.int {
	defer id.p.lockQP()()
	return C.rn_create_qp(id.c, pd.c, cq.c, cq.sends, ask, &qp.c)
}

// lockQP keeps events from being read until the function that it returns is
// called.
func (p *provider) lockQP() (unlock func()) {
	p.qpTurn.Lock()
	p.qpMu.Lock()
	return func() {
		p.qpMu.Unlock()
		p.qpTurn.Unlock()
	}
}

func (qp *queuePair) MaxInline() int { return qp.inline }

func (qp *queuePair) PostSend(wr []verbs.SendWR) (int, error) {
	if len(wr) == 0 {
		return 0, nil
	}
	answer := C.rn_post_send(qp.c, (*C.struct_rn_go_send_wr)(unsafe.Pointer(&wr[0])), C.int(len(wr)))
	return posted("ibv_post_send", uint64(answer))
}

func (qp *queuePair) PostRecv(wr []verbs.RecvWR) (int, error) {
	if len(wr) == 0 {
		return 0, nil
	}
	answer := C.rn_post_recv(qp.c, (*C.struct_rn_go_recv_wr)(unsafe.Pointer(&wr[0])), C.int(len(wr)))
	return posted("ibv_post_recv", uint64(answer))
}

func posted(call string, answer uint64) (int, error) {
	n, code := int(uint32(answer)), C.int(answer>>32)
	if code != 0 {
		return n, callError(call, code)
	}
	return n, nil
}

func (qp *queuePair) SetError() error {
	return callError("ibv_modify_qp", C.rn_qp_set_error(qp.c))
}

// Destroy first takes the queue pair away from its identifier, so that reading
// the identifier's next event does not touch it, and then destroys it without
// the lock that keeps the two apart.
//
// That can take a while: as long as soft-iWARP waits for a peer that has taken
// its TCP connection and says nothing, 10 s, the kernel does not let go of the
// queue pair, and lets nothing interrupt it either.
func (qp *queuePair) Destroy() error {
	id := qp.id
	unlock := id.p.lockQP()
	C.rn_detach_qp(id.c)
	unlock()
	id.qp = nil
	return callError("ibv_destroy_qp", id.unmake(func() int {
		return int(C.rn_destroy_qp(qp.c))
	}))
}
