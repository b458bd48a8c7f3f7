package rsocket

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/simqp"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// TestMemoryReused checks that a second connection registers nothing, gets
// memory that is clean, and that all goes when nobody has used it for a while.
func TestMemoryReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, simqp.Options{})
		for range 5 {
			a, b := l.open(0, Config{}), l.open(1, Config{})
			for _, e := range []*end{a, b} {
				for _, c := range e.mem.remote.Bytes() {
					require.Zero(t, c)
				}
			}
			connect(t, a, b, 1)
			_, err := a.Write(make([]byte, 1000))
			require.NoError(t, err)
			require.NoError(t, a.Release())
			require.NoError(t, b.Release())
			synctest.Wait()
		}
		require.Equal(t, 2, l.dev[0].Registrations())
		pds, mrs, cqs, qps := l.dev[0].Live()
		require.Equal(t, []int{1, 2, 0, 0}, []int{pds, mrs, cqs, qps})
		time.Sleep(idleTime + time.Millisecond)
		synctest.Wait()
		pds, mrs, _, _ = l.dev[0].Live()
		require.Zero(t, pds+mrs)
		memories.Lock()
		defer memories.Unlock()
		require.NotContains(t, memories.of, verbs.Device(l.dev[0]))
	})
}

// TestMemoryIsolated checks that two connections share no protection domain.
func TestMemoryIsolated(t *testing.T) {
	l := newLab(t, simqp.Options{})
	a1, _ := l.pair(Config{})
	a2, _ := l.pair(Config{})
	require.NotSame(t, a1.mem.pd, a2.mem.pd)
}

// TestMemoryShort checks that memory that lies idle is given up when the limit on
// locked memory is reached, and that a failure leaves nothing.
func TestMemoryShort(t *testing.T) {
	l := newLab(t, simqp.Options{})
	noMemory := errors.New("cannot allocate memory")
	dev := l.dev[0]
	limit, used := 3<<20, func() int {
		_, mrs, _, _ := dev.Live()
		return mrs
	}
	dev.FailRegister = func(size int) error {
		if size > limit || used() >= 2 {
			return noMemory
		}
		return nil
	}
	small := l.open(0, Config{ReadBuffer: 64 << 10})
	require.NoError(t, small.Release())
	require.Equal(t, 2, used(), "kept")
	large := l.open(0, Config{ReadBuffer: 128 << 10})
	_, err := Open(MemoryOf(dev), nil, Config{})
	require.ErrorIs(t, err, noMemory)
	require.ErrorContains(t, err, "register")
	require.NoError(t, large.Release())
}

// TestOpenFails checks that whatever fails in Open leaves nothing.
func TestOpenFails(t *testing.T) {
	l := newLab(t, simqp.Options{})
	no := errors.New("no")
	_, err := Open(MemoryOf(l.dev[0]), func(verbs.PD, verbs.CQ, verbs.QPAttr) (verbs.QP, error) { return nil, no }, Config{})
	require.ErrorIs(t, err, no)
	_, _, cqs, qps := l.dev[0].Live()
	require.Zero(t, cqs+qps)

	l.dev[1].MaxQPWR = 40
	_, err = Open(MemoryOf(l.dev[1]), nil, Config{})
	require.ErrorContains(t, err, "takes 40 work requests")
	l.dev[1].MaxQPWR = 100
	e := l.open(1, Config{})
	require.Equal(t, 100, e.cfg.SendDepth)
	require.Equal(t, 100-spareReceives, e.cfg.RecvDepth)
	require.NoError(t, e.Release())
}

// TestReleaseEarly checks that a stream can be given up at each stage.
func TestReleaseEarly(t *testing.T) {
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		l := newLab(t, simqp.Options{Transport: tr})
		a := l.open(0, Config{})
		require.NoError(t, a.Close(time.Second))
		require.NoError(t, a.Release())
		require.NoError(t, a.Release())
		a.Disconnected(nil)

		a, b := l.open(0, Config{}), l.open(1, Config{})
		h, err := ParseHeader(a.PrivateData(), false)
		require.NoError(t, err)
		b.Start(h, 1)
		require.NoError(t, b.Close(time.Second), "it was never established")
		require.NoError(t, b.Release())
		require.NoError(t, a.Release())
		b.Established()
	})
}
