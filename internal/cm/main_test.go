package cm_test

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/cm/scripted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peerHost is the address that the tests dial.
const peerHost, peerPort = "192.0.2.7", "9000"

// request dials peerHost with endpoints of the provider.
func request(p *scripted.Provider) cm.DialRequest {
	return cm.DialRequest{Host: peerHost, Service: peerPort, NewEndpoint: func() cm.Endpoint { return p.NewEndpoint() }}
}

// requireClean checks that nothing of the dials or listeners is left and that
// no rule was broken. It waits until all goroutines of the bubble are at rest.
func requireClean(t *testing.T, p *scripted.Provider) {
	t.Helper()
	synctest.Wait()
	require.Empty(t, p.Verify())
}

// finish ends a connection as its owner would.
func finish(conn *cm.Connection) {
	conn.Endpoint.Release()
	_ = conn.Destroy()
}

// stageError is the StageError that err is; err itself must be one.
func stageError(t *testing.T, err error) *cm.StageError {
	t.Helper()
	require.Error(t, err)
	e, ok := err.(*cm.StageError)
	require.Truef(t, ok, "%T: %v", err, err)
	return e
}

func timeout(err error) bool {
	t, ok := err.(interface{ Timeout() bool })
	return ok && t.Timeout()
}

func temporary(err error) bool {
	t, ok := err.(interface{ Temporary() bool })
	return ok && t.Temporary()
}

// A stageCase is one way through one stage of a dial.
type stageCase struct {
	name    string
	stage   cm.Stage
	call    string         // the scripted call
	answer  cm.EventType   // what answers it; None if it is synchronous
	fails   []cm.EventType // the events that say that it has failed
	base    scripted.Script
	answers []cm.AddrInfo
	timed   bool // the call takes a timeout_ms
}

// noAsync is a provider without rdma_resolve_addrinfo.
var noAsync = scripted.Script{scripted.ResolveAddrInfo: {scripted.Fail(errors.ErrUnsupported)}}

var stageCases = []stageCase{
	{name: "addrinfo", stage: cm.StageAddrInfo, call: scripted.ResolveAddrInfo,
		answer: cm.AddrInfoResolved, fails: []cm.EventType{cm.AddrInfoError}},
	{name: "getaddrinfo", stage: cm.StageAddrInfo, call: scripted.GetAddrInfo, base: noAsync},
	{name: "addr", stage: cm.StageAddr, call: scripted.ResolveAddr, timed: true,
		answer: cm.AddrResolved, fails: []cm.EventType{cm.AddrError}},
	{name: "route", stage: cm.StageRoute, call: scripted.ResolveRoute, timed: true,
		answer: cm.RouteResolved, fails: []cm.EventType{cm.RouteError}},
	{name: "setroute", stage: cm.StageRoute, call: scripted.SetRoute, answers: []cm.AddrInfo{{Route: []byte("path")}},
		answer: cm.RouteResolved, fails: []cm.EventType{cm.RouteError}},
	{name: "connect", stage: cm.StageConnect, call: scripted.Connect,
		answer: cm.Established, fails: []cm.EventType{cm.Rejected, cm.Unreachable, cm.ConnectError, cm.Disconnected}},
}

// script is the case's own with steps for its call.
func (c stageCase) script(steps ...scripted.Step) scripted.Script {
	s := scripted.Script{}
	maps.Copy(s, c.base)
	s[c.call] = steps
	return s
}

// provider runs the script.
func (c stageCase) provider(s scripted.Script) *scripted.Provider {
	p := scripted.NewProvider(s)
	p.Answers = c.answers
	return p
}

// forEachStage runs fn, in a bubble of its own, for each case.
func forEachStage(t *testing.T, fn func(t *testing.T, c stageCase)) {
	for _, c := range stageCases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { fn(t, c) })
		})
	}
}

// requireStopped checks that nothing was called after the case's call but what
// cleans up.
func (c stageCase) requireStopped(t *testing.T, id *scripted.ID) {
	t.Helper()
	var after []string
	seen := false
	for _, call := range id.Calls() {
		switch {
		case call.Name == c.call:
			seen = true
		case seen:
			after = append(after, call.Name)
		}
	}
	require.True(t, seen, "%s was not called", c.call)
	for _, name := range after {
		require.Contains(t, []string{scripted.Interrupt, scripted.Destroy}, name)
	}
}

// dialResult is what a Dial in a goroutine of its own has come to.
type dialResult struct {
	conn *cm.Connection
	err  error
	took time.Duration
}

// dialAsync starts a dial.
func dialAsync(ctx context.Context, m *cm.Manager, r cm.DialRequest) <-chan dialResult {
	done := make(chan dialResult, 1)
	began := time.Now()
	go func() {
		conn, err := m.Dial(ctx, r)
		done <- dialResult{conn, err, time.Since(began)}
	}()
	return done
}

// names resolves every name to the addresses.
func names(addrs ...string) cm.Names {
	return cm.Names{LookupHost: func(context.Context, string, string) ([]netip.Addr, error) {
		var ips []netip.Addr
		for _, a := range addrs {
			ips = append(ips, netip.MustParseAddr(a))
		}
		return ips, nil
	}}
}

// A recorder keeps what a Trace sees.
type recorder struct {
	mu      sync.Mutex
	started []cm.StageInfo
	done    []cm.StageResult
}

func (r *recorder) trace() *cm.Trace {
	return &cm.Trace{
		StageStart: func(i cm.StageInfo) { r.mu.Lock(); defer r.mu.Unlock(); r.started = append(r.started, i) },
		StageDone:  func(s cm.StageResult) { r.mu.Lock(); defer r.mu.Unlock(); r.done = append(r.done, s) },
	}
}

func (r *recorder) results() []cm.StageResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]cm.StageResult(nil), r.done...)
}

// status is the negated errno that a provider puts into an event.
func status(errno syscall.Errno) int { return -int(errno) }
