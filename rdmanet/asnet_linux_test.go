package rdmanet

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// envNoIPv6 says that the process is the child that TestAsNetWithoutIPv6 starts.
const envNoIPv6 = "RDMANET_TEST_NO_IPV6"

// TestAsNetWithoutIPv6 compares with package net on a host that can bind the IPv6
// wildcard and has no IPv6 address, as containers often are: a network namespace
// of its own, for a process of its own.
func TestAsNetWithoutIPv6(t *testing.T) {
	if os.Getenv(envNoIPv6) != "" {
		withoutIPv6(t)
		t.Run("dial", TestDialAsNet)
		t.Run("listen", TestListenAsNet)
		t.Run("dial what was listened on", testDialListenerAddr)
		return
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestAsNetWithoutIPv6$", "-test.v")
	cmd.Env = append(os.Environ(), envNoIPv6+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Skipf("needs a network namespace of its own: %v", err)
	}
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}

// withoutIPv6 makes loopback of a new network namespace work, for IPv4 alone.
func withoutIPv6(t *testing.T) {
	const path = "/proc/sys/net/ipv6/conf/all/disable_ipv6"
	if err := os.WriteFile(path, []byte("1"), 0); err != nil {
		t.Skipf("cannot switch IPv6 off: %v", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	require.NoError(t, err)
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	require.NoError(t, unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo))
}

// testDialListenerAddr dials what listeners on all addresses call themselves.
func testDialListenerAddr(t *testing.T) {
	for _, provider := range []Provider{Auto, Software} {
		for _, address := range []string{"", ":0", "[::]:0", "0.0.0.0:0"} {
			l, err := (&ListenConfig{Provider: provider}).Listen(t.Context(), "rdma", address)
			require.NoError(t, err)
			t.Cleanup(func() { l.Close() })
			go echoServer(l)
			c, err := (&Dialer{Provider: provider}).Dial("rdma", l.Addr().String())
			require.NoError(t, err, "%v, %q", provider, address)
			require.NoError(t, echoOnce(c, 100, 1))
			require.NoError(t, c.Close())
		}
	}
}
