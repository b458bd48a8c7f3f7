package rsocket

import (
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/simqp"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// TestDeadlinePast checks that an operation whose deadline has passed transfers
// nothing, also where it could at once.
func TestDeadlinePast(t *testing.T) {
	l := newLab(t, simqp.Options{})
	a, b := l.pair(Config{})
	_, err := b.Write([]byte("here"))
	require.NoError(t, err)
	require.NoError(t, a.SetDeadline(time.Now().Add(-time.Second)))
	p := make([]byte, 4)
	n, err := a.Read(p)
	require.Zero(t, n)
	require.Equal(t, os.ErrDeadlineExceeded, err)
	n, err = a.Write(p)
	require.Zero(t, n)
	require.Equal(t, os.ErrDeadlineExceeded, err)
	_, err = a.Write(nil)
	require.Equal(t, os.ErrDeadlineExceeded, err)
	n, err = a.Read(nil)
	require.Zero(t, n)
	require.NoError(t, err, "as package net has it")

	require.NoError(t, a.SetDeadline(time.Time{}))
	n, err = a.Read(p)
	require.NoError(t, err)
	require.Equal(t, "here", string(p[:n]))
}

// TestDeadlineExact checks that operations end when their deadlines pass, not
// before and not after, whichever of them drives, and however the deadlines
// change while they wait.
func TestDeadlineExact(t *testing.T) {
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, simqp.Options{Transport: tr})
			a, _ := l.pair(Config{ReadBuffer: 16 << 10})
			start := time.Now()
			at := func(s time.Duration) time.Time { return start.Add(s * time.Second) }
			require.NoError(t, a.SetReadDeadline(at(100)))
			require.NoError(t, a.SetWriteDeadline(at(50)))
			var wg sync.WaitGroup
			wg.Go(func() {
				_, err := a.Read(make([]byte, 1))
				require.Equal(t, os.ErrDeadlineExceeded, err)
				require.Equal(t, 20*time.Second, time.Since(start))
			})
			wg.Go(func() {
				n, err := a.Write(make([]byte, 1<<20))
				require.Equal(t, os.ErrDeadlineExceeded, err)
				require.Equal(t, 16<<10, n)
				require.Equal(t, 70*time.Second, time.Since(start))
			})
			time.Sleep(10 * time.Second)
			require.NoError(t, a.SetReadDeadline(at(20)))
			time.Sleep(30 * time.Second)
			require.NoError(t, a.SetWriteDeadline(at(70)))
			wg.Wait()
			require.NoError(t, a.SetReadDeadline(time.Time{}))
			wg.Go(func() {
				_, err := a.Read(make([]byte, 1))
				require.Equal(t, os.ErrDeadlineExceeded, err)
			})
			time.Sleep(time.Hour)
			require.NoError(t, a.SetReadDeadline(time.Now()))
			wg.Wait()
		})
	})
}
