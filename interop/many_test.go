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
		c, err := rdmanet.DialTimeout("rdma", l.Addr().String(), patience)
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
	if dev.iwarp() {
		t.Skip("siw does not give one process the queue pairs: see TestUntilNoMore")
	}
	many := sized(20, 100, 200)
	l := listen(t, rdmanet.ListenConfig{}, addrPort(dev.addr4, 0))
	serve(t, l)
	conns := make([]net.Conn, many)
	errs := make([]error, many)
	var wg sync.WaitGroup
	for i := range conns {
		wg.Go(func() { conns[i], errs[i] = rdmanet.DialTimeout("rdma", l.Addr().String(), 2*patience) })
	}
	begin := time.Now()
	within(t, 3*patience, "all dials", wg.Wait)
	t.Logf("%d connections after %v", many, time.Since(begin).Round(time.Millisecond))
	useAll(t, conns, errs)
}

// TestUntilNoMore dials until the device gives this process no more queue pairs.
// The dial that fails must say why, what there is must work, and when something has
// been given back it must be possible to dial again.
func TestUntilNoMore(t *testing.T) {
	dev := needDevice(t)
	if !dev.iwarp() {
		t.Skipf("%s is not known to have a small limit", dev.name)
	}
	// Each server has half of the connections, so that it is this process
	// that gets no more.
	var servers []string
	for range 2 {
		servers = append(servers, startPeer(t, 3*time.Minute, peerOptions{listen: addrPort(dev.addr4, 0), do: "echo-all"}).line("listening on "))
	}
	d := rdmanet.Dialer{Provider: rdmanet.Verbs, Timeout: patience}
	var conns []net.Conn
	var last error
	for len(conns) < 500 && last == nil {
		c, err := d.Dial("rdma", servers[len(conns)%len(servers)])
		if err == nil {
			conns = append(conns, c)
			t.Cleanup(func() { c.Close() })
		}
		last = err
	}
	t.Logf("%d connections, then: %v", len(conns), last)
	require.Error(t, last)
	require.False(t, isTimeout(last), "it is no time-out")
	requireDialError(t, last)
	require.GreaterOrEqual(t, len(conns), 8)
	useAll(t, conns, make([]error, len(conns)))
	require.Eventually(t, func() bool {
		c, err := d.Dial("rdma", servers[0])
		if err != nil {
			t.Logf("not yet: %v", err)
			return false
		}
		defer c.Close()
		return exchange(c, 1, 1000) == nil
	}, patience, 100*time.Millisecond, "a dial after all is given back")
}

func requireDialError(t *testing.T, err error) {
	t.Helper()
	var oe *net.OpError
	require.ErrorAs(t, err, &oe)
	require.Equal(t, "dial", oe.Op)
	var se *rdmanet.StageError
	require.ErrorAs(t, err, &se)
}

// TestServerUntilNoMore lets other processes dial until this one gets no more
// queue pairs. Accept must say so with an error that is temporary, and accept again
// when the others have gone.
func TestServerUntilNoMore(t *testing.T) {
	dev := needDevice(t)
	if !dev.iwarp() {
		t.Skipf("%s is not known to have a small limit", dev.name)
	}
	l := listen(t, rdmanet.ListenConfig{}, addrPort(dev.addr4, 0))
	refused := serve(t, l)
	var dialers []*program
	for range 3 {
		dialers = append(dialers, startPeer(t, 3*time.Minute, peerOptions{dial: l.Addr().String(), do: "dial-all"}))
	}
	for _, p := range dialers {
		t.Log(p.line("dialed "))
	}
	select {
	case err := <-refused:
		t.Logf("Accept: %v", err)
		requireAcceptError(t, err)
	case <-time.After(patience):
		t.Fatal("Accept says nothing of what it could not accept")
	}
	for _, p := range dialers {
		p.kill()
	}
	d := rdmanet.Dialer{Provider: rdmanet.Verbs, Timeout: patience}
	require.Eventually(t, func() bool {
		c, err := d.Dial("rdma", l.Addr().String())
		if err != nil {
			t.Logf("not yet: %v", err)
			return false
		}
		defer c.Close()
		return exchange(c, 1, 1000) == nil
	}, patience, 100*time.Millisecond, "a connection after the others have gone")
}

func requireAcceptError(t *testing.T, err error) {
	t.Helper()
	var oe *net.OpError
	require.ErrorAs(t, err, &oe)
	require.Equal(t, "accept", oe.Op)
	require.True(t, oe.Temporary())
}

// dialAll is the child's part: it keeps what it gets.
func dialAll(address string, first net.Conn) error {
	conns := []net.Conn{first}
	for len(conns) < 500 {
		d := rdmanet.Dialer{Provider: rdmanet.Verbs, Timeout: 10 * time.Second}
		c, err := d.Dial("rdma", address)
		if err != nil {
			fmt.Printf("dialed %d, then: %v\n", len(conns), err)
			break
		}
		conns = append(conns, c)
	}
	select {}
}

// serve echoes on every connection of a listener, and hands out the temporary
// errors of Accept. All is over when the test is.
func serve(t *testing.T, l net.Listener) (temporary <-chan error) {
	t.Helper()
	errs := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := echoAll(l, func(err error) {
			select {
			case errs <- err:
			default:
			}
		})
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept: %v", err)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return errs
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
