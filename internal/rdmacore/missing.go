//go:build linux && cgo

package rdmacore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// openNeeds is how many descriptors librdmacm and libibverbs may need at a time to find and
// open the devices of a host, generously: with 7 left they have been seen to find none.
const openNeeds = 16

// found puts in place of err, which says that there is no device, that descriptors
// have run out, if that may be why: the libraries take any failure to open a device,
// or to look for one, for none.
func found(err error, root string) error {
	devices, derr := os.ReadDir(filepath.Join(root, "sys/class/infiniband"))
	if errors.Is(derr, fs.ErrNotExist) || derr == nil && len(devices) == 0 {
		return err
	}
	var fds []int
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd) // nothing depends on it
		}
	}()
	for range openNeeds {
		fd, serr := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if serr != nil {
			return &Error{Call: "eventfd", Code: int(serr.(syscall.Errno)), Hint: "so an RDMA device cannot be looked for: " + err.Error()}
		}
		fds = append(fds, fd)
	}
	return err
}

// lookError is callError for a call that looks for a device.
func lookError[T ~int32 | ~int](call string, code T) error {
	err := callError(call, code)
	if code == T(syscall.ENODEV) {
		return found(err, "/")
	}
	return err
}

// noDevice explains why there is no event channel. librdmacm answers ENODEV
// where libibverbs shows it no device, and otherwise with what opening
// /dev/infiniband/rdma_cm has answered; the rest is read from the file systems
// under root.
func noDevice(err error, root string) error {
	at := func(pattern string) bool {
		found, _ := filepath.Glob(filepath.Join(root, pattern))
		return len(found) > 0
	}
	u := &UnavailableError{Err: err}
	switch errno(err) {
	case syscall.ENODEV:
		switch {
		case !at("sys/class/infiniband/*"):
			u.Reason = "this machine has no RDMA device"
			u.Advice = "an adapter needs its driver; a software device is made by " +
				"'modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0'"
		case !at("sys/class/infiniband_verbs/uverbs*"):
			u.Reason = "the kernel has an RDMA device, but does not offer it to programs"
			u.Advice = "modprobe ib_uverbs"
		case !at("dev/infiniband/uverbs*"):
			u.Reason = "the kernel has an RDMA device, but /dev/infiniband has no node for it"
			u.Advice = "in a container: pass /dev/infiniband into it"
		default:
			u.Reason = "libibverbs has no driver for the RDMA device of this machine"
			u.Advice = "install package ibverbs-providers (Debian, Ubuntu) or libibverbs (Fedora, RHEL, SUSE)"
		}
	case syscall.ENOENT, syscall.ENXIO:
		if at("sys/class/misc/rdma_cm") {
			u.Reason = "there is no /dev/infiniband/rdma_cm"
			u.Advice = "the kernel's part is loaded; in a container: pass /dev/infiniband/rdma_cm into it"
		} else {
			u.Reason = "the kernel's RDMA connection manager is not there"
			u.Advice = "modprobe rdma_ucm"
		}
	case syscall.EACCES, syscall.EPERM:
		u.Reason = "no permission to open /dev/infiniband/rdma_cm"
		if fi, e := os.Stat(filepath.Join(root, "dev/infiniband/rdma_cm")); e == nil {
			u.Reason += ", whose mode is " + fi.Mode().Perm().String()
		}
		u.Advice = "the user must be allowed to read and write it; in a container the device has to be allowed as well as visible"
	default:
		u.Reason = err.Error()
	}
	return u
}
