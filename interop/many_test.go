//go:build linux

package interop

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/rdmanet"
)

// TestBothWays moves much both ways at once.
func TestBothWays(t *testing.T) {
	dev := needDevice(t)
	size := sized[int64](4<<20, 32<<20, 256<<20)
	for name, ip := range map[string]func() string{
		"IPv4": func() string { return addrPort(dev.addr4, 0) },
		"IPv6": func() string { return addrPort(dev.addr6, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t, rdmanet.ListenConfig{}, ip())
			a := dial(t, rdmanet.Dialer{}, l.Addr().String())
			b := accept(t, l)
			begin := time.Now()
			bothWays(t, a, b, size, sized(time.Minute, time.Minute, 5*time.Minute))
			t.Logf("%d MiB each way in %v", size>>20, time.Since(begin).Round(time.Millisecond))
		})
	}
}

// TestOneAfterTheOther makes many connections, each of which is used, and looks
// for what they leave behind.
func TestOneAfterTheOther(t *testing.T) {
	dev := needDevice(t)
	times := sized(50, 200, 1000)
	l := listen(t, rdmanet.ListenConfig{}, addrPort(dev.addr4, 0))
	serve(t, l)
	once := func(i int) error {
		c, err := dialer(patience).Dial("rdma", l.Addr().String())
		if err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		defer c.Close()
		if err := exchange(c, int64(i), 3000); err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		return c.Close()
	}
	for i := range 20 {
		require.NoError(t, once(i))
	}
	descriptors, threads := count(t, "/proc/self/fd"), count(t, "/proc/self/task")
	begin := time.Now()
	for i := range times {
		require.NoError(t, once(i))
	}
	t.Logf("%v each", time.Since(begin)/time.Duration(times))
	require.Eventually(t, func() bool {
		return count(t, "/proc/self/fd") <= descriptors+2 && count(t, "/proc/self/task") <= threads+10
	}, patience, 100*time.Millisecond, "descriptors or threads are left behind: %d descriptors and %d threads before", descriptors, threads)
}

// TestManyAtOnce dials many times at once, and uses all connections at once.
func TestManyAtOnce(t *testing.T) {
	dev := needDevice(t)
	many := sized(20, 100, 200)
	l := listen(t, rdmanet.ListenConfig{}, addrPort(dev.addr4, 0))
	serve(t, l)
	conns := make([]net.Conn, many)
	errs := make([]error, many)
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range conns {
		wg.Go(func() { conns[i], errs[i] = dialer(2*patience).Dial("rdma", l.Addr().String()) })
	}
	within(t, 3*patience, "all dials", wg.Wait)
	t.Logf("%d connections after %v", many, time.Since(begin).Round(time.Millisecond))
	useAll(t, conns, errs)
}

// scarcities are limits of a process that let it have a few connections.
func scarcities(dev device) map[string]peerOptions {
	s := map[string]peerOptions{"descriptors": {descriptors: 80}}
	if dev.iwarp() {
		// siw counts locked memory for root, too.
		s["locked memory"] = peerOptions{lockedMemory: 16 << 20}
	}
	return s
}

// TestDialUntilNoMore has a process dial until it gets nothing more. The dial that
// fails must say why, what there is must work, and when all has been given back it
// must be possible to dial again.
func TestDialUntilNoMore(t *testing.T) {
	dev := needDevice(t)
	for name, o := range scarcities(dev) {
		t.Run(name, func(t *testing.T) {
			l := listen(t, rdmanet.ListenConfig{}, addrPort(dev.addr4, 0))
			serve(t, l)
			o.dial, o.do = l.Addr().String(), "dial-all"
			p := startPeer(t, time.Minute, o)
			t.Log(p.line("dialed "))
			p.line("used all")
			p.line("dialed again")
			p.wait()
		})
	}
}

// dialAll is the child's part.
func dialAll(address string, first net.Conn) error {
	conns := []net.Conn{first}
	d := dialer(patience)
	for {
		c, err := d.Dial("rdma", address)
		if err == nil {
			conns = append(conns, c)
			if len(conns) == 1000 {
				return errors.New("1000 connections, and no limit was met")
			}
			continue
		}
		var oe *net.OpError
		var se *rdmanet.StageError
		if !errors.As(err, &oe) || oe.Op != "dial" || !errors.As(err, &se) || isTimeout(err) {
			return fmt.Errorf("the dial that was one too many: %w", err)
		}
		fmt.Printf("dialed %d, then: %v\n", len(conns), err)
		break
	}
	for i, c := range conns {
		if err := exchange(c, int64(i), 50_000); err != nil {
			return fmt.Errorf("connection %d of %d: %w", i, len(conns), err)
		}
	}
	fmt.Println("used all")
	for _, c := range conns {
		if err := c.Close(); err != nil {
			return err
		}
	}
	// The rest of a Close may happen behind its caller.
	var err error
	for range 50 {
		var c net.Conn
		if c, err = d.Dial("rdma", address); err == nil {
			fmt.Println("dialed again")
			return errors.Join(exchange(c, 1, 1000), c.Close())
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("no dial after all was given back: %w", err)
}

// TestAcceptUntilNoMore dials a process until it gets nothing more. Its Accept must
// say so with an error that is temporary, the peer that was one too many must get an
// error, and when all is given back the process must accept again.
func TestAcceptUntilNoMore(t *testing.T) {
	dev := needDevice(t)
	for name, o := range scarcities(dev) {
		t.Run(name, func(t *testing.T) {
			o.listen, o.do = addrPort(dev.addr4, 0), "echo-all"
			server := startPeer(t, 2*time.Minute, o)
			address := server.line("listening on ")
			d := dialer(10 * time.Second)
			var conns []net.Conn
			var last error
			for len(conns) < 1000 && last == nil {
				c, err := d.Dial("rdma", address)
				if err == nil {
					t.Cleanup(func() { c.Close() })
					// What the server has not accepted ends here.
					err = exchange(c, 1, 1000)
				}
				if err == nil {
					conns = append(conns, c)
				}
				last = err
			}
			t.Logf("%d connections, then: %v", len(conns), last)
			require.Error(t, last)
			t.Logf("Accept: %s", server.line("accept: "))
			useAll(t, conns, make([]error, len(conns)))
			require.Eventually(t, func() bool {
				c, err := d.Dial("rdma", address)
				if err != nil {
					t.Logf("not yet: %v", err)
					return false
				}
				defer c.Close()
				return exchange(c, 1, 1000) == nil
			}, patience, 100*time.Millisecond, "a connection after all is given back")
		})
	}
}

// serve echoes on every connection of a listener until the test ends.
func serve(t *testing.T, l net.Listener) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := echoAll(l, func(err error) { t.Errorf("Accept: %v", err) })
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept: %v", err)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
}

// exchange sends a pattern to an echo and checks what comes back.
func exchange(c net.Conn, seed, size int64) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	wrote := make(chan error, 1)
	go func() { wrote <- newPattern(seed, size).send(c, 64<<10) }()
	got := newPattern(seed, size)
	_, err := io.CopyN(got, struct{ io.Reader }{c}, size)
	return errors.Join(err, <-wrote)
}

// useAll uses all connections at once, and closes them.
func useAll(t *testing.T, conns []net.Conn, errs []error) {
	t.Helper()
	require.NoError(t, errors.Join(errs...))
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() { errs[i] = exchange(c, int64(i), 100_000) })
	}
	within(t, 2*patience, "all exchanges", wg.Wait)
	require.NoError(t, errors.Join(errs...))
	for i, c := range conns {
		wg.Go(func() { errs[i] = c.Close() })
	}
	within(t, patience, "all closes", wg.Wait)
	require.NoError(t, errors.Join(errs...))
}

// count is the number of entries of a directory.
func count(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	return len(entries)
}
