//go:build linux && cgo

package rdmacore

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// What runs out says so, and leaves nothing behind.
func TestDeviceExhausted(t *testing.T) {
	p, _ := needDevice(t)
	noLeaks(t)
	const enough = 300
	var ends []*end
	var err error
	for len(ends) < enough && err == nil {
		e := resolve(t, p, nobody(t))
		ends = append(ends, e)
		var dev verbs.Device
		dev, err = e.id.Device()
		require.NoError(t, err)
		e.pd, err = dev.AllocPD()
		require.NoError(t, err)
		var cq verbs.CQ
		if cq, err = dev.NewCQ(64); err != nil {
			break
		}
		e.cq = cq
		var qp verbs.QP
		if qp, err = e.id.CreateQP(e.pd, cq, verbs.QPAttr{SendDepth: 16, RecvDepth: 16, MaxInline: 16}); err == nil {
			e.qp = qp
		}
	}
	if err != nil {
		t.Logf("%d pairs, then: %v", len(ends)-1, err)
		require.ErrorIs(t, err, syscall.ENOMEM)
	}
	for _, e := range ends {
		e.tear(t)
	}
	e := resolve(t, p, nobody(t))
	e.build(t)
	e.tear(t)
}

func TestDeviceMemlock(t *testing.T) {
	p, name := needDevice(t)
	if !strings.HasPrefix(name, "siw") {
		t.Skip("only soft-iWARP counts registered memory of root")
	}
	noLeaks(t)
	e := resolve(t, p, nobody(t))
	dev, err := e.id.Device()
	require.NoError(t, err)
	pd, err := dev.AllocPD()
	require.NoError(t, err)

	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 64 << 10, Max: before.Max}))
	defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &before)
	mr, err := pd.RegisterMemory(32<<10, verbs.LocalWrite)
	require.NoError(t, err)
	_, err = pd.RegisterMemory(128<<10, verbs.LocalWrite)
	require.ErrorIs(t, err, syscall.ENOMEM)
	require.ErrorContains(t, err, "RLIMIT_MEMLOCK")
	require.NoError(t, mr.Deregister())
	require.NoError(t, pd.Dealloc())
	e.tear(t)
}
