package cm_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/cm/scripted"
)

// line is a result as a line of text, with its error's presence.
func line(r cm.StageResult) string {
	return fmt.Sprintf("%v %s#%d %v %dms took %v %v %d failed=%v", r.Stage, r.Call, r.Attempt, r.Addr, r.TimeoutMS, r.Elapsed, r.Event, r.Status, r.Err != nil)
}

func lines(rec *recorder) []string {
	var s []string
	for _, r := range rec.results() {
		s = append(s, line(r))
	}
	return s
}

// Every call of every attempt is seen, with what it was given and what came.
func TestTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider(
			scripted.Script{
				scripted.ResolveAddrInfo: {scripted.Fail(errors.ErrUnsupported)},
				scripted.ResolveAddr:     {timesOut(scripted.ResolveAddr, cm.AddrError), scripted.After(10*time.Millisecond, cm.Event{Type: cm.AddrResolved})},
				scripted.ResolveRoute:    {scripted.Event(cm.RouteResolved, 0)},
				scripted.Connect:         {scripted.After(20*time.Millisecond, cm.Event{Type: cm.Rejected, Status: 8})},
			},
			scripted.Script{scripted.ResolveAddr: {scripted.Fail(syscall.ENETUNREACH)}})
		var rec recorder
		r := several(p, "192.0.2.1", "192.0.2.2")
		r.Trace = rec.trace()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := cm.NewManager(p).Dial(ctx, r)
		require.Error(t, err)
		requireClean(t, p)
		require.Equal(t, []string{
			"resolve addrinfo lookup#0  0ms took 0s none 0 failed=false",
			"open rdma_create_id#0 192.0.2.1:9000 0ms took 0s none 0 failed=false",
			"resolve addrinfo rdma_resolve_addrinfo#0 192.0.2.1:9000 0ms took 0s none 0 failed=true",
			"resolve addrinfo rdma_getaddrinfo#0 192.0.2.1:9000 0ms took 0s none 0 failed=false",
			fmt.Sprintf("resolve address rdma_resolve_addr#0 192.0.2.1:9000 1000ms took 1s ADDR_ERROR %d failed=true", status(syscall.ETIMEDOUT)),
			"resolve address rdma_resolve_addr#1 192.0.2.1:9000 2000ms took 10ms ADDR_RESOLVED 0 failed=false",
			"resolve route rdma_resolve_route#0 192.0.2.1:9000 1000ms took 0s ROUTE_RESOLVED 0 failed=false",
			"connect rdma_create_qp#0 192.0.2.1:9000 0ms took 0s none 0 failed=false",
			"connect rdma_connect#0 192.0.2.1:9000 0ms took 20ms REJECTED 8 failed=true",
			"open rdma_create_id#0 192.0.2.2:9000 0ms took 0s none 0 failed=false",
			"resolve addrinfo rdma_getaddrinfo#0 192.0.2.2:9000 0ms took 0s none 0 failed=false",
			"resolve address rdma_resolve_addr#0 192.0.2.2:9000 1000ms took 0s none 0 failed=true",
		}, lines(&rec))
		require.Len(t, rec.started, len(rec.done))
		for i, s := range rec.started {
			require.Equal(t, s, rec.done[i].StageInfo)
		}
	})
}

// A call that the dial has given up is done when it ends, with the dial's
// error.
func TestTraceAfterDialHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := scripted.NewProvider(scripted.Script{scripted.Connect: {scripted.Stuck(release, scripted.Event(cm.Established, 0))}})
		var rec recorder
		r := request(p)
		r.Trace = rec.trace()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := cm.NewManager(p).Dial(ctx, r)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		before := len(rec.results())
		require.Len(t, rec.started, before+1)
		time.Sleep(time.Second)
		close(release)
		requireClean(t, p)
		last := rec.results()[before]
		require.Equal(t, "rdma_connect", last.Call)
		require.Equal(t, 2*time.Second, last.Elapsed)
		require.ErrorIs(t, last.Err, context.DeadlineExceeded)
	})
}

// Hooks are optional, each for itself.
func TestTraceWithoutHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		r := several(p, "192.0.2.1")
		r.Trace = &cm.Trace{}
		conn, err := cm.NewManager(p).Dial(t.Context(), r)
		require.NoError(t, err)
		finish(conn)
		requireClean(t, p)
	})
}
