package rsocket

import (
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
