//go:build linux

package interop

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/rdmanet/rdmanet/rdmanet"
)

const (
	envDevice = "RDMANET_TEST_DEVICE"
	envAddr4  = "RDMANET_TEST_ADDR4"
	envAddr6  = "RDMANET_TEST_ADDR6"
	envLab    = "RDMANET_LAB"
	envFull   = "RDMANET_INTEROP_FULL"
)

// device is what the environment says about the device to test on.
type device struct {
	name  string
	addr4 netip.Addr
	addr6 netip.Addr
}

// needDevice returns the device to test on, or skips the test.
func needDevice(t *testing.T) device {
	t.Helper()
	name := os.Getenv(envDevice)
	if name == "" {
		t.Skipf("needs an RDMA device: set %s, %s and %s", envDevice, envAddr4, envAddr6)
	}
	return device{
		name:  name,
		addr4: netip.MustParseAddr(os.Getenv(envAddr4)),
		addr6: netip.MustParseAddr(os.Getenv(envAddr6)),
	}
}

// A pairing is with what a test's ends are made: ours, and that of a child, or of a
// C program, which is always a device's. It is a part of the test's name.
type pairing struct {
	name        string
	ours, peers rdmanet.Provider
}

var (
	onDevice   = pairing{"verbs", rdmanet.Verbs, rdmanet.Verbs}
	onSoftware = pairing{"software", rdmanet.Software, rdmanet.Software}
	mixed      = []pairing{
		{"software with verbs", rdmanet.Software, rdmanet.Verbs},
		{"verbs with software", rdmanet.Verbs, rdmanet.Software},
	}
)

// pairingOf is that of a test.
func pairingOf(t *testing.T) pairing {
	for _, part := range strings.Split(t.Name(), "/") {
		for _, p := range append(mixed, onSoftware) {
			if part == strings.ReplaceAll(p.name, " ", "_") {
				return p
			}
		}
	}
	return onDevice
}

// eachPairing runs a test of processes of ours on the device, or with the software
// NIC where there is none. On Soft-iWARP, which speaks what the software NIC
// speaks, each meets the other.
func eachPairing(t *testing.T, f func(t *testing.T, dev device)) {
	t.Helper()
	if os.Getenv(envDevice) == "" {
		local := device{addr4: netip.MustParseAddr("127.0.0.1"), addr6: netip.IPv6Loopback()}
		t.Run(onSoftware.name, func(t *testing.T) { f(t, local) })
		return
	}
	dev := needDevice(t)
	t.Run(onDevice.name, func(t *testing.T) { f(t, dev) })
	if !dev.iwarp() {
		return
	}
	for _, p := range mixed {
		t.Run(p.name, func(t *testing.T) { f(t, dev) })
	}
}

// againstC runs a test whose peer is a C program: on the device, and with the
// software NIC where the device speaks what it speaks.
func againstC(t *testing.T, f func(t *testing.T, dev device)) {
	t.Helper()
	dev := needDevice(t)
	t.Run(onDevice.name, func(t *testing.T) { f(t, dev) })
	if dev.iwarp() {
		t.Run(onSoftware.name, func(t *testing.T) { f(t, dev) })
	}
}

// iwarp reports whether it is a Soft-iWARP device.
func (d device) iwarp() bool { return strings.HasPrefix(d.name, "siw") }

// kind is what `rdma link add` calls devices of this kind, "" for hardware.
func (d device) kind() string {
	switch {
	case d.iwarp():
		return "siw"
	case strings.HasPrefix(d.name, "rxe"):
		return "rxe"
	}
	return ""
}

// inLab reports whether the machine is there for the tests alone.
func inLab() bool { return os.Getenv(envLab) == "1" }

// full reports whether the long sizes are asked for.
func full() bool { return os.Getenv(envFull) == "1" }

// sized picks one of three sizes: the one of -short, the usual one, and the one
// that has to be asked for.
func sized[T any](short, usual, long T) T {
	switch {
	case testing.Short():
		return short
	case full():
		return long
	}
	return usual
}

// missing skips a test for want of a program, or fails it where that must not be.
func missing(t *testing.T, what string) {
	t.Helper()
	if inLab() {
		t.Fatalf("%s is not installed on this machine, and must be: %s=1", what, envLab)
	}
	t.Skipf("%s is not installed", what)
}
