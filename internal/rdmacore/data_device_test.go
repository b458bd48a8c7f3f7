//go:build linux && cgo

package rdmacore

import (
	"bytes"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

func connected(t testing.TB) (d, a *end) {
	t.Helper()
	p, _ := needDevice(t)
	noLeaks(t)
	d, a = connect(t, p, addr4(t))
	t.Cleanup(func() {
		disconnect(t, d, a)
		d.tear(t)
		a.tear(t)
	})
	return d, a
}

func TestDeviceWriteAndRead(t *testing.T) {
	d, a := connected(t)
	const at, size = 32 << 10, 5000
	text := bytes.Repeat([]byte("rdma "), size/5)
	copy(d.mr.Bytes()[at:], text)

	// two pieces, written as one
	sge := [verbs.MaxSGE]verbs.SGE{
		{Addr: d.mr.Addr() + at, Length: 4321, LKey: d.mr.LKey()},
		{Addr: d.mr.Addr() + at + 4321, Length: size - 4321, LKey: d.mr.LKey()},
	}
	d.send(t, verbs.SendWR{
		ID: 1 << 63, Opcode: verbs.OpWrite, Flags: verbs.FlagSignaled, NumSGE: 2, SGE: sge,
		RemoteAddr: a.mr.Addr() + at, RKey: a.mr.RKey(),
	})
	wc := d.completions(t, 1)[0]
	require.Equal(t, verbs.WCSuccess, wc.Status)
	require.Equal(t, verbs.WCWrite, wc.Opcode)
	require.Equal(t, uint64(1<<63), wc.ID)

	// read back; on iWARP a Write that has completed may not have arrived
	d.send(t, verbs.SendWR{
		ID: 2, Opcode: verbs.OpRead, Flags: verbs.FlagSignaled, NumSGE: 1, SGE: d.sge(at+8192, size),
		RemoteAddr: a.mr.Addr() + at, RKey: a.mr.RKey(),
	})
	wc = d.completions(t, 1)[0]
	require.Equal(t, verbs.WCSuccess, wc.Status)
	require.Equal(t, verbs.WCRead, wc.Opcode)
	require.True(t, bytes.Equal(text, d.mr.Bytes()[at+8192:][:size]))
	require.True(t, bytes.Equal(text, a.mr.Bytes()[at:][:size]))
}

func TestDeviceWriteImm(t *testing.T) {
	d, a := connected(t)
	wr := verbs.SendWR{
		ID: 3, Opcode: verbs.OpWriteImm, Flags: verbs.FlagSignaled, NumSGE: 1, SGE: d.sge(32<<10, 6),
		RemoteAddr: a.mr.Addr() + 32<<10, RKey: a.mr.RKey(), Imm: 0x01020304,
	}
	copy(d.mr.Bytes()[32<<10:], "direct")
	if !transportOf(t, d).HasImmediate() {
		n, err := d.qp.PostSend([]verbs.SendWR{wr})
		require.Error(t, err)
		require.Zero(t, n)
		return
	}
	d.send(t, wr)
	require.Equal(t, verbs.WC{ID: 0, Opcode: verbs.WCRecvImm, ByteLen: 6, Imm: 0x01020304}, a.completions(t, 1)[0])
	require.Equal(t, "direct", string(a.mr.Bytes()[32<<10:][:6]))
	require.Equal(t, verbs.WCSuccess, d.completions(t, 1)[0].Status)

	// without memory, neither here nor there
	wr.NumSGE, wr.Imm = 0, 0xffffffff
	d.send(t, wr)
	require.Equal(t, verbs.WC{ID: 1, Opcode: verbs.WCRecvImm, Imm: 0xffffffff}, a.completions(t, 1)[0])
	require.Equal(t, verbs.WCSuccess, d.completions(t, 1)[0].Status)
}

func TestDeviceInline(t *testing.T) {
	d, a := connected(t)
	if d.qp.MaxInline() < 8 {
		t.Skipf("the device has %d bytes of inline data", d.qp.MaxInline())
	}
	b := d.mr.Bytes()[32<<10:][:8]
	for i := range 8 {
		copy(b, "inline 0")
		b[7] += byte(i)
		d.send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.FlagInline | verbs.FlagSignaled, NumSGE: 1, SGE: d.sge(32<<10, 8)})
		clear(b) // the device has a copy
		a.completions(t, 1)
		require.Equal(t, "inline "+string(rune('0'+i)), string(a.mr.Bytes()[i*receiveSize:][:8]))
		d.completions(t, 1)
	}
}

// A batch longer than what C hands to the driver at a time, and a queue that is
// full in the middle of one.
func TestDeviceLongBatches(t *testing.T) {
	p, _ := needDevice(t)
	noLeaks(t)
	const n = 100
	l, at := listen(t, p, addr4(t), 16)
	d := resolve(t, p, at)
	d.buildDepth(t, n, n)
	require.NoError(t, d.id.Connect(param()))
	a := newEnd(t, l.expect(t, cm.ConnectRequest).Request)
	a.buildDepth(t, n, n)
	receives := make([]verbs.RecvWR, n)
	for i := range receives {
		receives[i] = verbs.RecvWR{ID: uint64(i), SGE: verbs.SGE{Addr: a.mr.Addr() + uint64(4*i), Length: 4, LKey: a.mr.LKey()}}
	}
	got, err := a.qp.PostRecv(receives)
	require.NoError(t, err)
	require.Equal(t, n, got)
	require.NoError(t, a.id.Accept(param()))
	d.expect(t, cm.Established)
	a.expect(t, cm.Established)

	sends := make([]verbs.SendWR, n)
	for i := range sends {
		d.mr.Bytes()[4*i] = byte(i)
		sends[i] = verbs.SendWR{ID: uint64(i), Opcode: verbs.OpSend, Flags: verbs.FlagSignaled, NumSGE: 1, SGE: d.sge(4*i, 4)}
	}
	d.send(t, sends...)
	for i, wc := range a.completions(t, n) {
		require.Equal(t, verbs.WC{ID: uint64(i), Opcode: verbs.WCRecv, ByteLen: 4}, wc)
		require.Equal(t, byte(i), a.mr.Bytes()[4*i])
	}
	for i, wc := range d.completions(t, n) {
		require.Equal(t, uint64(i), wc.ID)
		require.Equal(t, verbs.WCSuccess, wc.Status)
	}

	// nothing is taken of what is not understood, all of what comes before it is
	for i := range sends[:40] {
		sends[i].NumSGE = 0
		sends[i].Opcode = verbs.OpWrite
		sends[i].RemoteAddr, sends[i].RKey = a.mr.Addr(), a.mr.RKey()
	}
	sends[39].Opcode = 77
	taken, err := d.qp.PostSend(sends[:40])
	require.ErrorIs(t, err, syscall.EINVAL)
	require.Equal(t, 32, taken)
	d.completions(t, 32)

	// A full receive queue: how many are taken is known.
	more := slices.Repeat(receives[:1], 1<<12)
	taken, err = a.qp.PostRecv(more)
	require.ErrorIs(t, err, syscall.ENOMEM)
	require.GreaterOrEqual(t, taken, n)
	require.Less(t, taken, len(more))

	disconnect(t, d, a)
	require.NoError(t, a.qp.SetError())
	require.NoError(t, a.qp.SetError()) // it is there already
	for _, wc := range a.completions(t, taken) {
		require.Equal(t, verbs.WCWRFlushErr, wc.Status)
	}
	a.tear(t)
	d.tear(t)
	l.tear(t)
}

// A status that is not success, with the ID to know it by.
func TestDeviceFailedWrite(t *testing.T) {
	p, _ := needDevice(t)
	noLeaks(t)
	d, a := connect(t, p, addr4(t))
	if transportOf(t, d) == verbs.IWARP {
		defer func() { d.tear(t); a.tear(t) }()
		d.send(t, verbs.SendWR{ID: 5, Opcode: verbs.OpRead, Flags: verbs.FlagSignaled, NumSGE: 1, SGE: d.sge(0, 8), RemoteAddr: 8, RKey: a.mr.RKey() ^ 0x100})
		// with the receives, which are flushed, on a queue of their own
		wc := d.completions(t, 1+8)
		i := slices.IndexFunc(wc, func(wc verbs.WC) bool { return wc.ID == 5 })
		require.GreaterOrEqual(t, i, 0)
		require.NotEqual(t, verbs.WCSuccess, wc[i].Status)
		return
	}
	d.send(t, verbs.SendWR{ID: 5, Opcode: verbs.OpWrite, NumSGE: 1, SGE: d.sge(0, 8), RemoteAddr: 8, RKey: a.mr.RKey()})
	wc := d.completions(t, 1)[0]
	require.EqualValues(t, 5, wc.ID)
	require.Equal(t, verbs.WCRemAccessErr, wc.Status)
	d.tear(t)
	a.tear(t)
}

func TestDeviceWake(t *testing.T) {
	d, a := connected(t)
	wait := func() <-chan error {
		done := make(chan error, 1)
		go func() { done <- d.cq.Wait() }()
		return done
	}
	returns := func(done <-chan error) {
		t.Helper()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(patience):
			require.FailNow(t, "Wait does not return")
		}
	}
	waits := func(done <-chan error) {
		t.Helper()
		select {
		case err := <-done:
			require.FailNow(t, "Wait returned", "%v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}

	// a Wake is kept for the next Wait, once
	d.cq.Wake()
	d.cq.Wake()
	returns(wait())
	done := wait()
	waits(done)
	// and ends the current one
	d.cq.Wake()
	returns(done)
	done = wait()
	waits(done)
	// which an event ends too, if it was asked for
	a.send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.FlagSignaled})
	d.until(t, func(got []verbs.WC) bool { return len(got) > 0 })
	waits(done)
	require.NoError(t, d.cq.Arm())
	a.send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.FlagSignaled})
	returns(done)
	d.completions(t, 1)
	a.completions(t, 2)

	// an event and a Wake at once: both are used up in the end, and a Wait
	// without either waits
	require.NoError(t, d.cq.Arm())
	a.send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.FlagSignaled})
	d.until(t, func(got []verbs.WC) bool { return len(got) > 0 })
	d.cq.Wake()
	returns(wait())
	returns(wait())
	done = wait()
	waits(done)
	d.cq.Wake()
	returns(done)
	a.completions(t, 1)
}

// Wake races Wait a thousand times; no Wait may sleep through.
func TestDeviceWakeRace(t *testing.T) {
	d, _ := connected(t)
	const n = 1000
	turn, done := make(chan struct{}), make(chan error)
	go func() {
		for range n {
			turn <- struct{}{}
			err := d.cq.Wait()
			done <- err
		}
	}()
	for range n {
		<-turn
		d.cq.Wake()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(patience):
			require.FailNow(t, "a Wake was lost")
		}
	}
}

func TestDeviceDataPathAllocatesNothing(t *testing.T) {
	d, a := connected(t)
	send := []verbs.SendWR{{Opcode: verbs.OpSend, Flags: verbs.FlagSignaled, NumSGE: 1, SGE: d.sge(32<<10, 8)}}
	recv := []verbs.RecvWR{{SGE: verbs.SGE{Addr: a.mr.Addr(), Length: receiveSize, LKey: a.mr.LKey()}}}
	wc := make([]verbs.WC, 4)
	fail := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	poll := func(e *end) {
		for {
			fail(e.cq.Arm())
			if n, err := e.cq.Poll(wc); n > 0 || err != nil {
				fail(err)
				return
			}
			fail(e.cq.Wait())
		}
	}
	require.Zero(t, testing.AllocsPerRun(50, func() {
		_, err := d.qp.PostSend(send)
		fail(err)
		poll(a)
		_, err = a.qp.PostRecv(recv)
		fail(err)
		poll(d)
		d.cq.Wake()
		fail(d.cq.Wait())
	}))
}

func TestDeviceObjectsOfAnotherKind(t *testing.T) {
	p, _ := needDevice(t)
	noLeaks(t)
	e := resolve(t, p, cm.Addr{AddrPort: nobody(t).AddrPort})
	_, err := e.id.CreateQP(nil, nil, verbs.QPAttr{SendDepth: 1, RecvDepth: 1})
	require.ErrorIs(t, err, syscall.EINVAL)
	e.tear(t)
}

func TestDeviceRefusals(t *testing.T) {
	p, _ := needDevice(t)
	noLeaks(t)
	e := resolve(t, p, nobody(t))
	dev, err := e.id.Device()
	require.NoError(t, err)
	var ce *Error

	_, err = dev.NewCQ(1 << 30)
	require.ErrorAs(t, err, &ce)
	require.Equal(t, "ibv_create_cq", ce.Call)
	require.NotZero(t, ce.Code)
	t.Log(err)

	pd, err := dev.AllocPD()
	require.NoError(t, err)
	_, err = pd.RegisterMemory(0, verbs.LocalWrite)
	require.ErrorIs(t, err, syscall.EINVAL)
	_, err = pd.RegisterMemory(1<<46, verbs.LocalWrite)
	require.ErrorIs(t, err, syscall.ENOMEM)
	cq, err := dev.NewCQ(16)
	require.NoError(t, err)
	_, err = e.id.CreateQP(pd, cq, verbs.QPAttr{SendDepth: 1 << 30, RecvDepth: 1})
	require.ErrorAs(t, err, &ce)
	t.Log(err)
	// inline data beyond all devices is not a reason to fail
	qp, err := e.id.CreateQP(pd, cq, verbs.QPAttr{SendDepth: 4, RecvDepth: 4, MaxInline: 1 << 20})
	require.NoError(t, err)
	t.Logf("inline %d", qp.MaxInline())
	require.NoError(t, qp.Destroy())
	require.NoError(t, cq.Destroy())
	require.NoError(t, pd.Dealloc())
	e.tear(t)
}
