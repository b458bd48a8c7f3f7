package cm_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/cm/scripted"
)

// notRDMA is a provider's error about a server that speaks no RDMA.
type notRDMA struct{}

func (*notRDMA) Error() string   { return "the peer said hello" }
func (*notRDMA) Unwrap() []error { return []error{syscall.EPROTO, cm.ErrNotRDMA} }

// The text says what failed, why, and what to do.
func TestErrorText(t *testing.T) {
	for _, c := range []struct {
		script scripted.Script
		local  string
		want   string
	}{
		{scripted.Script{scripted.ResolveRoute: {scripted.Fail(os.NewSyscallError("rdma_resolve_route", syscall.ENODEV))}}, "",
			"resolve route: no such device (is 192.0.2.7 reachable over an RDMA device?)"},
		{scripted.Script{scripted.ResolveRoute: {scripted.Fail(fmt.Errorf("rdma_resolve_route: %w", syscall.ENODEV))}}, "",
			"resolve route: no such device (is 192.0.2.7 reachable over an RDMA device?)"},
		{scripted.Script{scripted.ResolveAddr: {scripted.Fail(syscall.ENETUNREACH)}}, "",
			"resolve address: network is unreachable (there is no IP route to 192.0.2.7)"},
		{scripted.Script{scripted.ResolveAddr: {scripted.Fail(syscall.EADDRNOTAVAIL)}}, "192.0.2.1:0",
			"resolve address: cannot assign requested address (is the local address 192.0.2.1 one of this host's?)"},
		{scripted.Script{scripted.ResolveAddr: {scripted.Event(cm.AddrError, status(syscall.ENODEV))}}, "",
			"resolve address: no such device (ADDR_ERROR, status -19; is 192.0.2.7 reachable over an RDMA device?)"},
		{scripted.Script{scripted.Connect: {scripted.Event(cm.Rejected, 8)}}, "",
			"connect: connection refused (REJECTED, reason 8: nobody listens there)"},
		{scripted.Script{scripted.Connect: {scripted.Event(cm.Rejected, 28)}}, "",
			"connect: connection refused (REJECTED, reason 28: rejected by the application)"},
		{scripted.Script{scripted.Connect: {scripted.Event(cm.Rejected, 10)}}, "",
			"connect: resource temporarily unavailable (REJECTED, reason 10: stale connection, which passes by itself: try again)"},
		{scripted.Script{scripted.Connect: {scripted.Event(cm.Rejected, 4)}}, "",
			"connect: connection timed out (REJECTED, reason 4: the peer's communication manager timed out)"},
		{scripted.Script{scripted.Connect: {scripted.Event(cm.Rejected, 99)}}, "",
			"connect: connection refused (REJECTED, reason 99: unknown)"},
		{scripted.Script{scripted.Connect: {scripted.Event(cm.Rejected, status(syscall.ECONNRESET))}}, "",
			"connect: connection refused (REJECTED, status -104)"},
		{scripted.Script{scripted.Connect: {scripted.Event(cm.Rejected, status(syscall.ECONNREFUSED))}}, "",
			"connect: connection refused (REJECTED, status -111; does anybody listen on 192.0.2.7:9000?)"},
		{scripted.Script{scripted.Connect: {scripted.After(0, cm.Event{Type: cm.ConnectError, Status: status(syscall.EPERM), Err: os.NewSyscallError("connect", syscall.EPERM)})}}, "",
			"connect: operation not permitted (CONNECT_ERROR, status -1)"},
		{scripted.Script{scripted.Connect: {scripted.After(0, cm.Event{Type: cm.ConnectError, Status: status(syscall.EMFILE), Err: os.NewSyscallError("socket", syscall.EMFILE)})}}, "",
			"connect: socket: too many open files (CONNECT_ERROR, status -24)"},
		{scripted.Script{scripted.Connect: {scripted.After(0, cm.Event{Type: cm.ConnectError, Status: status(syscall.EPROTO), Err: &notRDMA{}})}}, "",
			"connect: the peer said hello (CONNECT_ERROR, status -71; use something else)"},
		{scripted.Script{scripted.Connect: {scripted.After(0, cm.Event{Type: cm.Rejected, Status: 28, Err: errors.New("the peer says: go away")})}}, "",
			"connect: connection refused: the peer says: go away (REJECTED, reason 28: rejected by the application)"},
		{scripted.Script{scripted.Connect: {scripted.Fail(syscall.ECONNREFUSED)}}, "",
			"connect: connection refused (does anybody listen on 192.0.2.7:9000?)"},
		{scripted.Script{scripted.Connect: {scripted.Event(cm.Unreachable, status(syscall.ETIMEDOUT))}}, "",
			"connect: connection timed out (UNREACHABLE, status -110; does 192.0.2.7 have an RDMA device?)"},
		{scripted.Script{scripted.ResolveAddr: {scripted.Event(cm.RouteResolved, 0)}}, "",
			"resolve address: unexpected event ROUTE_RESOLVED instead of ADDR_RESOLVED (ROUTE_RESOLVED)"},
		{scripted.Script{scripted.Connect: {scripted.Silent()}}, "",
			"connect: no answer from the connection manager within 3m0s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := scripted.NewProvider(c.script)
			r := request(p)
			r.PlainAdvice = "use something else"
			if c.local != "" {
				r.Local.AddrPort = netip.MustParseAddrPort(c.local)
			}
			_, err := cm.NewManager(p).Dial(t.Context(), r)
			require.EqualError(t, err, c.want)
			requireClean(t, p)
		})
	}
}
