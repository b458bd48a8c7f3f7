//go:build linux && cgo

package rdmacore

import (
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// The tests of this file and of those named *_device_test.go need an RDMA device:
//
//	RDMANET_TEST_DEVICE  its name, such as rxe0 or siw0
//	RDMANET_TEST_ADDR4   an IPv4 address that it has
//	RDMANET_TEST_ADDR6   an IPv6 address that it has; without it those tests are skipped
//
// Both ends of each connection are in this process.

const patience = 20 * time.Second // for an event; devices are emulated at times

func needDevice(t testing.TB) (p cm.Provider, name string) {
	t.Helper()
	name = os.Getenv("RDMANET_TEST_DEVICE")
	if name == "" {
		t.Skip("needs an RDMA device: RDMANET_TEST_DEVICE is not set")
	}
	p, err := Open()
	require.NoError(t, err)
	return p, name
}

func testAddr(t testing.TB, variable string) netip.Addr {
	t.Helper()
	s := os.Getenv(variable)
	if s == "" {
		t.Skipf("needs an address of the device: %s is not set", variable)
	}
	return netip.MustParseAddr(s)
}

func addr4(t testing.TB) netip.Addr { t.Helper(); return testAddr(t, "RDMANET_TEST_ADDR4") }

// An end is an identifier whose events are kept in a channel.
type end struct {
	id     cm.ID
	events chan cm.Event
	pd     verbs.PD
	cq     verbs.CQ
	qp     verbs.QP
	mr     verbs.MR
}

func newEnd(t testing.TB, id cm.ID) *end {
	t.Helper()
	e := &end{id: id, events: make(chan cm.Event, 64)}
	id.Handle(func(ev cm.Event) { e.events <- ev })
	return e
}

// expect waits for an event and demands that it is of the type.
func (e *end) expect(t testing.TB, want cm.EventType) cm.Event {
	t.Helper()
	select {
	case ev := <-e.events:
		require.Equal(t, want, ev.Type, "event with status %d", ev.Status)
		return ev
	case <-time.After(patience):
		require.FailNow(t, "no event", "waiting for %v", want)
		panic("not reached")
	}
}

// build makes all that a connection needs: 16 slots each way, 64 KiB of memory.
func (e *end) build(t testing.TB) {
	t.Helper()
	e.buildDepth(t, 16, 16)
}

func (e *end) buildDepth(t testing.TB, send, recv int) {
	t.Helper()
	dev, err := e.id.Device()
	require.NoError(t, err)
	e.pd, err = dev.AllocPD()
	require.NoError(t, err)
	e.cq, err = dev.NewCQ(4 * (send + recv))
	require.NoError(t, err)
	e.mr, err = e.pd.RegisterMemory(64<<10, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead)
	require.NoError(t, err)
	e.qp, err = e.id.CreateQP(e.pd, e.cq, verbs.QPAttr{SendDepth: send, RecvDepth: recv, MaxInline: 32})
	require.NoError(t, err)
}

// tear undoes build, and destroys the identifier, and those of requests that it
// has got.
func (e *end) tear(t testing.TB) {
	t.Helper()
	if e.qp != nil {
		require.NoError(t, e.qp.Destroy())
	}
	require.NoError(t, e.id.Destroy())
	for len(e.events) > 0 {
		if ev := <-e.events; ev.Request != nil {
			require.NoError(t, ev.Request.Destroy())
		}
	}
	if e.mr != nil {
		require.NoError(t, e.mr.Deregister())
	}
	if e.cq != nil {
		require.NoError(t, e.cq.Destroy())
	}
	if e.pd != nil {
		require.NoError(t, e.pd.Dealloc())
	}
	e.qp, e.mr, e.cq, e.pd = nil, nil, nil, nil
}

// listen makes a listener on ip, and its address.
func listen(t testing.TB, p cm.Provider, ip netip.Addr, backlog int) (*end, cm.Addr) {
	t.Helper()
	id, err := p.NewID()
	require.NoError(t, err)
	l := newEnd(t, id)
	require.NoError(t, id.Bind(cm.Addr{AddrPort: netip.AddrPortFrom(ip, 0)}, false))
	require.NoError(t, id.Listen(backlog))
	at := id.LocalAddr()
	require.True(t, at.IsValid())
	require.NotZero(t, at.Port())
	return l, cm.Addr{AddrPort: netip.AddrPortFrom(ip, at.Port())}
}

// resolve makes an identifier whose route to an address is known.
func resolve(t testing.TB, p cm.Provider, to cm.Addr) *end {
	t.Helper()
	id, err := p.NewID()
	require.NoError(t, err)
	e := newEnd(t, id)
	require.NoError(t, id.ResolveAddr(cm.Addr{}, to, 2000))
	e.expect(t, cm.AddrResolved)
	require.NoError(t, id.ResolveRoute(2000))
	e.expect(t, cm.RouteResolved)
	return e
}

func param(private ...byte) cm.ConnParam {
	return cm.ConnParam{
		PrivateData: private, ResponderResources: 1, InitiatorDepth: 1,
		FlowControl: 1, RetryCount: 6, RNRRetryCount: 7,
	}
}

// connect makes both ends of a connection: the one that dialed, the one that
// accepted. Each has posted 8 receives of 1024 bytes, with IDs from 0, at the
// beginning of its memory.
func connect(t testing.TB, p cm.Provider, ip netip.Addr) (d, a *end) {
	t.Helper()
	l, at := listen(t, p, ip, 16)
	d = resolve(t, p, at)
	d.build(t)
	postReceives(t, d)
	require.NoError(t, d.id.Connect(param(1, 2, 3)))
	a = newEnd(t, l.expect(t, cm.ConnectRequest).Request)
	a.build(t)
	postReceives(t, a)
	require.NoError(t, a.id.Accept(param(4, 5)))
	d.expect(t, cm.Established)
	a.expect(t, cm.Established)
	l.tear(t)
	return d, a
}

// disconnect ends a connection from d's side. On InfiniBand and RoCE the one that
// asked hears of the end only when the other has answered.
func disconnect(t testing.TB, d, a *end) {
	t.Helper()
	require.NoError(t, d.id.Disconnect())
	a.expect(t, cm.Disconnected)
	if err := a.id.Disconnect(); err != nil {
		// on iWARP there is nothing left to end
		require.ErrorIs(t, err, syscall.EINVAL)
	}
	d.expect(t, cm.Disconnected)
}

const receiveSize = 1024

func postReceives(t testing.TB, e *end) {
	t.Helper()
	wr := make([]verbs.RecvWR, 8)
	for i := range wr {
		wr[i] = verbs.RecvWR{ID: uint64(i), SGE: verbs.SGE{
			Addr: e.mr.Addr() + uint64(i*receiveSize), Length: receiveSize, LKey: e.mr.LKey(),
		}}
	}
	n, err := e.qp.PostRecv(wr)
	require.NoError(t, err)
	require.Equal(t, len(wr), n)
}

// completions waits for n completions, with Arm and Wait.
func (e *end) completions(t testing.TB, n int) []verbs.WC {
	t.Helper()
	timer := time.AfterFunc(patience, e.cq.Wake)
	defer timer.Stop()
	deadline := time.Now().Add(patience)
	var all []verbs.WC
	wc := make([]verbs.WC, 16)
	poll := func() bool { // until the queue is empty, or n are there
		for {
			room := wc[:min(len(wc), n-len(all))]
			got, err := e.cq.Poll(room)
			require.NoError(t, err)
			all = append(all, room[:got]...)
			if len(all) == n || got < len(room) {
				return len(all) == n
			}
		}
	}
	for !poll() {
		require.NoError(t, e.cq.Arm())
		if poll() {
			break
		}
		require.NoError(t, e.cq.Wait())
		require.True(t, time.Now().Before(deadline), "%d of %d completions", len(all), n)
	}
	return all
}

// until polls, without Wait, until what has come is enough.
func (e *end) until(t testing.TB, enough func([]verbs.WC) bool) {
	t.Helper()
	var all []verbs.WC
	wc := make([]verbs.WC, 16)
	require.Eventually(t, func() bool {
		n, err := e.cq.Poll(wc)
		if err != nil {
			t.Error(err)
		}
		all = append(all, wc[:n]...)
		return enough(all)
	}, patience, time.Millisecond)
}

// send sends bytes of e's memory.
func (e *end) send(t testing.TB, wr ...verbs.SendWR) {
	t.Helper()
	n, err := e.qp.PostSend(wr)
	require.NoError(t, err)
	require.Equal(t, len(wr), n)
}

func (e *end) sge(offset, length int) [verbs.MaxSGE]verbs.SGE {
	return [verbs.MaxSGE]verbs.SGE{{Addr: e.mr.Addr() + uint64(offset), Length: uint32(length), LKey: e.mr.LKey()}}
}

func TestDeviceEcho(t *testing.T) {
	p, name := needDevice(t)
	noLeaks(t)
	d, a := connect(t, p, addr4(t))
	dev, err := d.id.Device()
	require.NoError(t, err)
	require.Equal(t, name, dev.Info().Name)
	t.Logf("%+v, port %+v, inline %d", dev.Info(), d.id.Port(), d.qp.MaxInline())

	copy(d.mr.Bytes()[32<<10:], "there and back")
	for i := range 8 {
		d.send(t, verbs.SendWR{ID: 100, Opcode: verbs.OpSend, Flags: verbs.FlagSignaled, NumSGE: 1, SGE: d.sge(32<<10, 14)})
		wc := a.completions(t, 1)[0]
		require.Equal(t, verbs.WC{ID: uint64(i), Opcode: verbs.WCRecv, ByteLen: 14}, wc)
		require.Equal(t, "there and back", string(a.mr.Bytes()[i*receiveSize:][:14]))
		a.send(t, verbs.SendWR{ID: 200, Opcode: verbs.OpSend, Flags: verbs.FlagSignaled, NumSGE: 1, SGE: a.sge(i*receiveSize, 14)})
		a.completions(t, 1)
		for _, wc := range d.completions(t, 2) {
			require.Equal(t, verbs.WCSuccess, wc.Status)
		}
		require.Equal(t, "there and back", string(d.mr.Bytes()[i*receiveSize:][:14]))
	}
	disconnect(t, d, a)
	d.tear(t)
	a.tear(t)
}
