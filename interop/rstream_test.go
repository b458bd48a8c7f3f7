//go:build linux

package interop

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/rdmanet"
)

// rstream is librdmacm's own test of rsockets. On a connection its client sends
// 16 bytes and the server answers as many; then, as often as -I says, the client
// sends -C messages of -S bytes and the server answers with as many. The bytes are
// arbitrary, unless both ends are told to verify: then each direction counts, from
// 0, modulo 256.

// syncSize is what rstream's ends exchange to begin with.
const syncSize = 16

// A counter is a direction of a verified rstream connection: Read counts, Write
// compares.
type counter struct{ pos int64 }

func (c *counter) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(c.pos + int64(i))
	}
	c.pos += int64(len(b))
	return len(b), nil
}

func (c *counter) Write(b []byte) (int, error) {
	for i := range b {
		if want := byte(c.pos + int64(i)); b[i] != want {
			return i, fmt.Errorf("byte %d is %#02x, want %#02x", c.pos+int64(i), b[i], want)
		}
	}
	c.pos += int64(len(b))
	return len(b), nil
}

// An rstreamRun is one set of rstream's options.
type rstreamRun struct {
	size, iterations, count int
	test                    string // for -T, several letters for several options
	v6                      bool
}

func (r rstreamRun) String() string {
	s := fmt.Sprintf("S=%d I=%d C=%d", r.size, r.iterations, r.count)
	if r.test != "" {
		s += " T=" + r.test
	}
	if r.v6 {
		s += " IPv6"
	}
	return s
}

func (r rstreamRun) verified() bool { return strings.Contains(r.test, "v") }

func (r rstreamRun) args(port uint16) []string {
	args := []string{"-p", fmt.Sprint(port), "-S", fmt.Sprint(r.size), "-I", fmt.Sprint(r.iterations), "-C", fmt.Sprint(r.count)}
	for _, letter := range r.test {
		args = append(args, "-T", string(letter))
	}
	if r.v6 {
		args = append(args, "-f", "ipv6")
	}
	return args
}

func (r rstreamRun) addr(dev device) netip.Addr {
	if r.v6 {
		return dev.addr6
	}
	return dev.addr4
}

// requireResult checks that rstream has printed its line of results.
func (r rstreamRun) requireResult(t *testing.T, p *program) {
	t.Helper()
	p.wait()
	lines := strings.Split(strings.TrimSpace(p.output.String()), "\n")
	last := strings.Fields(lines[len(lines)-1])
	require.Len(t, last, 8, "%s", p.output)
	require.Equal(t, "custom", last[0])
	t.Logf("%s: %s s, %s Gb/s, %s µs half a round trip", r, strings.TrimSuffix(last[5], "s"), last[6], last[7])
}

// rstreamLimit is how long a run may take. In an emulated machine to be woken can
// take a millisecond, and the long runs wait 40,000 times.
func rstreamLimit() time.Duration { return sized(time.Minute, time.Minute, 5*time.Minute) }

// TestRstreamClient serves rstream with an echo.
func TestRstreamClient(t *testing.T) { againstC(t, testRstreamClient) }

func testRstreamClient(t *testing.T, dev device) {
	rstream := findProgram(t, "rstream")
	var runs []rstreamRun
	for _, r := range []rstreamRun{
		{size: 64, iterations: sized(100, 500, 20000)},
		{size: 4096, iterations: sized(50, 300, 10000)},
		{size: 65536, iterations: sized(10, 50, 1000)},
		{size: 1 << 20, iterations: sized(3, 10, 100)},
	} {
		r.count = 1
		runs = append(runs, r)
		r.test = "v"
		runs = append(runs, r)
	}
	runs = append(runs,
		rstreamRun{size: 65536, iterations: 10, count: 1, test: "bv"},
		rstreamRun{size: 65536, iterations: 10, count: 1, test: "nv"},
		rstreamRun{size: 65536, iterations: 10, count: 1, test: "av"},
		rstreamRun{size: 64, iterations: 100, count: 1, test: "v", v6: true},
		rstreamRun{size: 1 << 20, iterations: 3, count: 1, test: "v", v6: true},
	)
	for _, r := range runs {
		t.Run(r.String(), func(t *testing.T) {
			l := listen(t, rdmanet.ListenConfig{}, addrPort(r.addr(dev), 0))
			addr := l.Addr().(*net.TCPAddr).AddrPort()
			p := start(t, rstreamLimit(), nil, rstream, append(r.args(addr.Port()), "-s", addr.Addr().String())...)
			c := accept(t, l)
			require.NoError(t, c.SetDeadline(time.Now().Add(rstreamLimit())))

			var heard io.Writer = io.Discard
			if r.verified() {
				heard = &counter{}
			}
			n, err := io.CopyBuffer(struct{ io.Writer }{c}, io.TeeReader(c, heard), make([]byte, 64<<10))
			require.NoError(t, err)
			require.Equal(t, int64(syncSize+r.iterations*r.count*r.size), n)
			r.requireResult(t, p)
			require.NoError(t, c.Close())
		})
	}
}

// TestRstreamServer is rstream's client, for latency (-C 1) and for bandwidth.
func TestRstreamServer(t *testing.T) { againstC(t, testRstreamServer) }

func testRstreamServer(t *testing.T, dev device) {
	rstream := findProgram(t, "rstream")
	var runs []rstreamRun
	for _, r := range []rstreamRun{
		{size: 64, iterations: sized(100, 500, 20000), count: 1},
		{size: 4096, iterations: sized(50, 300, 10000), count: 1},
		{size: 65536, iterations: sized(10, 50, 1000), count: 1},
		{size: 1 << 20, iterations: sized(3, 10, 100), count: 1},
		{size: 64, iterations: sized(5, 20, 500), count: 100},
		{size: 4096, iterations: sized(2, 5, 100), count: 100},
		{size: 65536, iterations: sized(1, 2, 20), count: 100},
		{size: 1 << 20, iterations: sized(1, 1, 2), count: sized(20, 100, 100)},
	} {
		runs = append(runs, r)
		r.test = "v"
		runs = append(runs, r)
	}
	runs = append(runs,
		rstreamRun{size: 65536, iterations: 2, count: 20, test: "bv"},
		rstreamRun{size: 65536, iterations: 2, count: 20, test: "nv"},
		rstreamRun{size: 65536, iterations: 2, count: 20, test: "av"},
		rstreamRun{size: 64, iterations: 100, count: 1, test: "v", v6: true},
		rstreamRun{size: 65536, iterations: 1, count: 100, test: "v", v6: true},
	)
	for _, r := range runs {
		t.Run(r.String(), func(t *testing.T) {
			ip := r.addr(dev)
			port := freePort(t, ip)
			p := start(t, rstreamLimit(), nil, rstream, append(r.args(port), "-b", ip.String())...)
			c := dialWhenUp(t, p, rdmanet.Dialer{}, addrPort(ip, port))
			require.NoError(t, c.SetDeadline(time.Now().Add(rstreamLimit())))
			peer := newRstreamPeer(r.verified())
			require.NoError(t, peer.run(c, r.size, r.iterations, r.count))
			require.NoError(t, endRstream(c))
			r.requireResult(t, p)
		})
	}
}

// TestRstreamServerDefaults is rstream's client without options: a connection for
// latency and one for bandwidth, of four sizes each.
func TestRstreamServerDefaults(t *testing.T) { againstC(t, testRstreamServerDefaults) }

func testRstreamServerDefaults(t *testing.T, dev device) {
	if !full() {
		t.Skipf("takes minutes: set %s=1", envFull)
	}
	rstream := findProgram(t, "rstream")
	port := freePort(t, dev.addr4)
	limit := 20 * time.Minute
	p := start(t, limit, nil, rstream, "-b", dev.addr4.String(), "-p", fmt.Sprint(port), "-T", "v")
	for _, latency := range []bool{true, false} {
		c := dialWhenUp(t, p, rdmanet.Dialer{}, addrPort(dev.addr4, port))
		require.NoError(t, c.SetDeadline(time.Now().Add(limit)))
		peer := newRstreamPeer(true)
		for _, s := range []struct{ size, times int }{{64, 100_000}, {4096, 10_000}, {65536, 1000}, {1 << 20, 100}} {
			iterations, count := s.times, 1
			if !latency {
				iterations, count = 1, s.times
			}
			require.NoError(t, peer.run(c, s.size, iterations, count))
		}
		require.NoError(t, endRstream(c))
	}
	p.wait()
}

// An rstreamPeer is rstream's client.
type rstreamPeer struct {
	out, in counter
	verify  bool
	buf     []byte
}

func newRstreamPeer(verify bool) *rstreamPeer {
	return &rstreamPeer{verify: verify, buf: make([]byte, 1<<20)}
}

// run does the exchanges of one size.
func (p *rstreamPeer) run(c net.Conn, size, iterations, count int) error {
	if err := p.turn(c, syncSize, 1); err != nil {
		return fmt.Errorf("the first exchange: %w", err)
	}
	for i := range iterations {
		if err := p.turn(c, size, count); err != nil {
			return fmt.Errorf("iteration %d of %d: %w", i+1, iterations, err)
		}
	}
	return nil
}

// turn sends count messages and receives as many.
func (p *rstreamPeer) turn(c net.Conn, size, count int) error {
	b := p.buf[:size]
	for range count {
		if p.verify {
			p.out.Read(b)
		}
		if _, err := c.Write(b); err != nil {
			return err
		}
	}
	for range count {
		if _, err := io.ReadFull(c, b); err != nil {
			return err
		}
		if p.verify {
			if _, err := p.in.Write(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// endRstream waits for rstream's end of the connection, which says no more after
// the last exchange, and then closes ours. The other way round, the two ends would
// cross, and librdmacm, when it meets a SHUTDOWN while it closes, does not see to
// it any more that its own last word gets across: Read would fail with ECONNRESET
// now and then.
func endRstream(c *rdmanet.Conn) error {
	n, err := io.Copy(io.Discard, struct{ io.Reader }{c})
	if err != nil {
		return err
	}
	if n != 0 {
		return fmt.Errorf("%d bytes came behind the last message", n)
	}
	return c.Close()
}
