package rsocket

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/simqp"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// A lab is a simulated fabric with two devices, for one test.
type lab struct {
	t      testing.TB
	fabric *simqp.Fabric
	dev    [2]*simqp.Device
}

// transports are the two forms of the protocol.
var transports = []verbs.Transport{verbs.RoCE, verbs.IWARP}

// eachTransport runs a test in both forms, and in iWARP's as it is where the device
// works in its caller.
func eachTransport(t *testing.T, f func(t *testing.T, tr verbs.Transport)) {
	for _, tr := range transports {
		t.Run(tr.String(), func(t *testing.T) { f(t, tr) })
	}
	t.Run(callerDriven, func(t *testing.T) { f(t, verbs.IWARP) })
}

// callerDriven, in a test's name, makes its devices such that work in their callers.
const callerDriven = "iWARP_in_the_caller"

func newLab(t testing.TB, o simqp.Options) *lab {
	var mu sync.Mutex
	over := false
	o.Fault = func(s string) {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			t.Error(s)
		}
	}
	l := &lab{t: t, fabric: simqp.New(o)}
	for i := range l.dev {
		l.dev[i] = l.fabric.NewDevice(fmt.Sprintf("sim%d", i))
		l.dev[i].CallerDriven = strings.Contains(t.Name(), callerDriven)
	}
	t.Cleanup(func() {
		l.fabric.Wait()
		for _, d := range l.dev {
			MemoryOf(d).Trim()
			pds, mrs, cqs, qps := d.Live()
			if pds+mrs+cqs+qps != 0 {
				t.Errorf("left behind: %d protection domains, %d regions, %d completion queues, %d queue pairs", pds, mrs, cqs, qps)
			}
		}
		mu.Lock()
		over = true
		mu.Unlock()
	})
	return l
}

// An end is one end of a connection: a stream, its queue pair, and what the
// connection manager and the public package do for it.
type end struct {
	*Stream
	qp     *simqp.QP
	closes sync.WaitGroup // of a conn's Close
}

// open builds the local side of a stream on device i.
func (l *lab) open(i int, cfg Config) *end {
	e := &end{}
	cfg.Acceptor = i == 1
	s, err := Open(MemoryOf(l.dev[i]), func(pd verbs.PD, cq verbs.CQ, attr verbs.QPAttr) (verbs.QP, error) {
		qp, err := l.dev[i].CreateQP(pd, cq, attr)
		e.qp = qp
		return qp, err
	}, cfg)
	require.NoError(l.t, err)
	e.Stream = s
	e.qp.OnEvent = func(cause error) { s.Disconnected(cause) }
	return e
}

// connect exchanges headers and establishes the connection of a dialer, a, and
// an acceptor, b. reads is the number of Reads that each end may post.
func connect(t testing.TB, a, b *end, reads int) {
	for _, e := range [][2]*end{{b, a}, {a, b}} {
		h, err := ParseHeader(e[1].PrivateData(), false)
		require.NoError(t, err)
		e[0].Start(h, reads)
	}
	simqp.Connect(a.qp, b.qp, reads)
	a.Established()
	b.Established()
}

// pair makes a connection with equal configurations.
func (l *lab) pair(cfg Config) (a, b *end) { return l.pairOf(cfg, cfg) }

func (l *lab) pairOf(ca, cb Config) (a, b *end) {
	a, b = l.open(0, ca), l.open(1, cb)
	connect(l.t, a, b, 1)
	l.t.Cleanup(func() {
		l.release(a)
		l.release(b)
	})
	return a, b
}

func (l *lab) release(e *end) {
	e.closes.Wait() // nettest does not wait for each Close that it has begun
	if err := e.Release(); err != nil {
		l.t.Error(err)
	}
}

// A conn is a net.Conn around an end, as package rdmanet has it: Close ends the
// stream, disconnects, and releases.
type conn struct{ *end }

var addr net.Addr = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}

func (c conn) LocalAddr() net.Addr  { return addr }
func (c conn) RemoteAddr() net.Addr { return addr }

func (c conn) Read(p []byte) (int, error) {
	n, err := c.end.Read(p)
	return n, wrap("read", err)
}

func (c conn) Write(p []byte) (int, error) {
	n, err := c.end.Write(p)
	return n, wrap("write", err)
}

func (c conn) Close() error {
	c.closes.Add(1)
	defer c.closes.Done()
	err := c.end.Close(time.Second)
	if err == net.ErrClosed {
		return wrap("close", err)
	}
	_ = c.Linger(time.Second)
	c.qp.Disconnect()
	if e := c.Release(); err == nil {
		err = e
	}
	return wrap("close", err)
}

func (c conn) SetDeadline(t time.Time) error      { return wrap("set", c.end.SetDeadline(t)) }
func (c conn) SetReadDeadline(t time.Time) error  { return wrap("set", c.end.SetReadDeadline(t)) }
func (c conn) SetWriteDeadline(t time.Time) error { return wrap("set", c.end.SetWriteDeadline(t)) }

// wrap does what package rdmanet does with errors: io.EOF stays as it is.
func wrap(op string, err error) error {
	if err == nil || err.Error() == "EOF" {
		return err
	}
	return &net.OpError{Op: op, Net: "rdma", Source: addr, Addr: addr, Err: err}
}

// within fails the test if f takes longer than d.
func within(t testing.TB, d time.Duration, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(d):
		panic(fmt.Sprintf("%s: not done after %v", t.Name(), d))
	}
}
