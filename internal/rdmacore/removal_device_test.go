//go:build linux && cgo

package rdmacore

import (
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// A device of the test's own, of the kind that RDMANET_TEST_DEVICE is of.
const (
	ownNetdev = "rdmanet0"
	ownLink   = "rdmanetdev0"
	ownAddr   = "203.0.113.1"
)

func run(t testing.TB, args ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Logf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return err
}

// addLink makes the device; it says how to take it away.
func addLink(t testing.TB, name string) (remove func() error) {
	t.Helper()
	kind := strings.TrimRight(name, "0123456789")
	if kind != "rxe" && kind != "siw" {
		t.Skipf("cannot make another device like %s", name)
	}
	ip, err := exec.LookPath("/usr/bin/ip") // not that of a busybox
	if err != nil || os.Geteuid() != 0 {
		t.Skip("making a device needs iproute2 and root")
	}
	if _, err := exec.LookPath("rdma"); err != nil {
		t.Skip("making a device needs iproute2's rdma")
	}
	require.NoError(t, run(t, ip, "link", "add", ownNetdev, "type", "dummy"))
	t.Cleanup(func() {
		if _, err := net.InterfaceByName(ownNetdev); err == nil {
			run(t, ip, "link", "del", ownNetdev)
		}
	})
	require.NoError(t, run(t, ip, "addr", "add", ownAddr+"/24", "dev", ownNetdev))
	require.NoError(t, run(t, ip, "link", "set", ownNetdev, "up"))
	require.NoError(t, run(t, "rdma", "link", "add", ownLink, "type", kind, "netdev", ownNetdev))
	removed := false
	remove = func() error {
		removed = true
		return run(t, "rdma", "link", "del", ownLink)
	}
	t.Cleanup(func() {
		if !removed {
			remove()
		}
	})
	return remove
}

// A device that is taken away: identifiers hear of it, what was made on it can be
// destroyed in any order, the kernel gets its device back, and another of the same
// name is another device.
func TestDeviceRemoval(t *testing.T) {
	p, name := needDevice(t)
	noLeaks(t)
	ip := netip.MustParseAddr(ownAddr)
	var before verbs.Device
	for range 2 {
		remove := addLink(t, name)
		d, a := connect(t, p, ip)
		dev, err := d.id.Device()
		require.NoError(t, err)
		require.Equal(t, ownLink, dev.Info().Name)
		require.False(t, dev == before)
		before = dev
		bound, _ := listen(t, p, ip, 1)
		_, err = bound.id.Device()
		require.NoError(t, err)

		done := make(chan error, 1)
		go func() { done <- remove() }()
		for _, e := range []*end{d, a, bound} {
			for e.expectAny(t).Type != cm.DeviceRemoval {
			}
		}
		// nothing more is made on it
		_, err = dev.AllocPD()
		require.ErrorContains(t, err, "the device was removed")
		_, err = dev.NewCQ(16)
		require.ErrorContains(t, err, "the device was removed")

		// all identifiers first, and then what was made on the device
		require.NoError(t, bound.id.Destroy())
		for _, e := range []*end{d, a} {
			require.NoError(t, e.qp.Destroy())
			require.NoError(t, e.id.Destroy())
		}
		for _, e := range []*end{d, a} {
			require.Empty(t, done, "the device went while there was something on it")
			require.NoError(t, e.mr.Deregister())
			require.NoError(t, e.cq.Destroy())
			require.NoError(t, e.pd.Dealloc())
		}
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(patience):
			require.FailNow(t, "the device is not given back")
		}
		require.NoError(t, run(t, "/usr/bin/ip", "link", "del", ownNetdev))
	}
}

// expectAny waits for an event.
func (e *end) expectAny(t testing.TB) cm.Event {
	t.Helper()
	select {
	case ev := <-e.events:
		return ev
	case <-time.After(patience):
		require.FailNow(t, "no event")
		panic("not reached")
	}
}
