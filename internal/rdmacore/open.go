//go:build linux && cgo

package rdmacore

// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// The libraries, by the names that their interface has had since 2006.
const (
	rdmacmName  = "librdmacm.so.1"
	ibverbsName = "libibverbs.so.1"
)

// provider makes identifiers on the devices of this machine. There is one for
// the process, since librdmacm too is one for the process.
type provider struct {
	// qpMu is held while an event is read and while the queue pair of an
	// identifier comes or goes: see the package's documentation. qpTurn is
	// taken before it by all but the reader of events, which so waits for one
	// of them at the most, however many there are.
	qpMu, qpTurn sync.Mutex

	mu      sync.Mutex
	channel *channel    // nil while nobody needs one
	live    int         // identifiers that librdmacm has
	idle    *time.Timer // ends the channel, while there is no identifier
	ids     map[uintptr]*identifier
	handles uintptr // the last one given out

	devices deviceTable
}

var shared struct {
	mu     sync.Mutex
	loaded bool
	usable atomic.Bool // a device has been seen
	provider
}

// Open gives the provider of real devices, named "verbs". It opens librdmacm
// and libibverbs, once for the process, and looks whether there is a device.
//
// It fails with an *UnavailableError where a library, a function of one, a
// device, a kernel module or a permission is missing, and may be called again
// when that has changed.
func Open() (cm.Provider, error) {
	if shared.usable.Load() {
		return &shared.provider, nil
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.loaded {
		if err := load(rdmacmName, ibverbsName); err != nil {
			return nil, found(err, "/")
		}
		shared.loaded = true
	}
	var c *C.struct_rn_event_channel
	if code := C.rn_create_channel(&c); code != 0 {
		return nil, found(noDevice(callError("rdma_create_event_channel", code), "/"), "/")
	}
	C.rn_destroy_channel(c)
	shared.usable.Store(true)
	return &shared.provider, nil
}

// load opens the libraries.
func load(rdmacm, ibverbs string) error {
	cm, ib := C.CString(rdmacm), C.CString(ibverbs)
	defer C.free(unsafe.Pointer(cm))
	defer C.free(unsafe.Pointer(ib))
	var text [512]C.char
	switch C.rn_load(cm, ib, &text[0], C.size_t(len(text))) {
	case 0:
		return nil
	case C.RN_LOAD_NO_RDMACM:
		return &UnavailableError{
			Reason: "library " + rdmacm + " was not found: " + C.GoString(&text[0]),
			Advice: "install package librdmacm1 (Debian, Ubuntu; librdmacm1t64 in newer releases) or librdmacm (Fedora, RHEL, SUSE)",
		}
	case C.RN_LOAD_NO_IBVERBS:
		return &UnavailableError{
			Reason: "library " + ibverbs + " was not found: " + C.GoString(&text[0]),
			Advice: "install packages libibverbs1 and ibverbs-providers (Debian, Ubuntu) or libibverbs (Fedora, RHEL, SUSE)",
		}
	}
	return &UnavailableError{
		Reason: rdmacm + " and " + ibverbs + " have no function " + C.GoString(&text[0]),
		Advice: "they are too old: rdma-core of 2020 or later has it",
	}
}

// Name is "verbs".
func (p *provider) Name() string { return "verbs" }

// Devices lists the devices of this machine.
func Devices() ([]verbs.DeviceInfo, error) {
	if _, err := Open(); err != nil {
		return nil, err
	}
	var list **C.struct_rn_context
	var n C.int
	if code := C.rn_list_devices(&list, &n); code != 0 {
		return nil, noDevice(callError("rdma_get_devices", code), "/")
	}
	defer C.rn_release_device(list)
	var infos []verbs.DeviceInfo
	for _, c := range unsafe.Slice(list, n) {
		info, _, err := query(c)
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// callError is the error of a call that has returned code, or nil.
func callError[T ~int32 | ~int](call string, code T) error {
	switch code {
	case 0:
		return nil
	case C.RN_SILENT:
		return &Error{Call: call}
	}
	return &Error{Call: call, Code: int(code)}
}

// errno is what a call's error is about; 0 if unknown.
func errno(err error) syscall.Errno {
	var e syscall.Errno
	errors.As(err, &e)
	return e
}
