package rdmanet

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Tests that need an RDMA device name it by the environment: the device's own
// name, and an address of each family that belongs to it.
const (
	envDevice = "RDMANET_TEST_DEVICE"
	envAddr4  = "RDMANET_TEST_ADDR4"
	envAddr6  = "RDMANET_TEST_ADDR6"
)

// testDevice is what the environment says about the device to test on.
type testDevice struct {
	name  string
	addr4 netip.Addr
	addr6 netip.Addr
	iwarp bool
}

// needDevice returns the device to test on, or skips the test.
func needDevice(t *testing.T) testDevice {
	t.Helper()
	name := os.Getenv(envDevice)
	if name == "" {
		t.Skipf("needs an RDMA device: set %s, %s and %s", envDevice, envAddr4, envAddr6)
	}
	return testDevice{
		name:  name,
		addr4: netip.MustParseAddr(os.Getenv(envAddr4)),
		addr6: netip.MustParseAddr(os.Getenv(envAddr6)),
		iwarp: len(name) >= 3 && name[:3] == "siw",
	}
}

// port0 is an address with port 0.
func port0(ip netip.Addr) string { return netip.AddrPortFrom(ip, 0).String() }

// listenTest listens on an address until the test ends.
func listenTest(t *testing.T, address string) *Listener {
	t.Helper()
	lc := ListenConfig{Provider: Verbs}
	l, err := lc.Listen(t.Context(), "rdma", address)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l.(*Listener)
}

// pair is the two ends of a connection over the device.
func pair(t *testing.T, l *Listener) (dialed, accepted *Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	d := Dialer{Provider: Verbs}
	c, err := d.DialContext(ctx, "rdma", l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, l.SetDeadline(time.Now().Add(30*time.Second)))
	accepted, err = l.AcceptRDMA()
	if err != nil {
		c.Close()
	}
	require.NoError(t, err)
	require.NoError(t, l.SetDeadline(time.Time{}))
	return c.(*Conn), accepted
}

// echoServer echoes on every connection of l until l is closed.
func echoServer(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			io.Copy(c, c)
		}()
	}
}

// echoOnce sends size random bytes and checks that they come back, reading while
// it writes.
func echoOnce(c net.Conn, size int, seed uint64) error {
	sent := make([]byte, size)
	src := rand.NewPCG(seed, 1)
	for i := range sent {
		sent[i] = byte(src.Uint64())
	}
	c.SetDeadline(time.Now().Add(60 * time.Second))
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(sent)
		wrote <- err
	}()
	got := make([]byte, size)
	if _, err := io.ReadFull(c, got); err != nil {
		c.Close()
		<-wrote
		return fmt.Errorf("read: %w", err)
	}
	if err := <-wrote; err != nil {
		return err
	}
	for i := range sent {
		if sent[i] != got[i] {
			return fmt.Errorf("byte %d of %d: sent %#x, got %#x", i, size, sent[i], got[i])
		}
	}
	return nil
}
