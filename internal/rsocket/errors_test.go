package rsocket

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// What the failure of a send says depends on what carries it: siw completes a Write
// whose TCP connection is gone with an error of its own queue pair.
func TestSendError(t *testing.T) {
	for _, c := range []struct {
		immediate bool // not iWARP
		status    verbs.WCStatus
		want      syscall.Errno
	}{
		{false, verbs.WCLocQPOpErr, syscall.ECONNRESET},
		{true, verbs.WCLocQPOpErr, syscall.EIO},
		{false, verbs.WCLocProtErr, syscall.EIO},
		{false, verbs.WCRemAccessErr, syscall.ECONNRESET},
		{true, verbs.WCRetryExcErr, syscall.ETIMEDOUT},
		{true, verbs.WCRNRRetryExcErr, syscall.ETIMEDOUT},
	} {
		s := &Stream{immediate: c.immediate}
		require.ErrorIs(t, s.sendError(c.status), c.want, "%v", c)
	}
}

// The end of a connection has the errno of its cause, and says no errno twice.
func TestLostError(t *testing.T) {
	for _, c := range []struct {
		cause   error
		want    syscall.Errno
		says    string
		timeout bool
	}{
		{nil, syscall.ECONNRESET, syscall.ECONNRESET.Error(), false},
		{errors.New("who knows"), syscall.ECONNRESET, syscall.ECONNRESET.Error() + ": who knows", false},
		{fmt.Errorf("it broke: %w", syscall.ECONNRESET), syscall.ECONNRESET, "it broke: " + syscall.ECONNRESET.Error(), false},
		{fmt.Errorf("it broke: %w", syscall.ETIMEDOUT), syscall.ETIMEDOUT, "it broke: " + syscall.ETIMEDOUT.Error(), true},
		{fmt.Errorf("a violation: %w", syscall.EPROTO), syscall.EPROTO, "a violation: " + syscall.EPROTO.Error(), false},
	} {
		err := lostError(c.cause)
		require.EqualError(t, err, c.says)
		require.ErrorIs(t, err, c.want)
		require.Equal(t, c.timeout, err.(*ConnError).Timeout())
		if c.cause != nil {
			require.ErrorIs(t, err, c.cause)
		}
	}
}
