package cm

import (
	"context"
	"time"
)

// DefaultFallbackDelay is that of package net (RFC 8305).
const DefaultFallbackDelay = 300 * time.Millisecond

// deafTime is how long ways have to return when the context has ended. Ours
// return at once; a function of the caller's may not.
const deafTime = 5 * time.Millisecond

// A Way is one way to come to a result.
type Way[T any] func(context.Context) (T, error)

// A Failure is how a way failed.
type Failure struct {
	Way int // its index
	Err error
}

// Race takes the ways in their order: the next begins at once when one has
// failed, and after delay when the last to begin has not answered. With a negative
// delay it never begins before that one has failed; 0 means DefaultFallbackDelay.
// The first way to succeed wins. The others are cancelled, and a result that one of
// them comes to all the same is discarded.
//
//	       begin the first
//	              │
//	┌─────▶ wait for any of
//	│             ├─ a result ─────▶ cancel the others, return it
//	│             ├─ a failure ────▶ begin the next; if there is none, and
//	│             │                  none is under way, return all failures
//	│             ├─ delay ────────▶ begin the next
//	│             └─ the context ──▶ the ways fail by it, at once
//	└─────────────┘
//
// It returns the index of the winner, or −1, and the failures up to then, in the
// order in which they came. A single way runs in the caller's goroutine.
func Race[T any](ctx context.Context, delay time.Duration, ways []Way[T], discard func(T)) (v T, winner int, failed []Failure) {
	if len(ways) == 1 {
		v, err := ways[0](ctx)
		if err != nil {
			return v, -1, []Failure{{0, err}}
		}
		return v, 0, nil
	}
	if delay == 0 {
		delay = DefaultFallbackDelay
	}
	racing, cancel := context.WithCancel(ctx)
	defer cancel()

	type result struct {
		way int
		v   T
		err error
	}
	results := make(chan result)
	left := make(chan struct{}) // closed when nobody takes results any more
	defer close(left)
	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()

	begun := 0
	running := make(map[int]bool)
	begin := func() {
		way := begun
		begun++
		running[way] = true
		go func() {
			v, err := ways[way](racing)
			select {
			case results <- result{way, v, err}:
			case <-left:
				if err == nil {
					discard(v)
				}
			}
		}()
		if delay > 0 && begun < len(ways) {
			timer.Reset(delay)
		}
	}
	begin()
	ended, over := ctx.Done(), false
	for {
		select {
		case <-ended:
			ended, over = nil, true
			timer.Reset(deafTime)
		case r := <-results:
			if r.err == nil {
				return r.v, r.way, failed
			}
			delete(running, r.way)
			failed = append(failed, Failure{r.way, r.err})
			switch {
			case begun < len(ways) && ctx.Err() == nil:
				timer.Stop()
				begin()
			case len(running) == 0:
				if begun < len(ways) {
					failed = append(failed, Failure{begun, Ended(ctx, StageOpen)}) // why it was not begun
				}
				return v, -1, failed
			}
		case <-timer.C:
			if !over {
				begin()
				continue
			}
			for way := range begun {
				if running[way] {
					failed = append(failed, Failure{way, Ended(ctx, StageConnect)})
				}
			}
			return v, -1, failed
		}
	}
}

// Ended is the error of a dial whose context is over, at a stage.
func Ended(ctx context.Context, stage Stage) error {
	return &StageError{Stage: stage, Err: newContextError(ctx)}
}
