//go:build linux

package interop

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/rdmanet"
)

// killLimit is within what time a Read or Write says that the peer was killed. The
// peer's kernel tells; it takes milliseconds on a machine that is not emulated.
const killLimit = 5 * time.Second

// kill ends a process as kill -9 does.
func (p *program) kill() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Kill())
	<-p.ended
}

// stop makes a process do nothing until it is continued.
// stop stops the process, and returns when all its threads stand still: until
// then it may go on for a while.
func (p *program) stop() {
	p.t.Helper()
	pid := p.cmd.Process.Pid
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGSTOP))
	require.Eventually(p.t, func() bool {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || len(stats) == 0 {
			return false
		}
		for _, stat := range stats {
			b, err := os.ReadFile(stat)
			// The state follows the name, which is in parentheses.
			if i := bytes.LastIndexByte(b, ')'); err != nil || i < 0 || !bytes.HasPrefix(b[i:], []byte(") T")) {
				return false
			}
		}
		return true
	}, patience, 5*time.Millisecond, "the process does not stop")
}

func (p *program) resume() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGCONT))
}

// TestKill kills the peer's process in each state that a connection may be in.
func TestKill(t *testing.T) { eachPairing(t, testKill) }

func testKill(t *testing.T, dev device) {
	for _, tc := range []struct {
		name string
		peer string // what the peer does
		ours func(t *testing.T, c *rdmanet.Conn) (ops map[string]<-chan result)
	}{
		{"while we read and it waits", "hold", func(t *testing.T, c *rdmanet.Conn) map[string]<-chan result {
			return map[string]<-chan result{"read": reading(t, c)}
		}},
		{"while both read", "read", func(t *testing.T, c *rdmanet.Conn) map[string]<-chan result {
			return map[string]<-chan result{"read": reading(t, c)}
		}},
		{"while we write and it does not read", "hold", func(t *testing.T, c *rdmanet.Conn) map[string]<-chan result {
			return map[string]<-chan result{"write": writing(t, c)}
		}},
		{"while both wait, we in both", "hold", func(t *testing.T, c *rdmanet.Conn) map[string]<-chan result {
			return map[string]<-chan result{"write": writing(t, c), "read": reading(t, c)}
		}},
		{"while it sends", "send", func(t *testing.T, c *rdmanet.Conn) map[string]<-chan result {
			return map[string]<-chan result{"read": flowing(t, func(moved func(int64)) error {
				return newPattern(1, 1<<62).receive(io.TeeReader(c, counting(moved)), 64<<10)
			})}
		}},
		{"while we send", "read", func(t *testing.T, c *rdmanet.Conn) map[string]<-chan result {
			return map[string]<-chan result{"write": flowing(t, func(moved func(int64)) error {
				return newPattern(1, 1<<62).send(io.MultiWriter(c, counting(moved)), 64<<10)
			})}
		}},
	} {
		for _, weDial := range []bool{true, false} {
			t.Run(tc.name+", "+roleName(weDial), func(t *testing.T) {
				p, c := withPeer(t, time.Minute, addrPort(dev.addr4, 0), weDial, rdmanet.Dialer{}, peerOptions{do: tc.peer})
				ops := tc.ours(t, c)
				killed := time.Now()
				p.kill()
				for op, ended := range ops {
					r := await(t, op, ended, killLimit)
					t.Logf("%s ended after %v: %v", op, r.at.Sub(killed).Round(time.Millisecond), r.err)
					requireLost(t, r.err, op)
				}
				// What is begun later says the same, at once.
				within(t, time.Second, "later calls", func() {
					_, err := c.Read(make([]byte, 1))
					requireLost(t, err, "read")
					_, err = c.Write(make([]byte, 1))
					requireLost(t, err, "write")
				})
				within(t, killLimit, "Close", func() {
					if err := c.Close(); err != nil {
						t.Logf("Close: %v", err)
					}
				})
			})
		}
	}
}

// reading is a Read that waits.
func reading(t *testing.T, c *rdmanet.Conn) <-chan result {
	t.Helper()
	op := background(func() (int64, error) {
		n, err := c.Read(make([]byte, 1))
		return int64(n), err
	})
	requireWaiting(t, op)
	return op
}

// writing is a Write that waits, because nothing more fits.
func writing(t *testing.T, c *rdmanet.Conn) <-chan result {
	t.Helper()
	return fillUntilWaiting(t, c, newPattern(1, 1<<30), 1<<20)
}

// flowing runs a transfer and returns when it is in full flow.
func flowing(t *testing.T, transfer func(moved func(int64)) error) <-chan result {
	t.Helper()
	f := flow(transfer)
	require.NoError(t, f.started())
	return f.ended
}

// A transferring is a transfer under way.
type transferring struct {
	inFlow chan struct{}
	ended  <-chan result
}

// enoughFlow is how much has been moved when a transfer is in full flow.
const enoughFlow = 4 << 20

// flow runs a transfer, which tells what it moves.
func flow(transfer func(moved func(int64)) error) transferring {
	total := int64(0)
	inFlow := make(chan struct{})
	return transferring{inFlow, background(func() (int64, error) {
		err := transfer(func(n int64) {
			before := total
			total += n
			if before < enoughFlow && total >= enoughFlow {
				close(inFlow)
			}
		})
		return total, err
	})}
}

// started waits until a transfer is in full flow.
func (f transferring) started() error {
	select {
	case <-f.inFlow:
		return nil
	case r := <-f.ended:
		return fmt.Errorf("the transfer ended after %d bytes: %w", r.n, r.err)
	case <-time.After(patience):
		return fmt.Errorf("the transfer does not come to %d bytes", enoughFlow)
	}
}

// counting is a writer that only says how much was written.
type counting func(int64)

func (f counting) Write(b []byte) (int, error) {
	f(int64(len(b)))
	return len(b), nil
}

// TestStoppedPeerGoesOn stops the peer's process for longer than its keepalive
// would wait for a host that is gone: a device answers without its process. Then
// the peer goes on, and nothing is lost.
func TestStoppedPeerGoesOn(t *testing.T) { eachPairing(t, testStoppedPeerGoesOn) }

func testStoppedPeerGoesOn(t *testing.T, dev device) {
	if p := pairingOf(t); p.ours == rdmanet.Verbs && p.peers == rdmanet.Software {
		t.Skip("a software NIC stands still with its process, and a device cannot ask TCP whether its host is there")
	}
	stopped := sized(5*time.Second, 8*time.Second, time.Minute)
	d := rdmanet.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 2}}
	for _, weDial := range []bool{true, false} {
		t.Run(roleName(weDial), func(t *testing.T) {
			p, c := withPeer(t, 3*time.Minute, addrPort(dev.addr4, 0), weDial, d, peerOptions{do: "echo"})
			require.NoError(t, c.SetDeadline(time.Now().Add(stopped+2*patience)))
			const before, after = 3 << 20, 12 << 20
			sent, got := newPattern(1, before+after), newPattern(1, before+after)
			var wrote <-chan result
			within(t, patience, "an echo before", func() {
				buf := make([]byte, before)
				_, err := io.ReadFull(sent, buf)
				require.NoError(t, err)
				wrote = background(func() (int64, error) { n, err := c.Write(buf); return int64(n), err })
				_, err = io.CopyN(got, struct{ io.Reader }{c}, before)
				require.NoError(t, err)
			})
			require.NoError(t, await(t, "the first Write", wrote, patience).err)

			p.stop()
			wrote = background(func() (int64, error) {
				if err := sent.send(c, 64<<10); err != nil {
					return 0, err
				}
				return 0, c.CloseWrite()
			})
			read := background(func() (int64, error) { return 0, got.receive(c, 64<<10) })
			select {
			case r := <-wrote:
				t.Fatalf("Write ended while the peer was stopped: %v", r.err)
			case r := <-read:
				t.Fatalf("Read ended while the peer was stopped: %v", r.err)
			case <-time.After(stopped):
			}
			p.resume()
			require.NoError(t, await(t, "Write after the pause", wrote, 2*patience).err)
			require.NoError(t, await(t, "Read after the pause", read, 2*patience).err)
			p.wait()
			require.NoError(t, c.Close())
		})
	}
}

// TestDeadlineWhilePeerIsStopped checks that a time-out of ours is not taken for
// the peer's end.
func TestDeadlineWhilePeerIsStopped(t *testing.T) { eachPairing(t, testDeadlineWhilePeerIsStopped) }

func testDeadlineWhilePeerIsStopped(t *testing.T, dev device) {
	p, c := withPeer(t, time.Minute, addrPort(dev.addr4, 0), true, rdmanet.Dialer{}, peerOptions{do: "echo"})
	p.stop()
	begin := time.Now()
	require.NoError(t, c.SetDeadline(begin.Add(time.Second)))
	_, err := c.Write([]byte("hello"))
	require.NoError(t, err)
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	requireOpError(t, err, "read")
	require.Less(t, time.Since(begin), 2*time.Second)
	p.resume()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	got := make([]byte, 5)
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))
	require.NoError(t, c.Close())
	p.wait()
}
