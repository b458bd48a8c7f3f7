package rdmanet

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/cm/scripted"
)

// A context that is over before the dial gives what one that ends during it gives.
func TestContextOver(t *testing.T) {
	cause := errors.New("shutting down")
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	past, cancel2 := context.WithDeadlineCause(t.Context(), time.Now().Add(-time.Second), cause)
	defer cancel2()
	deaf := func(context.Context, string, string) (net.Conn, error) { select {} }
	for _, p := range []Provider{Auto, Verbs, Software} {
		for _, d := range []Dialer{{Provider: p}, {Provider: p, Fallback: deaf}} {
			_, err := d.DialContext(cancelled, "rdma", "127.0.0.1:9")
			requireEnded(t, err, context.Canceled, "operation was canceled: shutting down")
			require.ErrorIs(t, err, cause)
			_, err = d.DialContext(past, "rdma", "name.test:9")
			requireEnded(t, err, context.DeadlineExceeded, "i/o timeout: shutting down")
			require.ErrorIs(t, err, cause)
			d.Timeout = -1
			_, err = d.Dial("rdma", "127.0.0.1:9")
			requireEnded(t, err, context.DeadlineExceeded, "i/o timeout")
			d.Timeout, d.Deadline = 0, time.Now().Add(-time.Hour)
			_, err = d.Dial("ib", "127.0.0.1:9")
			requireEnded(t, err, context.DeadlineExceeded, "i/o timeout")
		}
	}
}

func requireEnded(t *testing.T, err, want error, text string) {
	t.Helper()
	require.ErrorIs(t, err, want)
	var se *StageError
	require.ErrorAs(t, err, &se)
	require.Equal(t, StageOpen, se.Stage)
	require.Equal(t, want == context.DeadlineExceeded, requireOpError(t, err, "dial").Timeout())
	require.ErrorContains(t, err, "open: "+text)
}

// A dial and a Listen do not wait for a provider that is being opened longer than
// their contexts last, and one provider's opening holds up no other.
func TestSlowOpen(t *testing.T) {
	withOpening(t, Verbs, &opening{done: make(chan struct{})}) // never done
	cause := errors.New("enough")
	for _, canceled := range []bool{true, false} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, cause)
		want := context.DeadlineExceeded
		if canceled {
			want = context.Canceled
			var stop context.CancelCauseFunc
			ctx, stop = context.WithCancelCause(t.Context())
			time.AfterFunc(20*time.Millisecond, func() { stop(cause) })
		}
		_, err := (&Dialer{Provider: Verbs}).DialContext(ctx, "rdma", "127.0.0.1:9")
		requireEnded(t, err, want, "")
		require.ErrorIs(t, err, cause)
		for _, p := range []Provider{Verbs, Auto} {
			_, err = (&ListenConfig{Provider: p}).Listen(ctx, "rdma", "127.0.0.1:0")
			require.ErrorIs(t, err, want)
			require.ErrorIs(t, err, cause)
			var se *StageError
			require.ErrorAs(t, err, &se)
		}
		cancel()
	}
	l, err := (&ListenConfig{Provider: Software}).Listen(t.Context(), "rdma", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go echoServer(l)
	for _, p := range []Provider{Software, Auto} {
		c, err := (&Dialer{Provider: p, Timeout: 30 * time.Second}).Dial("rdma", l.Addr().String())
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
}

// A provider is opened once for all who want it at the same time, and again a second
// after that has failed.
func TestOpeningOnce(t *testing.T) {
	const p = Provider(99)
	withOpening(t, p, nil)
	synctest.Test(t, func(t *testing.T) {
		var opened atomic.Int32
		open := func(Provider) (cm.Provider, error) {
			opened.Add(1)
			time.Sleep(10 * time.Second)
			return nil, errors.New("no device")
		}
		first := openingOf(p, open)
		time.Sleep(5 * time.Second)
		require.Same(t, first, openingOf(p, open))
		<-first.done
		require.ErrorIs(t, first.err, errUnavailable)
		require.Same(t, first, openingOf(p, open))
		time.Sleep(openAgain)
		second := openingOf(p, open)
		require.NotSame(t, first, second)
		<-second.done
		require.Equal(t, int32(2), opened.Load())
	})
}

// TestOpenedInBubble: a provider that was first asked for in a bubble of
// testing/synctest serves those outside.
func TestOpenedInBubble(t *testing.T) {
	const p = Provider(99)
	withOpening(t, p, nil)
	open := func(Provider) (cm.Provider, error) { return scripted.NewProvider(), nil }
	var first *opening
	synctest.Test(t, func(t *testing.T) {
		first = openingOf(p, open)
		synctest.Wait()
	})
	require.Same(t, first, openingOf(p, open))
	m, err := manager(t.Context(), p)
	require.NoError(t, err)
	require.Same(t, first.m, m)
}
