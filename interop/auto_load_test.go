//go:build linux

package interop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/rdmanet"
)

// A crowd is dialers of one kind, which dial one listener again and again.
type crowd struct {
	kind  string
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	conns atomic.Int64
	bytes atomic.Int64
}

// smallBuffers are of connections of which there are hundreds at once.
const smallBuffers = 64 << 10

// crowds are dialers by device, by the software NIC, by both of them, and by TCP
// alone.
func crowds(plain bool) []*crowd {
	var all []*crowd
	for _, p := range []rdmanet.Provider{rdmanet.Verbs, rdmanet.Software, rdmanet.Auto} {
		d := &rdmanet.Dialer{Provider: p, ReadBuffer: smallBuffers, WriteBuffer: smallBuffers, CloseTimeout: patience}
		all = append(all, &crowd{kind: p.String(), dial: d.DialContext})
	}
	if plain {
		all = append(all, &crowd{kind: "plain", dial: (&net.Dialer{}).DialContext})
	}
	return all
}

// run is one dialer: connections, on each some exchanges of which every byte is
// checked, until the time is over, and at least one.
func (c *crowd) run(address string, seed int64, until time.Time) error {
	for first := true; first || time.Now().Before(until); first = false {
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
		conn, err := c.dial(ctx, "tcp", address)
		cancel()
		if err != nil {
			return err
		}
		for i := range seed%3 + 1 {
			size := (seed*31337+i*7919+c.conns.Load()*104_729)%150_000 + 1
			if err := exchange(conn, seed+i, size); err != nil {
				conn.Close()
				return fmt.Errorf("exchange of %d bytes: %w", size, err)
			}
			c.bytes.Add(2 * size)
		}
		if err := conn.Close(); err != nil {
			return err
		}
		c.conns.Add(1)
	}
	return nil
}

// TestAutoListenerUnderLoad has 50 dialers of each kind dial one listener, all at
// once, for a while.
func TestAutoListenerUnderLoad(t *testing.T) {
	dev := needDevice(t)
	for _, tc := range []struct {
		name  string
		plain bool
	}{{"RDMA", false}, {"RDMA and plain TCP", true}} {
		t.Run(tc.name, func(t *testing.T) { autoListenerUnderLoad(t, dev, tc.plain) })
	}
}

func autoListenerUnderLoad(t *testing.T, dev device, plain bool) {
	const dialers = 50
	var refused atomic.Int64 // by dials with Auto, of which one of two ways is given up
	lc := rdmanet.ListenConfig{
		AcceptPlain: plain, ReadBuffer: smallBuffers, WriteBuffer: smallBuffers, CloseTimeout: patience,
		HandshakeTimeout: 2 * patience,
		Refused:          func(net.Addr, error) { refused.Add(1) },
	}
	l, err := lc.Listen(t.Context(), "rdma", addrPort(dev.addr4, 0))
	require.NoError(t, err)
	serve(t, l)
	all := crowds(plain)
	warm := func() {
		for _, c := range all {
			require.NoError(t, c.run(l.Addr().String(), 1, time.Time{}), c.kind)
		}
	}
	warm()
	descriptors, threads := count(t, "/proc/self/fd"), count(t, "/proc/self/task")

	var wg sync.WaitGroup
	errs := make([]error, dialers*len(all))
	begin := time.Now()
	until := begin.Add(sized(3*time.Second, 10*time.Second, time.Minute))
	for i := range errs {
		c := all[i%len(all)]
		wg.Go(func() {
			if err := c.run(l.Addr().String(), int64(i), until); err != nil {
				errs[i] = fmt.Errorf("%s dialer %d, after %v: %w", c.kind, i/len(all), time.Since(begin).Round(time.Millisecond), err)
			}
		})
	}
	within(t, time.Until(until)+6*patience, "all dialers", wg.Wait)
	for _, c := range all {
		t.Logf("%d dialers, %s: %d connections, %d MB in %v", dialers, c.kind, c.conns.Load(), c.bytes.Load()/1_000_000, time.Since(begin).Round(time.Millisecond))
	}
	t.Logf("%d connect requests were withdrawn or refused", refused.Load())
	require.NoError(t, errors.Join(errs...))
	for _, c := range all {
		require.GreaterOrEqual(t, c.conns.Load(), int64(dialers), c.kind)
	}
	require.Eventually(t, func() bool {
		return count(t, "/proc/self/fd") <= descriptors+2 && count(t, "/proc/self/task") <= threads+50
	}, 2*patience, 100*time.Millisecond, "descriptors or threads are left behind: %d descriptors and %d threads before", descriptors, threads)
}
