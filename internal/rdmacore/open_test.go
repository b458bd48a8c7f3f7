//go:build linux && cgo

package rdmacore

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// libcName is a library that every machine has on which this test runs.
const libcName = "libc.so.6"

func TestLoadMissingLibrary(t *testing.T) {
	for _, test := range []struct{ rdmacm, ibverbs, missing, pkg string }{
		{libcName, "librdmanet-is-not-there.so.1", "librdmanet-is-not-there.so.1", "libibverbs1"},
		{"librdmanet-is-not-there.so.1", libcName, "librdmanet-is-not-there.so.1", "librdmacm1"},
	} {
		err := load(test.rdmacm, test.ibverbs)
		var u *UnavailableError
		require.ErrorAs(t, err, &u)
		require.ErrorContains(t, err, "library "+test.missing+" was not found")
		require.ErrorContains(t, err, "cannot open shared object file")
		require.ErrorContains(t, err, "install package")
		require.ErrorContains(t, err, test.pkg)
	}
}

func TestLoadMissingSymbol(t *testing.T) {
	err := load(libcName, libcName)
	var u *UnavailableError
	require.ErrorAs(t, err, &u)
	require.ErrorContains(t, err, "no function ibv_query_device")
}

// On a machine that lacks something Open says what; on one that does not it
// succeeds, each time with the same provider.
func TestOpen(t *testing.T) {
	p, err := Open()
	if err != nil {
		var u *UnavailableError
		require.ErrorAs(t, err, &u)
		require.NotEmpty(t, u.Reason)
		t.Log(err)
		_, err = Devices()
		require.ErrorAs(t, err, &u)
		return
	}
	require.Equal(t, "verbs", p.Name())
	again, err := Open()
	require.NoError(t, err)
	require.True(t, p == again)
	devices, err := Devices()
	require.NoError(t, err)
	require.NotEmpty(t, devices)
	t.Logf("%+v", devices)
}

func TestNoDeviceSaysWhatIsMissing(t *testing.T) {
	const (
		device = "sys/class/infiniband/rxe0"
		uverbs = "sys/class/infiniband_verbs/uverbs0"
		node   = "dev/infiniband/uverbs0"
		ucm    = "sys/class/misc/rdma_cm"
		cmNode = "dev/infiniband/rdma_cm"
	)
	for _, test := range []struct {
		errno          syscall.Errno
		files          []string
		reason, advice string
	}{
		{syscall.ENODEV, nil, "no RDMA device", "rdma link add"},
		{syscall.ENODEV, []string{device}, "does not offer it", "modprobe ib_uverbs"},
		{syscall.ENODEV, []string{device, uverbs}, "no node", "container"},
		{syscall.ENODEV, []string{device, uverbs, node}, "no driver", "ibverbs-providers"},
		{syscall.ENOENT, []string{device, uverbs, node}, "connection manager is not there", "modprobe rdma_ucm"},
		{syscall.ENOENT, []string{device, uverbs, node, ucm}, "there is no /dev/infiniband/rdma_cm", "container"},
		{syscall.EACCES, []string{device, uverbs, node, ucm, cmNode}, "no permission to open /dev/infiniband/rdma_cm, whose mode is -rw-------", "container"},
		{syscall.EPERM, []string{device, uverbs, node, ucm}, "no permission", "container"},
		{syscall.EMFILE, nil, "rdma_create_event_channel: too many open files", ""},
	} {
		root := t.TempDir()
		for _, file := range test.files {
			path := filepath.Join(root, file)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, nil, 0o600))
		}
		err := noDevice(&Error{Call: "rdma_create_event_channel", Code: int(test.errno)}, root)
		var u *UnavailableError
		require.ErrorAs(t, err, &u)
		require.Contains(t, u.Reason, test.reason)
		require.Contains(t, u.Advice, test.advice)
		require.ErrorIs(t, err, test.errno)
	}
}
