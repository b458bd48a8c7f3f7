package iwarp

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// In the lab's guests, which name a device, only what speaks to their siw is run,
// unless -test.run says otherwise: the rest has run on the host, and some of it
// counts milliseconds that emulation does not have.
func TestMain(m *testing.M) {
	flag.Parse()
	if run := flag.Lookup("test.run"); os.Getenv("RDMANET_TEST_DEVICE") != "" && run.Value.String() == "" {
		if err := run.Value.Set("Siw"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what has to come.
const patience = 20 * time.Second

// A side is one end of a connection on the verbs interface, with one region that
// the peer may read and write.
type side struct {
	t      testing.TB
	nic    *NIC
	id     cm.ID
	events chan cm.Event
	pd     verbs.PD
	cq     verbs.CQ
	qp     verbs.QP
	mr     verbs.MR
	wcs    []verbs.WC // polled and not yet asked for

	// for benchmarks, which must not allocate
	wc  [16]verbs.WC
	swr [2]verbs.SendWR
	rwr [1]verbs.RecvWR
}

// openNIC opens a NIC for a test: short bounds, so that nothing outlives it by
// long.
func openNIC(t testing.TB, cfg Config) *NIC {
	if cfg.CloseTimeout == 0 {
		cfg.CloseTimeout = 500 * time.Millisecond
	}
	nic, err := Open(cfg)
	require.NoError(t, err)
	return nic
}

func handle(id cm.ID) chan cm.Event {
	events := make(chan cm.Event, 64)
	id.Handle(func(ev cm.Event) { events <- ev })
	return events
}

// newEnd makes an identifier of the NIC an end; nil makes one.
func newEnd(t testing.TB, nic *NIC, id cm.ID, attr verbs.QPAttr) *side {
	return newEndOf(t, nic, id, attr, testRegion)
}

// newEndOf is newEnd with a region of another size.
func newEndOf(t testing.TB, nic *NIC, id cm.ID, attr verbs.QPAttr, size int) *side {
	if id == nil {
		id = nic.newIdentifier()
	}
	e := &side{t: t, nic: nic, id: id, events: handle(id)}
	if attr.SendDepth == 0 {
		attr.SendDepth = 64
	}
	if attr.RecvDepth == 0 {
		attr.RecvDepth = 64
	}
	var err error
	e.pd, err = nic.AllocPD()
	require.NoError(t, err)
	e.cq, err = nic.NewCQ(attr.SendDepth + attr.RecvDepth)
	require.NoError(t, err)
	e.qp, err = id.CreateQP(e.pd, e.cq, attr)
	require.NoError(t, err)
	e.mr, err = e.pd.RegisterMemory(size, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead)
	require.NoError(t, err)
	return e
}

// testRegion is the size of an end's region.
const testRegion = 1 << 20

// destroy takes the end apart in the order that the interfaces demand.
func (e *side) destroy() {
	require.NoError(e.t, e.qp.Destroy())
	require.NoError(e.t, e.cq.Destroy())
	require.NoError(e.t, e.mr.Deregister())
	require.NoError(e.t, e.pd.Dealloc())
	require.NoError(e.t, e.id.Destroy())
}

func next(t testing.TB, events chan cm.Event, want cm.EventType) cm.Event {
	t.Helper()
	select {
	case ev := <-events:
		require.Equal(t, want.String(), ev.Type.String(), "%+v", ev)
		return ev
	case <-time.After(patience):
		require.FailNow(t, "no event", "waited for %v", want)
		return cm.Event{}
	}
}

func (e *side) next(want cm.EventType) cm.Event {
	e.t.Helper()
	return next(e.t, e.events, want)
}

// listen makes a listening identifier.
func listen(t testing.TB, nic *NIC, addr string) (cm.ID, chan cm.Event) {
	id := nic.newIdentifier()
	events := handle(id)
	require.NoError(t, id.Bind(cm.Addr{AddrPort: netip.MustParseAddrPort(addr)}, false))
	require.NoError(t, id.Listen(16))
	return id, events
}

// resolve takes an identifier through the stages before connect.
func resolve(t testing.TB, id cm.ID, events chan cm.Event, dst netip.AddrPort) {
	require.NoError(t, id.ResolveAddr(cm.Addr{}, cm.Addr{AddrPort: dst}, 1000))
	next(t, events, cm.AddrResolved)
	require.NoError(t, id.ResolveRoute(1000))
	next(t, events, cm.RouteResolved)
}

var onePair = cm.ConnParam{ResponderResources: 4, InitiatorDepth: 4}

// connectPair connects an end of each NIC over loopback.
func connectPair(t testing.TB, dialing, accepting *NIC, attr verbs.QPAttr, prepare ...func(dialer, acceptor *side)) (dialer, acceptor *side) {
	lid, levents := listen(t, accepting, "127.0.0.1:0")
	defer func() { require.NoError(t, lid.Destroy()) }()

	dialer = newEnd(t, dialing, nil, attr)
	resolve(t, dialer.id, dialer.events, lid.LocalAddr())
	param := onePair
	param.PrivateData = []byte("hello")
	require.NoError(t, dialer.id.Connect(param))

	req := next(t, levents, cm.ConnectRequest)
	require.Equal(t, "hello", string(req.Param.PrivateData))
	acceptor = newEnd(t, accepting, req.Request, attr)
	for _, f := range prepare {
		f(dialer, acceptor)
	}
	param.PrivateData = []byte("welcome")
	require.NoError(t, acceptor.id.Accept(param))
	acceptor.next(cm.Established)
	ev := dialer.next(cm.Established)
	require.Equal(t, "welcome", string(ev.Param.PrivateData))
	return dialer, acceptor
}

// disconnectPair ends a connection in order.
func disconnectPair(a, b *side) {
	require.NoError(a.t, a.id.Disconnect())
	b.awaitDisconnected()
	a.awaitDisconnected()
	a.destroy()
	b.destroy()
}

// awaitDisconnected drives the end until it is told that its connection is over.
func (e *side) awaitDisconnected() cm.Event {
	e.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		e.drive(0)
		select {
		case ev := <-e.events:
			require.Equal(e.t, cm.Disconnected.String(), ev.Type.String())
			return ev
		case <-time.After(time.Millisecond):
			require.True(e.t, time.Now().Before(deadline), "not disconnected")
		}
	}
}

// drive polls; with a time it waits for something to poll, that long.
func (e *side) drive(wait time.Duration) {
	e.t.Helper()
	var wc [16]verbs.WC
	poll := func() int {
		n, err := e.cq.Poll(wc[:])
		require.NoError(e.t, err)
		e.wcs = append(e.wcs, wc[:n]...)
		return n
	}
	if poll() > 0 || wait == 0 {
		return
	}
	require.NoError(e.t, e.cq.Arm())
	if poll() > 0 {
		return
	}
	timer := time.AfterFunc(wait, e.cq.Wake)
	defer timer.Stop()
	require.NoError(e.t, e.cq.Wait())
	poll()
}

// completion waits for the next completion.
func (e *side) completion() verbs.WC {
	e.t.Helper()
	deadline := time.Now().Add(patience)
	for len(e.wcs) == 0 {
		require.True(e.t, time.Now().Before(deadline), "no completion")
		e.drive(patience)
	}
	wc := e.wcs[0]
	e.wcs = e.wcs[1:]
	return wc
}

// want waits for a completion that must be this one.
func (e *side) want(id uint64, status verbs.WCStatus, op verbs.WCOpcode) verbs.WC {
	e.t.Helper()
	wc := e.completion()
	require.Equal(e.t, fmt.Sprint(id, status), fmt.Sprint(wc.ID, wc.Status))
	if status == verbs.WCSuccess {
		require.Equal(e.t, op, wc.Opcode)
	}
	return wc
}

func (e *side) sge(offset, n int) verbs.SGE {
	return verbs.SGE{Addr: e.mr.Addr() + uint64(offset), Length: uint32(n), LKey: e.mr.LKey()}
}

func (e *side) postRecv(id uint64, offset, n int) {
	e.t.Helper()
	k, err := e.qp.PostRecv([]verbs.RecvWR{{ID: id, SGE: e.sge(offset, n)}})
	require.NoError(e.t, err)
	require.Equal(e.t, 1, k)
}

func (e *side) post(wrs ...verbs.SendWR) {
	e.t.Helper()
	k, err := e.qp.PostSend(wrs)
	require.NoError(e.t, err)
	require.Equal(e.t, len(wrs), k)
}

// request is a signalled request on a part of the end's region.
func (e *side) request(op verbs.Opcode, id uint64, offset, n int) verbs.SendWR {
	wr := verbs.SendWR{ID: id, Opcode: op, Flags: verbs.FlagSignaled}
	if n > 0 {
		wr.NumSGE = 1
		wr.SGE[0] = e.sge(offset, n)
	}
	return wr
}

// to directs a request at a part of the peer's region.
func to(wr verbs.SendWR, peer *side, offset int) verbs.SendWR {
	wr.RKey, wr.RemoteAddr = peer.mr.RKey(), peer.mr.Addr()+uint64(offset)
	return wr
}

func fillPattern(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
}
