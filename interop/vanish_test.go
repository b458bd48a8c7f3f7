//go:build linux

package interop

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/rdmanet"
)

// quickKeepAlive finds a vanished peer after 4 s, where the default takes 150 s. rxe
// of Linux 6.1 sends a lost packet again after 2.3 s, and may lose it once more: a
// connection in bulk traffic is then silent for over 4 s and goes on, so 14 s there.
func quickKeepAlive(t *testing.T, dev device) net.KeepAliveConfig {
	t.Helper()
	keep := net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 3}
	if oldRXE(t, dev) {
		keep.Count = 13
	}
	return keep
}

// oldRXE reports whether the device is rxe of Linux 6.1.
func oldRXE(t *testing.T, dev device) bool {
	t.Helper()
	return dev.kind() == "rxe" && linux(t, "6.1.")
}

const (
	defaultPatience = (15 + 15*9) * time.Second

	// vanishSlack is what a Read or Write may take beyond that: twice the
	// second between two looks at a connection, and some for a machine that
	// is emulated.
	vanishSlack = 5 * time.Second
)

// TestVanish cuts the wire between two hosts for good, with connections in every
// state at once. No packet says so, mostly. Each Read and Write that waits must end
// with a time-out in the time that the keepalive says, and Close in its own time.
func TestVanish(t *testing.T) { eachWire(t, testVanish) }

// eachWire runs a test of two processes of ours with a wire between them: on devices of
// the kind that is tested, and, where these speak what the software NIC speaks, with
// that as well.
func eachWire(t *testing.T, f func(t *testing.T, dev device)) {
	t.Helper()
	dev := needDevice(t)
	t.Run(onDevice.name, func(t *testing.T) { f(t, dev) })
	if dev.iwarp() {
		t.Run(onSoftware.name, func(t *testing.T) { f(t, dev) })
	}
}

// requireLinkDown skips a test that takes an interface down where that does not do
// what the test is about.
func requireLinkDown(t *testing.T, dev device) {
	t.Helper()
	switch {
	case pairingOf(t) == onSoftware:
		t.Skip("without the interface's routes the kernel finds that both addresses are its own, and TCP goes on")
	case oldRXE(t, dev):
		t.Skip("rxe of Linux 6.1, while it sends, can keep its interface from being taken down")
	}
}

func testVanish(t *testing.T, dev device) {
	for _, tc := range []struct {
		name     string
		cut      func(*wire)
		told     bool // the end may also be told, by what is not a time-out
		defaults bool
	}{
		// The near end's link goes down, too, and a packet that rxe tries
		// to send in the meantime costs the queue pair. When the interface
		// beneath siw is taken down, siw ends its connections, and TCP may
		// get that across before it happens.
		{"link down", (*wire).down, true, false},
		{"packets lost", (*wire).lose, false, false},
		{"packets lost, keepalive as it comes", (*wire).lose, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			keep := quickKeepAlive(t, dev)
			patience := keep.Idle + time.Duration(keep.Count)*keep.Interval
			if tc.defaults {
				if !full() {
					t.Skipf("takes three minutes: set %s=1", envFull)
				}
				keep, patience = net.KeepAliveConfig{}, defaultPatience
			}
			if tc.name == "link down" {
				requireLinkDown(t, dev)
			}
			w := newWire(t, dev)
			var survivors []*survivor
			for _, state := range []string{"read", "write", "both", "send"} {
				for _, dials := range []bool{true, false} {
					survivors = append(survivors, newSurvivor(t, w, state, dials, keep, patience+time.Minute))
				}
			}
			for _, s := range survivors {
				s.line("waiting")
			}
			cut := time.Now()
			tc.cut(w)
			for _, s := range survivors {
				s.requireEnds(cut, patience+vanishSlack, tc.told)
			}
		})
	}
}

// linux reports whether the kernel's release begins so.
func linux(t *testing.T, release string) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	require.NoError(t, err)
	return strings.HasPrefix(string(b), release)
}

// A survivor is the process at the near end of the wire.
type survivor struct {
	*program
	t    *testing.T
	name string
	ops  []string
}

func newSurvivor(t *testing.T, w *wire, state string, dials bool, keep net.KeepAliveConfig, limit time.Duration) *survivor {
	t.Helper()
	s := &survivor{t: t, name: roleName(dials) + ", " + state, ops: map[string][]string{
		"read": {"read"}, "write": {"write"}, "both": {"read", "write"}, "send": {"write"},
	}[state]}
	near := peerOptions{do: "survive-" + state, keep: keep, closeT: 2 * time.Second}
	far := peerOptions{do: "hold"}
	near.provider = pairingOf(t).ours.String()
	far.provider = pairingOf(t).peers.String()
	if state == "send" {
		far.do = "read"
	}
	if dials {
		far.listen = addrPort(w.far, 0)
		near.dial = startPeer(t, limit, far).line("listening on ")
		s.program = startPeer(t, limit, near)
	} else {
		near.listen = addrPort(w.near, 0)
		s.program = startPeer(t, limit, near)
		far.dial = s.line("listening on ")
		startPeer(t, limit, far)
	}
	return s
}

// requireEnds checks what the survivor says: that there is no answer, or, where it
// may be told, that the connection has ended.
func (s *survivor) requireEnds(cut time.Time, limit time.Duration, told bool) {
	s.t.Helper()
	for range s.ops {
		text := s.line("ended: ")
		var op string
		var at int64
		var errno int
		var timeout bool
		_, err := fmt.Sscanf(text, "%s %d %d %t", &op, &at, &errno, &timeout)
		require.NoError(s.t, err)
		after := time.Unix(0, at).Sub(cut)
		s.t.Logf("%s: %s ended after %v: %s", s.name, op, after.Round(time.Millisecond), text)
		require.Contains(s.t, s.ops, op)
		if told && syscall.Errno(errno) == syscall.ECONNRESET {
			require.False(s.t, timeout, s.name)
		} else {
			require.Equal(s.t, syscall.ETIMEDOUT, syscall.Errno(errno), s.name)
			require.True(s.t, timeout, s.name)
		}
		require.Greater(s.t, after, time.Duration(0), s.name)
		require.Less(s.t, after, limit, s.name)
	}
	s.t.Logf("%s: closed %s", s.name, s.line("closed "))
	s.wait()
}

// survive is the child's part: the operations wait, and how they end is printed.
func survive(c *rdmanet.Conn, state string) error {
	type ended struct {
		op string
		result
	}
	ends := make(chan ended, 2)
	begin := func(op string, f func([]byte) (int, error), size int) {
		r := background(func() (int64, error) {
			n, err := f(make([]byte, size))
			return int64(n), err
		})
		go func() { ends <- ended{op, <-r} }()
	}
	count := 0
	if state == "send" {
		r := flow(func(moved func(int64)) error {
			return newPattern(1, 1<<62).send(io.MultiWriter(c, counting(moved)), 64<<10)
		})
		if err := r.started(); err != nil {
			return err
		}
		go func() { ends <- ended{"write", <-r.ended} }()
		count++
	}
	if state == "write" || state == "both" {
		if err := fill(c, newPattern(1, 1<<30)); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
		begin("write", c.Write, 1<<20)
		count++
	}
	if state == "read" || state == "both" {
		begin("read", c.Read, 1)
		count++
	}
	time.Sleep(100 * time.Millisecond)
	fmt.Println("waiting")
	for range count {
		e := <-ends
		var errno syscall.Errno
		errors.As(e.err, &errno)
		fmt.Printf("ended: %s %d %d %t %v\n", e.op, e.at.UnixNano(), errno, isTimeout(e.err), e.err)
	}
	begun := time.Now()
	err := c.Close()
	took := time.Since(begun)
	fmt.Printf("closed in %v: %v\n", took.Round(time.Millisecond), err)
	if took > 4*time.Second {
		return errors.New("Close took longer than its time")
	}
	return nil
}

// TestOutage cuts the wire for a time that an idle connection's keepalive does not
// notice. The connection must go on afterwards.
func TestOutage(t *testing.T) { eachWire(t, testOutage) }

func testOutage(t *testing.T, dev device) {
	outage := sized(5*time.Second, 8*time.Second, 12*time.Second)
	for _, tc := range []struct {
		name      string
		cut, mend func(*wire)
	}{
		{"link down", (*wire).down, (*wire).up},
		{"packets lost", (*wire).lose, (*wire).keep},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.name == "link down" {
				requireLinkDown(t, dev)
				if dev.iwarp() {
					t.Skip("siw ends the connections of an interface that is taken down")
				}
			}
			w := newWire(t, dev)
			provider := pairingOf(t).ours.String()
			far := startPeer(t, 2*time.Minute, peerOptions{provider: provider, listen: addrPort(w.far, 0), do: "echo"})
			near := startPeer(t, 2*time.Minute, peerOptions{provider: provider, dial: far.line("listening on "), do: "ask"})
			for range 3 {
				near.ask("a question\n")
			}
			tc.cut(w)
			time.Sleep(outage)
			tc.mend(w)
			for range 3 {
				near.ask("another question\n")
			}
			require.NoError(t, near.stdin.Close())
			near.wait()
			far.wait()
		})
	}
}

// ask has a child send a line, and checks the echo that it prints.
func (p *program) ask(line string) {
	p.t.Helper()
	_, err := io.WriteString(p.stdin, line)
	require.NoError(p.t, err)
	require.Equal(p.t, strings.TrimSpace(line), p.line("answer: "))
}
