package rdmanet

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Tests run on the software NIC, and on the RDMA device that the environment
// names: the device's own name, and an address of each family that belongs to
// it. Without one, the part of a test that wants it is skipped.
const (
	envDevice = "RDMANET_TEST_DEVICE"
	envAddr4  = "RDMANET_TEST_ADDR4"
	envAddr6  = "RDMANET_TEST_ADDR6"
)

// A target is what a test runs on.
type target struct {
	provider Provider
	device   string
	addr4    netip.Addr
	addr6    netip.Addr // invalid where this host has none
	iwarp    bool
}

// eachTarget runs a test on every target.
func eachTarget(t *testing.T, test func(t *testing.T, on target)) {
	t.Run("software", func(t *testing.T) { test(t, softwareTarget()) })
	t.Run("device", func(t *testing.T) { test(t, deviceTarget(t)) })
}

func softwareTarget() target {
	on := target{provider: Software, device: "iwarp0", addr4: netip.MustParseAddr("127.0.0.1"), iwarp: true}
	if l, err := net.Listen("tcp6", "[::1]:0"); err == nil {
		l.Close()
		on.addr6 = netip.IPv6Loopback()
	}
	return on
}

func deviceTarget(t *testing.T) target {
	t.Helper()
	name := os.Getenv(envDevice)
	if name == "" {
		t.Skipf("needs an RDMA device: set %s, %s and %s", envDevice, envAddr4, envAddr6)
	}
	return target{
		provider: Verbs,
		device:   name,
		addr4:    netip.MustParseAddr(os.Getenv(envAddr4)),
		addr6:    netip.MustParseAddr(os.Getenv(envAddr6)),
		iwarp:    strings.HasPrefix(name, "siw"),
	}
}

// addrs are the target's addresses.
func (on target) addrs() []netip.Addr {
	if on.addr6.IsValid() {
		return []netip.Addr{on.addr4, on.addr6}
	}
	return []netip.Addr{on.addr4}
}

func (on target) dialer(timeout time.Duration) *Dialer {
	return &Dialer{Provider: on.provider, Timeout: timeout}
}

// port0 is an address with port 0.
func port0(ip netip.Addr) string { return netip.AddrPortFrom(ip, 0).String() }

// listen listens on an address until the test ends.
func (on target) listen(t *testing.T, address string) *Listener {
	t.Helper()
	lc := ListenConfig{Provider: on.provider, Refused: func(peer net.Addr, err error) {
		t.Logf("refused %v: %v", peer, err)
	}}
	l, err := lc.Listen(t.Context(), "rdma", address)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l.(*Listener)
}

// pair is the two ends of a connection.
func (on target) pair(t *testing.T, l *Listener) (dialed, accepted *Conn) {
	t.Helper()
	c, err := on.dialer(30*time.Second).Dial("rdma", l.Addr().String())
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
