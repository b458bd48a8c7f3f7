package rdmacore

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErrorText(t *testing.T) {
	for _, test := range []struct {
		err  *Error
		want string
	}{
		{&Error{Call: "rdma_resolve_addr", Code: int(syscall.ENETUNREACH)}, "rdma_resolve_addr: " + syscall.ENETUNREACH.Error()},
		{&Error{Call: "ibv_reg_mr", Code: int(syscall.ENOMEM), Hint: "try less"}, "ibv_reg_mr: " + syscall.ENOMEM.Error() + " (try less)"},
		{&Error{Call: "rdma_getaddrinfo", Code: -2}, "rdma_getaddrinfo: error -2 (EAI_NONAME: not a numeric address)"},
		{&Error{Call: "rdma_getaddrinfo", Code: -99}, "rdma_getaddrinfo: error -99"},
		{&Error{Call: "rdma_resolve_addrinfo", Code: -1}, "rdma_resolve_addrinfo: error -1 (EAI_BADFLAGS, or librdmacm lost the reason)"},
		{&Error{Call: "ibv_create_cq"}, "ibv_create_cq: failed without saying why"},
	} {
		require.EqualError(t, test.err, test.want)
	}
}

func TestErrorHoldsErrno(t *testing.T) {
	var e syscall.Errno
	require.ErrorAs(t, &Error{Call: "x", Code: int(syscall.ENETUNREACH)}, &e)
	require.Equal(t, syscall.ENETUNREACH, e)
	require.ErrorIs(t, &Error{Call: "x", Code: int(syscall.ENETUNREACH)}, syscall.ENETUNREACH)
	// a code of getaddrinfo is not an errno
	require.False(t, errors.As(&Error{Call: "x", Code: -3}, &e))
	require.False(t, errors.As(&Error{Call: "x"}, &e))
	require.ErrorIs(t, &UnavailableError{Reason: "x", Err: syscall.ENODEV}, syscall.ENODEV)
}
