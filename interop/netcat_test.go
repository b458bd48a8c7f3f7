//go:build linux

package interop

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/rdmanet"
)

// TestNetcat moves a file to and from netcat, which thinks that it uses TCP:
// librspreload.so puts rsockets in the place of its sockets. Each end dials once
// and sends once.
func TestNetcat(t *testing.T) { againstC(t, testNetcat) }

func testNetcat(t *testing.T, dev device) {
	for _, tc := range []struct {
		name           string
		listens, sends bool // netcat
	}{
		{name: "listens and receives", listens: true},
		{name: "listens and sends", listens: true, sends: true},
		{name: "dials and receives"},
		{name: "dials and sends", sends: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			nc := newNetcat(t, sized[int64](4<<20, 64<<20, 64<<20))
			var p *program
			var c *rdmanet.Conn
			if tc.listens {
				port := freePort(t, dev.addr4)
				p = nc.start(tc.sends, "-l", dev.addr4.String(), fmt.Sprint(port))
				c = dialWhenUp(t, p, rdmanet.Dialer{}, addrPort(dev.addr4, port))
			} else {
				l := listen(t, rdmanet.ListenConfig{}, addrPort(dev.addr4, 0))
				p = nc.start(tc.sends, dev.addr4.String(), fmt.Sprint(l.Addr().(*net.TCPAddr).Port))
				c = accept(t, l)
			}
			require.NoError(t, c.SetDeadline(time.Now().Add(nc.limit)))
			begin := time.Now()
			if tc.sends {
				require.NoError(t, newPattern(3, nc.size).receive(c, 64<<10))
				require.NoError(t, c.Close())
				p.wait()
			} else {
				require.NoError(t, newPattern(3, nc.size).send(c, 64<<10))
				require.NoError(t, c.Close())
				p.wait()
				nc.compare()
			}
			t.Logf("%d MiB in %v", nc.size>>20, time.Since(begin).Round(time.Millisecond))
		})
	}
}

// A netcat is a run of netcat with a file.
type netcat struct {
	t       *testing.T
	program string
	preload string
	file    string // what it sends, or what it has received
	size    int64
	limit   time.Duration
}

func newNetcat(t *testing.T, size int64) *netcat {
	t.Helper()
	preload := findPreload(t)
	if lacksAccept4(t) {
		t.Skipf("%s does not stand in for accept4, which netcat calls: it takes a newer librdmacm", preload)
	}
	return &netcat{
		t: t, program: findProgram(t, "nc.openbsd"), preload: preload,
		file: filepath.Join(t.TempDir(), "file"), size: size, limit: 2 * time.Minute,
	}
}

// start starts it. When it sends, -N makes it end the stream at the end of its
// input; when it receives it gets no input.
func (n *netcat) start(sends bool, args ...string) *program {
	n.t.Helper()
	var file *os.File
	var err error
	if sends {
		require.NoError(n.t, n.makeFile())
		args = append([]string{"-N"}, args...)
		file, err = os.Open(n.file)
	} else {
		args = append([]string{"-d"}, args...)
		file, err = os.Create(n.file)
	}
	require.NoError(n.t, err)
	n.t.Cleanup(func() { file.Close() })
	return start(n.t, n.limit, func(cmd *exec.Cmd) {
		cmd.Env = append(os.Environ(), "LD_PRELOAD="+n.preload)
		if sends {
			cmd.Stdin = file
		} else {
			cmd.Stdout = file
		}
	}, n.program, args...)
}

func (n *netcat) makeFile() error {
	file, err := os.Create(n.file)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, newPattern(3, n.size))
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}

// compare checks the file that it has received.
func (n *netcat) compare() {
	n.t.Helper()
	file, err := os.Open(n.file)
	require.NoError(n.t, err)
	defer file.Close()
	require.NoError(n.t, newPattern(3, n.size).receive(file, 1<<20))
}

// TestNetcatKilled kills netcat while we wait for it in both directions.
func TestNetcatKilled(t *testing.T) { againstC(t, testNetcatKilled) }

func testNetcatKilled(t *testing.T, dev device) {
	for _, weDial := range []bool{true, false} {
		t.Run(roleName(weDial), func(t *testing.T) {
			nc := newNetcat(t, 0)
			var p *program
			var c *rdmanet.Conn
			if weDial {
				port := freePort(t, dev.addr4)
				p = nc.start(false, "-l", dev.addr4.String(), fmt.Sprint(port))
				c = dialWhenUp(t, p, rdmanet.Dialer{}, addrPort(dev.addr4, port))
			} else {
				l := listen(t, rdmanet.ListenConfig{}, addrPort(dev.addr4, 0))
				p = nc.start(false, dev.addr4.String(), fmt.Sprint(l.Addr().(*net.TCPAddr).Port))
				c = accept(t, l)
			}
			// With iWARP an acceptor may not speak before the dialer has: it
			// must not be stopped until then.
			require.NoError(t, c.SetWriteDeadline(time.Now().Add(patience)))
			_, err := c.Write([]byte{0})
			require.NoError(t, err)
			// Stopped, it reads nothing, and a Write comes to wait.
			p.stop()
			write, read := writing(t, c), reading(t, c)
			killed := time.Now()
			p.kill()
			for op, ended := range map[string]<-chan result{"write": write, "read": read} {
				r := await(t, op, ended, killLimit)
				t.Logf("%s ended after %v: %v", op, r.at.Sub(killed).Round(time.Millisecond), r.err)
				requireLost(t, r.err, op)
			}
			within(t, killLimit, "Close", func() { c.Close() })
		})
	}
}
