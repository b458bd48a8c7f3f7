package cm_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/cm/scripted"
)

func TestErrorTextOfTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := func(ctx context.Context) error {
			p := scripted.NewProvider(scripted.Script{scripted.Connect: {scripted.Silent()}})
			_, err := cm.NewManager(p).Dial(ctx, request(p))
			requireClean(t, p)
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.EqualError(t, dial(ctx), "connect: i/o timeout (does 192.0.2.7 have an RDMA device?)")

		ctx, cancelCause := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancelCause(nil) })
		require.EqualError(t, dial(ctx), "connect: operation was canceled")

		ctx, cancelCause = context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancelCause(errors.New("shutting down")) })
		require.EqualError(t, dial(ctx), "connect: operation was canceled: shutting down")
	})
}

// EAGAIN of a call is exhaustion, not a time-out, though syscall says so.
func TestTimeoutAndTemporary(t *testing.T) {
	for errno, want := range map[syscall.Errno][2]bool{
		syscall.ETIMEDOUT: {true, true}, syscall.EAGAIN: {false, true}, syscall.ENOMEM: {false, true},
		syscall.EMFILE: {false, true}, syscall.ENFILE: {false, true}, syscall.ENOBUFS: {false, true},
		syscall.ENODEV: {false, false}, syscall.ECONNREFUSED: {false, false}, syscall.EHOSTUNREACH: {false, false},
	} {
		e := &cm.StageError{Stage: cm.StageConnect, Errno: errno, Err: errno}
		require.Equal(t, want, [2]bool{e.Timeout(), e.Temporary()}, errno.Error())
	}
	// EPERM is exhaustion where memory is registered, and a refusal elsewhere.
	for call, temporary := range map[string]bool{"rdma_create_qp": true, "rdma_connect": false, "rdma_bind_addr": false} {
		e := &cm.StageError{Stage: cm.StageConnect, Call: call, Errno: syscall.EPERM, Err: syscall.EPERM}
		require.Equal(t, temporary, e.Temporary(), call)
	}
	plain := &cm.StageError{Stage: cm.StageConnect, Err: errors.New("something")}
	require.False(t, plain.Timeout())
	require.False(t, plain.Temporary())
}

func TestNames(t *testing.T) {
	require.Equal(t, "resolve route", cm.StageRoute.String())
	require.Equal(t, "stage 0", cm.Stage(0).String())
	require.Equal(t, "stage 99", cm.Stage(99).String())
	for s := cm.StageOpen; s <= cm.StageAccept; s++ {
		require.NotContains(t, s.String(), "stage")
	}
	for e := cm.None; e <= cm.UnknownEvent; e++ {
		require.NotEmpty(t, e.String())
	}
	require.Equal(t, "event 77", cm.EventType(77).String())
}
