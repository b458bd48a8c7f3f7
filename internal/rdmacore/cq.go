//go:build linux && cgo

package rdmacore

// #cgo noescape rn_watch_poll
// #cgo nocallback rn_watch_poll
// #cgo noescape rn_watch_arm
// #cgo nocallback rn_watch_arm
// #cgo noescape rn_watch_take
// #cgo nocallback rn_watch_take
// #cgo noescape rn_attach
// #cgo nocallback rn_attach
// #cgo noescape rn_linger
// #cgo nocallback rn_linger
// #cgo noescape rn_wake
// #cgo nocallback rn_wake
// #include "shim.h"
import "C"

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// completionQueue is an ibv_cq with a completion channel of its own, and on iWARP a
// second one with that channel, for sends: there Writes ask for completions that
// mostly nobody waits for, and a queue of their own need not be armed.
//
// Wait sleeps in Go's poller, Linger in the kernel on the caller's thread. What
// the poller watches is not the channel but an epoll set, in which the channel
// is only while somebody waits there: an event for Linger then wakes nobody else.
//
// Wake ends Wait by a read deadline in the past, which the set has for no other
// purpose, and Linger by a flag and, where it sleeps, an eventfd: woken says that
// there are deadline and flag, and both are changed together under mu. Whoever is in
// Wait takes them back, so one Wake ends one Wait.
type completionQueue struct {
	dev   *device
	c     *C.struct_rn_cq
	sends *C.struct_rn_cq // or nil
	watch *C.struct_rn_watch
	at    C.uintptr_t // watch, as it crosses
	found *[C.RN_BATCH]verbs.WC

	file  *os.File              // the epoll set
	raw   syscall.RawConn       // of file
	drain func(fd uintptr) bool // what Wait has raw do, made once
	taken C.int                 // for Wait alone: what drain has found

	mu    sync.Mutex
	woken bool
}

var (
	_ verbs.Lingerer  = (*completionQueue)(nil)
	_ verbs.SendMuter = (*completionQueue)(nil)
)

// NewCQ makes a completion queue.
func (d *device) NewCQ(depth int) (verbs.CQ, error) {
	const call = "ibv_create_cq"
	if err := d.add(call); err != nil {
		return nil, err
	}
	cq := &completionQueue{dev: d}
	code := C.rn_create_cq(d.c, C.int(depth), &cq.c)
	if code == 0 && d.info.Transport == verbs.IWARP {
		code = C.rn_create_sends_cq(cq.c, C.int(depth), &cq.sends)
	}
	var err error
	switch code {
	case 0:
		err = cq.open()
	case C.RN_SILENT:
		// libsiw forgets to say why; what the kernel has refused it is
		// memory
		err = &Error{Call: call, Code: int(syscall.ENOMEM), Hint: "the device gives no more completion queues, or none this deep"}
	case C.int(syscall.ENOMEM):
		err = &Error{Call: call, Code: int(code), Hint: "the device may have no more completion queues, or none this deep"}
	default:
		err = &Error{Call: call, Code: int(code)}
	}
	if err != nil {
		if cq.c != nil {
			C.rn_destroy_cq(cq.c, 0, cq.sends, 0)
		}
		d.done()
		return nil, err
	}
	cq.drain = func(uintptr) bool {
		cq.taken = C.rn_watch_take(cq.at)
		return cq.taken != 0
	}
	return cq, nil
}

// open prepares to wait.
func (cq *completionQueue) open() error {
	if code := C.rn_watch(cq.c, cq.sends, &cq.watch); code != 0 {
		return callError("epoll_create1", code)
	}
	fd := int(cq.watch.epoll)
	err := os.NewSyscallError("fcntl", unix.SetNonblock(fd, true))
	if err == nil {
		cq.file = os.NewFile(uintptr(fd), "completion channel")
		cq.raw, err = cq.file.SyscallConn()
	}
	if err != nil {
		if cq.file != nil {
			cq.file.Close()
		} else {
			unix.Close(fd)
		}
		C.rn_unwatch(cq.watch)
		return err
	}
	cq.at = C.uintptr_t(uintptr(unsafe.Pointer(cq.watch)))
	cq.found = (*[C.RN_BATCH]verbs.WC)(unsafe.Pointer(&cq.watch.wc))
	return nil
}

func (cq *completionQueue) Poll(wc []verbs.WC) (int, error) {
	done := 0
	for done < len(wc) {
		count := min(len(wc)-done, C.RN_BATCH)
		n, err := cq.take(wc[done:], C.rn_watch_poll(cq.at, C.int(count)))
		if done += n; err != nil || n < count {
			if done > 0 {
				err = nil // a failure that lasts is seen at the next poll
			}
			return done, err
		}
	}
	return done, nil
}

// take copies the n completions that C has found.
func (cq *completionQueue) take(wc []verbs.WC, n C.int) (int, error) {
	if n < 0 {
		return 0, callError("ibv_poll_cq", -n)
	}
	return copy(wc, cq.found[:n]), nil
}

func (cq *completionQueue) Arm() error {
	if code := C.rn_watch_arm(cq.at); code != 0 {
		return callError("ibv_req_notify_cq", code)
	}
	return nil
}

func (cq *completionQueue) Linger(wc []verbs.WC, spin, block time.Duration) (n int, slept bool, err error) {
	n, err = cq.take(wc, C.rn_linger(cq.at, C.int(len(wc)), C.int64_t(spin), C.int64_t(block)))
	return n, cq.watch.slept != 0, err
}

func (cq *completionQueue) Wait() error {
	if code := C.rn_attach(cq.at); code != 0 {
		return callError("epoll_ctl", code)
	}
	err := cq.raw.Read(cq.drain)
	switch {
	case err == nil && cq.taken > 0:
		return nil
	case err == nil:
		return callError("ibv_get_cq_event", -cq.taken)
	case errors.Is(err, os.ErrDeadlineExceeded):
		cq.mu.Lock()
		defer cq.mu.Unlock()
		cq.woken = false
		atomic.StoreInt32((*int32)(unsafe.Pointer(&cq.watch.woken)), 0)
		return cq.file.SetReadDeadline(time.Time{})
	}
	return err
}

func (cq *completionQueue) Wake() {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if !cq.woken && cq.watch != nil {
		cq.woken = true
		// It fails only for a closed file, on which nobody waits.
		cq.file.SetReadDeadline(time.Unix(1, 0))
		C.rn_wake(cq.watch)
	}
}

func (cq *completionQueue) MuteSends(muted bool) {
	cq.watch.muted = cBool(muted && cq.sends != nil)
}

func (cq *completionQueue) Destroy() error {
	// ibv_destroy_cq waits until all events taken are acknowledged. They are
	// here, all at once, since an acknowledgement takes a lock.
	unacked, ofSends := cq.watch.unacked, cq.watch.unacked_sends
	cq.watch.unacked, cq.watch.unacked_sends = 0, 0
	if code := C.rn_destroy_cq(cq.c, unacked, cq.sends, ofSends); code != 0 {
		return callError("ibv_destroy_cq", code)
	}
	cq.file.Close()
	cq.mu.Lock()
	C.rn_unwatch(cq.watch)
	cq.watch = nil
	cq.mu.Unlock()
	cq.dev.done()
	return nil
}
