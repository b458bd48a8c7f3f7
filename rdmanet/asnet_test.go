package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The tests below do the same with package net, over TCP, and with the software
// NIC, and compare the outcome: the class of the error, or the addresses.

// An outcome is what can be told of a dial or of a listener.
type outcome struct {
	class string // of the error; "" if there is none

	// Of a *net.OpError: whether it has addresses.
	op           string
	source, addr bool

	// Of a connection: the addresses without the port that the system chose.
	local, remote string
}

// classOf is what programs ask of an error of Dial or Listen.
func classOf(err error) string {
	var network net.UnknownNetworkError
	var addr *net.AddrError
	var dns *net.DNSError
	var errno syscall.Errno
	switch {
	case err == nil:
		return ""
	case errors.As(err, &network):
		return "unknown network " + string(network)
	case errors.As(err, &addr):
		return "AddrError: " + addr.Err
	case errors.As(err, &dns):
		return fmt.Sprintf("DNSError for %q, not found %v", dns.Name, dns.IsNotFound)
	case errors.As(err, &errno):
		return errno.Error()
	case err.(net.Error).Timeout():
		return "timeout"
	case strings.Contains(err.Error(), errMissingAddress.Error()):
		return errMissingAddress.Error()
	}
	return err.Error()
}

func outcomeOf(err error, local, remote net.Addr) outcome {
	o := outcome{class: classOf(err)}
	if err != nil {
		oe, ok := err.(*net.OpError)
		if !ok {
			return o
		}
		o.op, o.source, o.addr = oe.Op, oe.Source != nil, oe.Addr != nil
		return o
	}
	text := func(a net.Addr) string {
		tcp, ok := a.(*net.TCPAddr)
		if !ok {
			return ""
		}
		return tcp.IP.String() + "%" + tcp.Zone
	}
	o.local, o.remote = text(local), text(remote)
	return o
}

// ports are the ports of a listener of each kind on each family's loopback address,
// which a test's addresses call LISTEN.
type ports struct{ net, ours string }

// twins are a TCP listener and one of the software NIC, on all addresses.
func twins(t *testing.T) ports {
	t.Helper()
	serve := func(l net.Listener) string {
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Close()
			}
		}()
		_, port, err := net.SplitHostPort(l.Addr().String())
		require.NoError(t, err)
		return port
	}
	theirs, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	ours, err := (&ListenConfig{Provider: Software}).Listen(t.Context(), "tcp", ":0")
	require.NoError(t, err)
	return ports{serve(theirs), serve(ours)}
}

// asNetNames is a resolver that knows names and no machine's DNS.
func asNetNames() *net.Resolver {
	return fakeResolver("four.test", netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2"))
}

func TestDialAsNet(t *testing.T) {
	p := twins(t)
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	hosts := []string{
		"", "127.0.0.1", "127.0.0.2", "0.0.0.0", "[::]", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:0.0.0.0]",
		"[::1%lo]", "[fe80::1%nowhere]", "[127.0.0.1%lo]", "four.test", "unknown.test",
	}
	var addresses []string
	for _, host := range hosts {
		addresses = append(addresses, host+":LISTEN")
	}
	addresses = append(addresses, "127.0.0.1:0", "127.0.0.1:1", "[::1]:1", "[::]:1", ":1", "four.test:1")
	wrong := []string{
		"", ":", "127.0.0.1", "::1", "::1:80", "[::1]", "[::1", "127.0.0.1:70000", "127.0.0.1:-1", "127.0.0.1:x",
		"127.0.0.1:nosuchservice", "four.test:65536", "[[::1]]:1", "127.0.0.1]:1", "a:b:c",
	}
	type local struct {
		name string
		addr net.Addr
	}
	tcp := func(s string) local {
		a, err := net.ResolveTCPAddr("tcp", s)
		require.NoError(t, err)
		return local{s, a}
	}
	locals := []local{{"none", nil}, {"typed nil", (*net.TCPAddr)(nil)}, {"empty", &net.TCPAddr{}}, tcp("127.0.0.1:0"), tcp("[::1]:0"), tcp("0.0.0.0:0"), tcp("[::]:0"),
		{"mapped", &net.TCPAddr{IP: net.ParseIP("::ffff:127.0.0.1")}}, {"4 bytes", &net.TCPAddr{IP: net.IP{127, 0, 0, 1}}}}
	odd := []local{{"3 bytes", &net.TCPAddr{IP: net.IP{1, 2, 3}}}, {"UDP", &net.UDPAddr{}}, {"unix", &net.UnixAddr{Name: "x", Net: "unix"}},
		{"foreign", &net.TCPAddr{IP: net.IPv4(203, 0, 113, 9)}}, {"taken", taken.Addr()}}

	cases, same := 0, 0
	check := func(network, address string, from local) {
		dial := func(d func(network, address string) (net.Conn, error), port string) outcome {
			c, err := d(network, strings.ReplaceAll(address, "LISTEN", port))
			if err != nil {
				return outcomeOf(err, nil, nil)
			}
			defer c.Close()
			return outcomeOf(nil, c.LocalAddr(), c.RemoteAddr())
		}
		theirs := net.Dialer{LocalAddr: from.addr, Resolver: asNetNames(), Timeout: 20 * time.Second}
		ours := Dialer{LocalAddr: from.addr, Resolver: asNetNames(), Timeout: 20 * time.Second, Provider: Software}
		want, got := dial(theirs.Dial, p.net), dial(ours.Dial, p.ours)
		cases++
		if want == got {
			same++
			return
		}
		if known := dialDifference(network, address, from.name, want, got); known != "" {
			return
		}
		t.Errorf("Dial(%q, %q) from %s:\nnet  %+v\nours %+v", network, address, from.name, want, got)
	}
	for _, network := range []string{"tcp", "tcp4", "tcp6"} {
		for _, address := range addresses {
			for _, from := range locals {
				check(network, address, from)
			}
		}
		for _, address := range wrong {
			check(network, address, locals[0])
		}
		for _, from := range odd {
			for _, address := range []string{"127.0.0.1:LISTEN", "[::1]:LISTEN", ":LISTEN"} {
				check(network, address, from)
			}
		}
	}
	check("pigeon", "127.0.0.1:1", locals[0])
	check("tcp:6", "127.0.0.1:1", locals[0])
	check("", "127.0.0.1:1", locals[0])
	check("tcp", "255.255.255.255:1", locals[0])
	for _, port := range []int{-1, 70000} {
		check("tcp", "127.0.0.1:LISTEN", local{"port " + strconv.Itoa(port), &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}})
	}
	t.Logf("%d dials, %d of them the same in all", cases, same)
}

// dialDifference is why a dial differs on purpose; "" if it does not.
func dialDifference(network, address, from string, want, got outcome) string {
	const unsuitable, mismatched = "AddrError: no suitable address found", "AddrError: mismatched local address type"
	switch {
	case from == "[::]:0" && network == "tcp4" && strings.HasPrefix(want.class, "AddrError: non-IPv4 address") && (got.class == "" || got.class == syscall.ECONNREFUSED.Error()):
		return "a wildcard as local address is of both families"
	case from == "[::]:0" && network == "tcp" && (want.class == "" || want.class == syscall.EADDRNOTAVAIL.Error()) &&
		(got.remote == "127.0.0.1%" || got.class == syscall.ECONNREFUSED.Error()):
		return "a wildcard without a port as local address says nothing, and 0.0.0.0 is of IPv4"
	case got.class == unsuitable && (want.class == "AddrError: non-IPv4 address" || want.class == "AddrError: non-IPv6 address" || want.class == syscall.EINVAL.Error()):
		return "a local address of another family is one error, whatever is dialed"
	case got.class == mismatched && want.class == unsuitable && (from == "UDP" || from == "unix"):
		return "of two faults the other is found first"
	case got.class == "AddrError: invalid port" && want.class == syscall.EINVAL.Error() && strings.HasPrefix(from, "port "):
		return "the error says what is invalid"
	}
	return ""
}

func TestListenAsNet(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	cases := 0
	for _, network := range []string{"tcp", "tcp4", "tcp6", "pigeon", "", "tcp:6"} {
		for _, address := range []string{
			"", ":", ":0", "0.0.0.0:0", "[::]:0", "127.0.0.1:0", "127.0.0.1:", "127.0.0.2:0", "[::1]:0", "[::1%lo]:0", "[::ffff:127.0.0.1]:0",
			"[::ffff:0.0.0.0]:0", "localhost:0", "203.0.113.9:0", "[2001:db8::9]:0", "[fe80::1%nowhere]:0",
			"127.0.0.1", "::1", "[::1]", "127.0.0.1:70000", "127.0.0.1:-1", "127.0.0.1:x", ":nosuchservice", "[[::1]]:0", "a:b:c",
			taken.Addr().String(),
		} {
			listen := func(f func(ctx context.Context, network, address string) (net.Listener, error)) outcome {
				l, err := f(t.Context(), network, address)
				if err != nil {
					return outcomeOf(err, nil, nil)
				}
				defer l.Close()
				return outcomeOf(nil, l.Addr(), nil)
			}
			want := listen((&net.ListenConfig{}).Listen)
			got := listen((&ListenConfig{Provider: Software}).Listen)
			cases++
			if want != got {
				t.Errorf("Listen(%q, %q):\nnet  %+v\nours %+v", network, address, want, got)
			}
		}
	}
	t.Logf("%d listeners", cases)
}
