package cm

import (
	"context"
	"sync/atomic"
)

// The states of a hand-over. The first to leave handoverOpen wins, by one
// compare-and-swap:
//
//	            the worker has a result
//	         ┌──────────────────────────▶ delivered: the caller takes it
//	open ────┤
//	         └──────────────────────────▶ abandoned: the worker disposes of it
//	            the caller's context ends
const (
	handoverOpen int32 = iota
	handoverDelivered
	handoverAbandoned
)

// await runs work in a goroutine of its own and waits for its result or for the
// end of ctx. If ctx ends first it returns at once with left true, whatever
// work is doing, also if it is blocked in foreign code; a result that work
// still comes to is then given to discard, in work's goroutine. So each result
// has exactly one owner. A result is what work returns without an error.
func await[T any](ctx context.Context, work func() (T, error), discard func(T)) (v T, err error, left bool) {
	type result struct {
		v   T
		err error
	}
	var state atomic.Int32
	done := make(chan result, 1)
	go func() {
		v, err := work()
		if state.CompareAndSwap(handoverOpen, handoverDelivered) {
			done <- result{v, err}
		} else if err == nil {
			discard(v)
		}
	}()
	select {
	case r := <-done:
		return r.v, r.err, false
	case <-ctx.Done():
		if state.CompareAndSwap(handoverOpen, handoverAbandoned) {
			return v, nil, true
		}
		r := <-done // on its way already
		return r.v, r.err, false
	}
}

// interruptOn arranges for interrupt, which interrupts an identifier, to be
// called when ctx ends. The worker that owns the identifier calls stop, once,
// before it destroys the identifier or hands it over: interrupt has returned, or
// is never called, when stop has returned. stop reports false if it was called,
// and then only Destroy is of use.
func interruptOn(ctx context.Context, interrupt func()) (stop func() bool) {
	interrupted := make(chan struct{})
	unregister := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		interrupt()
	})
	return func() bool {
		if unregister() {
			return true
		}
		<-interrupted
		return false
	}
}
