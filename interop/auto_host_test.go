//go:build linux

package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/rdmanet"
)

// A bareHost is a network namespace that stands for a host without RDMA devices. A
// wire leads there from a device of ours.
type bareHost struct {
	wire
	namespace string
}

func newBareHost(t *testing.T, dev device) *bareHost {
	t.Helper()
	if dev.kind() == "" {
		t.Skipf("%s is neither rxe nor siw: this test makes a device of its own", dev.name)
	}
	if !inLab() {
		t.Skipf("changes this machine's interfaces: set %s=1 if it may", envLab)
	}
	h := &bareHost{namespace: "bare", wire: wire{
		t: t, near: netip.MustParseAddr("10.255.78.1"), far: netip.MustParseAddr("10.255.78.2"),
		names: [2]string{"bhn", "bhf"}, devices: [2]string{"bhnear"}, rdma: findProgram(t, "rdma"), ip: findProgram(t, "ip"),
	}}
	h.run(h.ip, "netns", "add", h.namespace)
	t.Cleanup(func() { h.try(h.ip, "netns", "del", h.namespace) })
	h.run(h.ip, "link", "add", h.names[0], "type", "veth", "peer", "name", h.names[1], "netns", h.namespace)
	t.Cleanup(func() { h.try(h.ip, "link", "del", h.names[0]) })
	h.run(h.ip, "addr", "add", h.near.String()+"/24", "dev", h.names[0])
	h.run(h.ip, "link", "set", h.names[0], "up")
	h.run(h.ip, "-n", h.namespace, "addr", "add", h.far.String()+"/24", "dev", h.names[1])
	h.run(h.ip, "-n", h.namespace, "link", "set", h.names[1], "up")
	h.run(h.rdma, "link", "add", h.devices[0], "type", dev.kind(), "netdev", h.names[0])
	t.Cleanup(func() { h.try(h.rdma, "link", "del", h.devices[0]) })
	if dev.kind() == "rxe" {
		h.awaitGID(0, h.near)
	}
	return h
}

// start runs a child on the bare host.
func (h *bareHost) start(limit time.Duration, o peerOptions) *program {
	h.t.Helper()
	exe, err := os.Executable()
	require.NoError(h.t, err)
	return start(h.t, limit, func(cmd *exec.Cmd) {
		cmd.Env = append(os.Environ(), envChild+"=1")
	}, h.ip, append([]string{"netns", "exec", h.namespace, exe}, o.args()...)...)
}

// requireNoIDs waits until the device has no identifiers of the connection manager.
func (h *bareHost) requireNoIDs(limit time.Duration) {
	h.t.Helper()
	none := regexp.MustCompile(`\bcm_id 0\b`)
	var out []byte
	require.Eventually(h.t, func() bool {
		var err error
		out, err = exec.Command(h.rdma, "resource", "show", h.devices[0]).CombinedOutput()
		return err == nil && none.Match(out)
	}, limit, 100*time.Millisecond, "identifiers are left")
	h.t.Logf("in the end: %s", strings.TrimSpace(string(out)))
}

// autoTries is how often a child dials; the median counts.
const autoTries = 3

// TestAutoToHostWithoutDevice dials, from a device, a host that has none. There a
// RoCE connect is not answered at all.
func TestAutoToHostWithoutDevice(t *testing.T) {
	dev := needDevice(t)
	h := newBareHost(t, dev)
	const delay, slack = 300 * time.Millisecond, 500 * time.Millisecond
	for _, tc := range []struct {
		name     string
		listener string // provider; "plain" for TCP
		winner   map[string]string
	}{
		{"Software", "software", map[string]string{"rxe": "software", "siw": "verbs"}},
		{"plain TCP", "plain", map[string]string{"rxe": "plain", "siw": "plain"}},
		{"nobody", "", map[string]string{"rxe": "deadline exceeded", "siw": "refused"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h.wire.t = t
			near := peerOptions{do: "auto", dial: addrPort(h.far, 9)}
			if tc.listener != "" {
				near.dial = h.start(3*time.Minute, peerOptions{listen: addrPort(h.far, 0), provider: tc.listener, do: "echo-all"}).line("listening on ")
			}
			p := startPeer(t, 3*time.Minute, near)
			var own, took []time.Duration
			for range autoTries {
				var ms [2]time.Duration
				text := p.line("dialed: ")
				var winner string
				_, err := fmt.Sscanf(text, "%q %d %d", &winner, &ms[0], &ms[1])
				require.NoError(t, err, text)
				require.Equal(t, tc.winner[dev.kind()], winner)
				own, took = append(own, ms[0]), append(took, ms[1])
			}
			slices.Sort(own)
			slices.Sort(took)
			bound := own[autoTries/2] + delay + slack
			t.Logf("%s: %s, alone %v, by Auto %v to %v, median %v; may take %v", tc.name, tc.winner[dev.kind()],
				own[autoTries/2], took[0], took[autoTries-1], took[autoTries/2], bound)
			if tc.listener != "" || dev.iwarp() {
				require.Less(t, took[autoTries/2], bound)
			} else {
				require.GreaterOrEqual(t, took[0], autoTimeout)
				require.Less(t, took[autoTries/2], autoTimeout+slack)
			}
			h.requireNoIDs(patience)
			p.line("nothing left")
			require.NoError(t, p.stdin.Close())
		})
	}
}

// autoTimeout bounds a dial to a host where nobody listens.
const autoTimeout = 2 * time.Second

// auto is the child's part: it dials with Auto and by the way that won alone, and
// prints who it was and how long each took; in the end, that nothing is left of them.
func auto(address string) error {
	one := func(dial func(context.Context, string, string) (net.Conn, error)) (winner string, took time.Duration, err error) {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), autoTimeout)
		defer cancel()
		c, err := dial(ctx, "tcp", address)
		took = time.Since(begin)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return "deadline exceeded", took, nil
		case err != nil:
			return "refused", took, nil
		}
		winner = "plain"
		if info, ok := rdmanet.InfoOf(c); ok {
			winner = info.Provider.String()
		}
		return winner, took, errors.Join(exchange(c, 1, 10_000), c.Close())
	}
	d := rdmanet.Dialer{Fallback: (&net.Dialer{}).DialContext, CloseTimeout: patience}
	// What is made once and kept: the device, and memory for a while.
	for _, p := range []rdmanet.Provider{rdmanet.Verbs, rdmanet.Software} {
		if _, _, err := one((&rdmanet.Dialer{Provider: p}).DialContext); err != nil {
			return err
		}
	}
	time.Sleep(3 * time.Second)
	before := descriptors()
	for range autoTries {
		winner, took, err := one(d.DialContext)
		if err != nil {
			return err
		}
		alone := d.DialContext
		switch winner {
		case "verbs":
			alone = (&rdmanet.Dialer{Provider: rdmanet.Verbs}).DialContext
		case "software":
			alone = (&rdmanet.Dialer{Provider: rdmanet.Software}).DialContext
		case "plain":
			alone = (&net.Dialer{}).DialContext
		}
		_, own, err := one(alone)
		if err != nil {
			return err
		}
		fmt.Printf("dialed: %q %d %d\n", winner, own, took)
	}
	for begin := time.Now(); descriptors() > before; time.Sleep(100 * time.Millisecond) {
		if time.Since(begin) > patience {
			return fmt.Errorf("%d descriptors instead of %d", descriptors(), before)
		}
	}
	fmt.Println("nothing left")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// echoPlain echoes on TCP connections, and closes those that speak MPA.
func echoPlain(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			b := make([]byte, 64<<10)
			n, err := c.Read(b)
			if err != nil || bytes.HasPrefix(b[:n], []byte("MPA")) {
				return
			}
			if _, err := c.Write(b[:n]); err == nil {
				io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, b)
			}
		}()
	}
}

// descriptors is how many there are in this process.
func descriptors() int {
	files, _ := filepath.Glob("/proc/self/fd/*")
	return len(files)
}
