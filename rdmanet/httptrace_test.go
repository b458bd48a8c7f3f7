package rdmanet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A hookLog keeps what the hooks of net/http/httptrace are told.
type hookLog struct {
	mu   sync.Mutex
	seen []string
}

func (l *hookLog) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, fmt.Sprintf(format, args...))
}

func (l *hookLog) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.seen...)
}

func (l *hookLog) context(ctx context.Context) context.Context {
	outcome := func(err error) string {
		if err != nil {
			return "fails"
		}
		return "ok"
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		DNSStart:     func(i httptrace.DNSStartInfo) { l.add("dns %s", i.Host) },
		DNSDone:      func(i httptrace.DNSDoneInfo) { l.add("dns %s", outcome(i.Err)) },
		ConnectStart: func(network, addr string) { l.add("connect %s %s", network, addr) },
		ConnectDone:  func(network, addr string, err error) { l.add("connected %s %s %s", network, addr, outcome(err)) },
	})
}

// The hooks are told the same of our dials as of package net's: of each look-up and
// each address once, and nothing of the resolver's sockets.
func TestHTTPTrace(t *testing.T) {
	require.NotNil(t, netTraceKey(), "package net looks for its hooks elsewhere")
	carriers.forget()
	t.Cleanup(carriers.forget)
	rdma, err := (&ListenConfig{Provider: Software}).Listen(t.Context(), "rdma", "127.0.0.1:0")
	require.NoError(t, err)
	defer rdma.Close()
	go echoServer(rdma)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer plain.Close()
	go func() {
		for {
			c, err := plain.Accept()
			if err != nil {
				return
			}
			go echoPlain(c)
		}
	}()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed.Close()
	_, port, err := net.SplitHostPort(rdma.Addr().String())
	require.NoError(t, err)
	_, plainPort, err := net.SplitHostPort(plain.Addr().String())
	require.NoError(t, err)
	loop := netip.MustParseAddr("127.0.0.1")
	resolver := fakeResolver("two.test", netip.MustParseAddr("127.0.0.2"), loop)
	one := fakeResolver("one.test", loop)
	dns := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, closed.Addr().String())
	}}

	for _, tc := range []struct {
		name     string
		address  string
		resolver *net.Resolver
		plain    bool   // with Fallback, to the plain server
		like     string // what package net is to dial instead, if it has no such peer
	}{
		{name: "an address", address: rdma.Addr().String()},
		{name: "nobody", address: closed.Addr().String()},
		{name: "a name", address: "one.test:" + port, resolver: one},
		{name: "a name with two addresses", address: "two.test:" + port, resolver: resolver},
		{name: "an unknown name", address: "three.test:" + port, resolver: resolver},
		{name: "a resolver with sockets", address: "three.test:" + port, resolver: dns},
		{name: "Fallback", address: plain.Addr().String(), plain: true},
		{name: "Fallback, a name", address: "one.test:" + plainPort, resolver: one, plain: true},
		{name: "Fallback, nobody", address: closed.Addr().String(), plain: true},
	} {
		for _, p := range []Provider{Auto, Software} {
			t.Run(fmt.Sprint(tc.name, ", ", p), func(t *testing.T) {
				carriers.forget()
				var want, got hookLog
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				nd := net.Dialer{Resolver: tc.resolver}
				c, netErr := nd.DialContext(want.context(ctx), "tcp", tc.address)
				if netErr == nil {
					c.Close()
				}
				d := Dialer{Provider: p, Resolver: tc.resolver}
				if tc.plain {
					d.Fallback = nd.DialContext
				}
				c, err := d.DialContext(got.context(ctx), "rdma", tc.address)
				if err == nil {
					c.Close()
				}
				require.Equal(t, netErr == nil, err == nil, "%v; package net: %v", err, netErr)
				// A device gives an address up before the software NIC has tried it,
				// and begins with the next.
				require.Equal(t, byAddress(want.all()), byAddress(got.all()))
			})
		}
	}
}

// byAddress puts the lines about each address together, in their order.
func byAddress(lines []string) []string {
	address := func(line string) string {
		if f := strings.Fields(line); len(f) > 2 {
			return f[2]
		}
		return "" // of the look-up, which is first
	}
	slices.SortStableFunc(lines, func(a, b string) int { return cmp.Compare(address(a), address(b)) })
	return lines
}

// Racing families are told of, the loser too, and nothing comes behind the dial.
func TestHTTPTraceConnects(t *testing.T) {
	var l hookLog
	c := newConnects(netTraceOf(l.context(t.Context())), "tcp", 3)
	failed := errors.New("failed")
	c.begin("tcp", "a")
	c.begin("tcp", "b")
	c.end(0, "tcp", "a", failed) // 1 and 2 may still try it
	c.begin("tcp", "a")
	c.wayOver(0)
	c.end(1, "tcp", "a", failed)
	require.Equal(t, []string{"connect tcp a", "connect tcp b"}, l.all())
	c.wayOver(2)
	require.Equal(t, []string{"connect tcp a", "connect tcp b", "connected tcp a fails"}, l.all())
	c.close(failed)
	c.begin("tcp", "c")
	c.end(1, "tcp", "b", nil)
	require.Equal(t, []string{"connect tcp a", "connect tcp b", "connected tcp a fails", "connected tcp b fails"}, l.all())

	l = hookLog{}
	c = newConnects(netTraceOf(l.context(t.Context())), "tcp", 2)
	c.begin("tcp", "a")
	c.end(0, "tcp", "a", nil)
	c.end(1, "tcp", "a", failed)
	c.close(failed)
	require.Equal(t, []string{"connect tcp a", "connected tcp a ok"}, l.all())

	require.Nil(t, newConnects(netTraceOf(t.Context()), "tcp", 2))
	require.Nil(t, newConnects(netTraceOf(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		DNSStart: func(httptrace.DNSStartInfo) {}})), "tcp", 2))
}
