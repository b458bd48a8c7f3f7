package main

import (
	"fmt"
	"io"
	"sync"

	"github.com/rdmanet/rdmanet/rdmanet"
)

// printStages prints each stage of a dial when it has ended.
func printStages(out io.Writer) *rdmanet.DialTrace {
	var mu sync.Mutex
	return &rdmanet.DialTrace{StageDone: func(r rdmanet.DialStageResult) {
		mu.Lock()
		defer mu.Unlock()
		how := r.Event
		if r.Err != nil {
			how = r.Err.Error()
		} else if how == "" {
			how = "done"
		}
		given := "no timeout_ms"
		if r.Timeout > 0 {
			given = fmt.Sprintf("timeout_ms %d", r.Timeout.Milliseconds())
		}
		fmt.Fprintf(out, "%-8s %-22s attempt %d, %s, took %v: %s\n", r.Stage, r.Call, r.Attempt+1, given, r.Elapsed, how)
	}}
}
