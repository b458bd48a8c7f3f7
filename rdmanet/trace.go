package rdmanet

import (
	"context"
	"net"
	"time"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// DialTrace has hooks that watch the stages of a dial, in the manner of
// net/http/httptrace. Any of them may be nil.
//
// They are called by the goroutine that does the work, and must not block it.
// They may be called after DialContext has returned, since a call that it no
// longer waits for ends later, and by several goroutines at once.
type DialTrace struct {
	// StageStart is called before each call of each attempt.
	StageStart func(DialStage)
	// StageDone is called when that call has been answered, has failed, or
	// has been given up.
	StageDone func(DialStageResult)
}

// DialStage says what is about to be done.
type DialStage struct {
	Stage   Stage
	Call    string   // such as "rdma_resolve_route", or "lookup" for a name
	Attempt int      // from 0, within the stage
	Addr    net.Addr // the address that is dialed; nil for a look-up

	// Timeout is what the call is given as timeout_ms, a whole number of
	// milliseconds; 0 for a call that takes none.
	Timeout time.Duration
}

// DialStageResult says how it went.
type DialStageResult struct {
	DialStage
	Elapsed time.Duration // since StageStart
	Event   string        // the event that answered, such as "ROUTE_RESOLVED"; "" if none did
	Err     error         // nil on success
}

type dialTraceKey struct{}

// WithDialTrace returns a context in which dials call the hooks of trace, and
// then those that the context had before.
func WithDialTrace(ctx context.Context, trace *DialTrace) context.Context {
	if trace == nil {
		panic("nil trace")
	}
	return context.WithValue(ctx, dialTraceKey{}, append([]*DialTrace{trace}, dialTraces(ctx)...))
}

func dialTraces(ctx context.Context) []*DialTrace {
	traces, _ := ctx.Value(dialTraceKey{}).([]*DialTrace)
	return traces
}

// stageTrace is the connection manager's trace for a context; nil where nobody
// watches.
func stageTrace(ctx context.Context) *cm.Trace {
	traces := dialTraces(ctx)
	if len(traces) == 0 {
		return nil
	}
	return &cm.Trace{
		StageStart: func(s cm.StageInfo) {
			stage := publicStage(s)
			for _, t := range traces {
				if t.StageStart != nil {
					t.StageStart(stage)
				}
			}
		},
		StageDone: func(r cm.StageResult) {
			result := DialStageResult{DialStage: publicStage(r.StageInfo), Elapsed: r.Elapsed, Err: publicError(r.Err)}
			if r.Event != cm.None {
				result.Event = r.Event.String()
			}
			for _, t := range traces {
				if t.StageDone != nil {
					t.StageDone(result)
				}
			}
		},
	}
}

func publicStage(s cm.StageInfo) DialStage {
	return DialStage{
		Stage: stages[s.Stage], Call: s.Call, Attempt: s.Attempt, Addr: publicAddr(s.Addr),
		Timeout: time.Duration(s.TimeoutMS) * time.Millisecond,
	}
}
