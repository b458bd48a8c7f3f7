//go:build linux

package interop

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A wire is two RDMA devices of this machine, or, for the software NIC, none, whose traffic goes over a pair of
// Ethernet interfaces, which can be cut: to each, the other is on another host.
//
// Packets between two addresses of one machine do not leave it by themselves. Here
// they do, by rules that are asked before the table of local addresses. Network
// namespaces would do the same with less, but Soft-RoCE before Linux 6.16 or so
// receives packets in the first namespace only.
//
// The devices cannot be removed as long as a process uses them, so that both ends
// of a connection are children of the test.
type wire struct {
	t           *testing.T
	near, far   netip.Addr
	names       [2]string // of the interfaces, near and far
	devices     [2]string
	rdma, ip, c string // programs: rdma, ip, tc
}

// wireTable is the routing table of what goes over the wire.
const wireTable = "9417"

// newWire makes a wire of two devices of the kind that is tested.
func newWire(t *testing.T, dev device) *wire {
	t.Helper()
	if dev.kind() == "" {
		t.Skipf("%s is neither rxe nor siw: this test makes devices of its own", dev.name)
	}
	if !inLab() {
		t.Skipf("changes this machine's routing: set %s=1 if it may", envLab)
	}
	w := &wire{
		t: t, near: netip.MustParseAddr("10.255.77.1"), far: netip.MustParseAddr("10.255.77.2"),
		names: [2]string{"iwn", "iwf"}, devices: [2]string{"iwnear", "iwfar"},
		rdma: findProgram(t, "rdma"), ip: findProgram(t, "ip"), c: findProgram(t, "tc"),
	}
	w.run(w.ip, "link", "add", w.names[0], "type", "veth", "peer", "name", w.names[1])
	t.Cleanup(func() { w.try(w.ip, "link", "del", w.names[0]) })
	for i, addr := range []netip.Addr{w.near, w.far} {
		for name, value := range map[string]string{"accept_local": "1", "rp_filter": "0", "arp_ignore": "1"} {
			require.NoError(t, os.WriteFile(filepath.Join("/proc/sys/net/ipv4/conf", w.names[i], name), []byte(value), 0))
		}
		w.run(w.ip, "addr", "add", addr.String()+"/32", "dev", w.names[i])
		w.run(w.ip, "link", "set", w.names[i], "up")
		w.rule("1", "iif", w.names[i], "lookup", "local")
		w.rule("3", "to", addr.String()+"/32", "lookup", wireTable)
	}
	w.loss("add", "0%")
	w.route()
	w.rule("5", "lookup", "local")
	w.run(w.ip, "rule", "del", "pref", "0")
	t.Cleanup(func() { w.try(w.ip, "rule", "add", "pref", "0", "lookup", "local") })
	if pairingOf(t) == onSoftware {
		return w
	}
	for i := range w.devices {
		w.run(w.rdma, "link", "add", w.devices[i], "type", dev.kind(), "netdev", w.names[i])
		t.Cleanup(func() { w.try(w.rdma, "link", "del", w.devices[i]) })
	}
	if dev.kind() == "rxe" {
		w.awaitGID(0, w.near)
		w.awaitGID(1, w.far)
	}
	return w
}

// rule adds a routing rule until the test ends.
func (w *wire) rule(pref string, what ...string) {
	w.t.Helper()
	what = append([]string{"pref", pref}, what...)
	w.run(w.ip, append([]string{"rule", "add"}, what...)...)
	w.t.Cleanup(func() { w.try(w.ip, append([]string{"rule", "del"}, what...)...) })
}

// route sends what is for one end out of the other. The routes go when an
// interface goes down.
func (w *wire) route() {
	w.t.Helper()
	w.run(w.ip, "route", "replace", w.far.String(), "dev", w.names[0], "src", w.near.String(), "table", wireTable)
	w.run(w.ip, "route", "replace", w.near.String(), "dev", w.names[1], "src", w.far.String(), "table", wireTable)
}

// awaitGID waits until a device has the GID of its address, without which there
// are no connections.
func (w *wire) awaitGID(i int, addr netip.Addr) {
	w.t.Helper()
	b := addr.As16()
	var want strings.Builder
	for j := 0; j < len(b); j += 2 {
		if j > 0 {
			want.WriteByte(':')
		}
		fmt.Fprintf(&want, "%02x%02x", b[j], b[j+1])
	}
	require.Eventually(w.t, func() bool {
		files, _ := filepath.Glob(filepath.Join("/sys/class/infiniband", w.devices[i], "ports/1/gids/*"))
		for _, file := range files {
			if gid, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(gid)) == want.String() {
				return true
			}
		}
		return false
	}, patience, 50*time.Millisecond, "the GID %s of %s", want.String(), w.devices[i])
}

// down takes the far end's link down, up brings it back.
func (w *wire) down() { w.run(w.ip, "link", "set", w.names[1], "down") }

func (w *wire) up() {
	w.run(w.ip, "link", "set", w.names[1], "up")
	w.route()
}

// lose makes the wire lose all packets while the links stay up; keep ends that.
func (w *wire) lose() { w.loss("change", "100%") }

func (w *wire) keep() { w.loss("change", "0%") }

// loss sets what part of the packets is lost. The queueing discipline that does it is
// there from the beginning: while one takes the place of another, the kernel refuses
// packets, and that may cost rxe the queue pair.
func (w *wire) loss(verb, part string) {
	w.t.Helper()
	for _, name := range w.names {
		w.run(w.c, "qdisc", verb, "dev", name, "root", "netem", "limit", "100000", "loss", part)
	}
}

func (w *wire) run(program string, args ...string) {
	w.t.Helper()
	require.NoError(w.t, w.command(program, args...))
}

// try is run for what cleans up.
func (w *wire) try(program string, args ...string) {
	if err := w.command(program, args...); err != nil {
		w.t.Error(err)
	}
}

func (w *wire) command(program string, args ...string) error {
	cmd := exec.Command("timeout", append([]string{"20", program}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(program), strings.Join(args, " "), err, out)
	}
	return nil
}
