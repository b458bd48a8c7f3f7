//go:build linux && cgo

package rdmacore

// #include "shim.h"
import "C"

import (
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// interruptible is what an identifier needs to get out of a call that blocks in
// the kernel or in the library: it knows which thread makes the call.
//
//   - A call that is made here sets tid, under mu, and clears it, under mu, when
//     it has returned. So a signal sent under mu goes to a thread that exists
//     and that is in the call, or about to enter or to leave it.
//   - A signal that comes before the thread has entered the kernel ends nothing;
//     so it is sent again, in ever longer intervals, until tid is cleared.
//   - A signal that comes after the call has returned runs a handler that does
//     nothing. It comes at the latest when the thread next leaves the kernel,
//     which it does before it gets another call.
//   - interrupted stays set: what is called later does not begin.
type interruptible struct {
	mu          sync.Mutex
	tid         int // the thread that is in a call; 0 for none
	interrupted bool
	pursuing    bool // a goroutine sends signals
}

// The intervals between two signals to the same thread.
const (
	firstSignalAfter = time.Millisecond
	lastSignalAfter  = 64 * time.Millisecond
)

// here makes a call, which hardly ever blocks, on the thread it happens to be
// on.
func (b *interruptible) here(call func() int) int {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if !b.enter() {
		return int(syscall.EINTR)
	}
	defer b.leave()
	return call()
}

// apart makes a call, which may well block, on a thread apart, which ends when it
// has had nothing more to do for a while: its goroutine does not unlock itself from
// it. Otherwise every call that has ever blocked at the same time as others would
// leave a thread behind in Go's runtime, which keeps what it has once started.
func (b *interruptible) apart(call func() int) int {
	job := blockingCall{b, call, make(chan int, 1)}
	select {
	case idleThreads <- job:
	default:
		go job.thread()
	}
	return <-job.done
}

// A blockingCall is a call on its way to a thread apart.
type blockingCall struct {
	b    *interruptible
	call func() int
	done chan int
}

// idleThreads is where threads apart wait for their next call.
var idleThreads = make(chan blockingCall)

// threadGrace is how long they do.
const threadGrace = 100 * time.Millisecond

// thread makes calls, first this one.
func (job blockingCall) thread() {
	runtime.LockOSThread()
	C.rn_unblock_signal()
	idle := time.NewTimer(threadGrace)
	defer idle.Stop()
	for {
		job.done <- job.make()
		idle.Reset(threadGrace)
		select {
		case job = <-idleThreads:
		case <-idle.C:
			return
		}
	}
}

func (job blockingCall) make() int {
	if !job.b.enter() {
		return int(syscall.EINTR)
	}
	defer job.b.leave()
	return job.call()
}

func (b *interruptible) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.interrupted {
		return false
	}
	b.tid = syscall.Gettid()
	return true
}

func (b *interruptible) leave() {
	b.mu.Lock()
	b.tid = 0
	b.mu.Unlock()
}

// interrupt ends the call that is under way, and all later ones.
func (b *interruptible) interrupt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.interrupted = true
	if b.tid != 0 && !b.pursuing {
		b.pursuing = true
		go b.pursue()
	}
}

func (b *interruptible) pursue() {
	signal := syscall.Signal(C.rn_signal())
	for wait := firstSignalAfter; ; wait = min(2*wait, lastSignalAfter) {
		b.mu.Lock()
		if b.tid == 0 {
			b.pursuing = false
			b.mu.Unlock()
			return
		}
		// Without the handler the signal would be one of Go's, which
		// is harmless too.
		if C.rn_install_handler() == 0 {
			syscall.Tgkill(os.Getpid(), b.tid, signal)
		}
		b.mu.Unlock()
		time.Sleep(wait)
	}
}
