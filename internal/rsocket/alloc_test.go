package rsocket

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/simqp"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// TestAllocations checks that neither Read nor Write allocates, whether they wait
// or not.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		for _, size := range []int{1, 64, 4096, 200_000} {
			l := newLab(t, simqp.Options{Transport: tr})
			a, b := l.pair(Config{})
			p, q := make([]byte, size), make([]byte, size)
			go func() {
				for {
					if _, err := io.ReadFull(b, q); err != nil {
						return
					}
					if _, err := b.Write(q); err != nil {
						return
					}
				}
			}()
			roundTrip := func() {
				if _, err := a.Write(p); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(a, p); err != nil {
					t.Fatal(err)
				}
			}
			for range 200 {
				roundTrip() // until the simulation has what it needs
			}
			n := testing.AllocsPerRun(200, roundTrip)
			require.Zero(t, n, "%d bytes", size)
			require.NoError(t, b.Release())
		}
	})
}

// TestAllocationsBuffers does the same for WriteBuffers.
func TestAllocationsBuffers(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	l := newLab(t, simqp.Options{})
	a, b := l.pair(Config{})
	go func() { _, _ = io.Copy(io.Discard, struct{ io.Reader }{b}) }()
	p := make([]byte, 100)
	vec := make(net.Buffers, 3)
	var v net.Buffers
	n := testing.AllocsPerRun(200, func() {
		v = append(vec[:0], p, p, p)
		if _, err := a.WriteBuffers(&v); err != nil {
			t.Fatal(err)
		}
	})
	require.Zero(t, n)
	require.NoError(t, b.Release())
}
