//go:build linux && cgo

package rdmacore

// #cgo noescape rn_poll
// #cgo nocallback rn_poll
// #cgo noescape rn_arm
// #cgo nocallback rn_arm
// #cgo noescape rn_drain
// #cgo nocallback rn_drain
// #include "shim.h"
import "C"

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// completionQueue is an ibv_cq with a completion channel of its own.
//
// Wait sleeps in Go's poller. Wake ends it by a read deadline in the past, which
// the descriptor has for no other purpose: woken says that there is one, and
// both are changed together under mu. Whoever is in Wait takes both back, so one
// Wake ends one Wait.
type completionQueue struct {
	dev *device
	c   *C.struct_rn_cq

	file  *os.File              // a dup of the channel's descriptor, which is libibverbs' to close
	raw   syscall.RawConn       // of file
	drain func(fd uintptr) bool // what Wait has raw do, made once

	// For Wait alone, and for Destroy, when nobody is in Wait.
	unacked uint  // events taken, not acknowledged
	drained C.int // what drain has found

	mu    sync.Mutex
	woken bool
}

var _ verbs.CQ = (*completionQueue)(nil)

// NewCQ makes a completion queue.
func (d *device) NewCQ(depth int) (verbs.CQ, error) {
	const call = "ibv_create_cq"
	if err := d.add(call); err != nil {
		return nil, err
	}
	cq := &completionQueue{dev: d}
	if code := C.rn_create_cq(d.c, C.int(depth), &cq.c); code != 0 {
		d.done()
		err := &Error{Call: call, Code: int(code)}
		if code == C.RN_SILENT {
			// libsiw forgets to say why; what the kernel has refused
			// it is memory
			err.Code = int(syscall.ENOMEM)
			err.Hint = "the device gives no more completion queues, or none this deep"
		}
		return nil, err
	}
	var err error
	if cq.file, cq.raw, err = pollable(int(cq.c.channel.fd), "completion channel"); err != nil {
		C.rn_destroy_cq(cq.c, 0)
		d.done()
		return nil, err
	}
	cq.drain = func(uintptr) bool {
		cq.drained = C.rn_drain(cq.c)
		return cq.drained != 0
	}
	return cq, nil
}

func (cq *completionQueue) Poll(wc []verbs.WC) (int, error) {
	if len(wc) == 0 {
		return 0, nil
	}
	n := C.rn_poll(cq.c, (*C.struct_rn_go_wc)(unsafe.Pointer(&wc[0])), C.int(len(wc)))
	if n < 0 {
		return 0, callError("ibv_poll_cq", -n)
	}
	return int(n), nil
}

func (cq *completionQueue) Arm() error {
	if code := C.rn_arm(cq.c); code != 0 {
		return callError("ibv_req_notify_cq", code)
	}
	return nil
}

func (cq *completionQueue) Wait() error {
	err := cq.raw.Read(cq.drain)
	switch {
	case err == nil && cq.drained > 0:
		cq.unacked += uint(cq.drained)
		return nil
	case err == nil:
		return callError("ibv_get_cq_event", -cq.drained)
	case errors.Is(err, os.ErrDeadlineExceeded):
		cq.mu.Lock()
		defer cq.mu.Unlock()
		cq.woken = false
		return cq.file.SetReadDeadline(time.Time{})
	}
	return err
}

func (cq *completionQueue) Wake() {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if !cq.woken {
		cq.woken = true
		// It fails only for a closed file, on which nobody waits.
		cq.file.SetReadDeadline(time.Unix(1, 0))
	}
}

func (cq *completionQueue) Destroy() error {
	// ibv_destroy_cq waits until all events taken are acknowledged. They are
	// here, all at once, since an acknowledgement takes a lock.
	unacked := C.uint(cq.unacked)
	cq.unacked = 0
	if code := C.rn_destroy_cq(cq.c, unacked); code != 0 {
		return callError("ibv_destroy_cq", code)
	}
	cq.file.Close()
	cq.dev.done()
	return nil
}
