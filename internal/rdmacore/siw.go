//go:build linux && cgo

package rdmacore

// #include "shim.h"
import "C"

// Linux's siw hands every queue to user space at an offset of its own, the lowest
// one where it fits, and libsiw takes one of them, 0x90000, to mean that there is
// none: it undoes what the kernel has made, and leaves errno as it was. A process
// with five pairs of queues or more meets that offset now and then.
//
// So the first thing that is made on a siw is a completion queue that nobody uses,
// and that is so long that it covers this offset from below.
const (
	siwVendor     = 0x626d74 // vendor_id of every siw
	siwGuardDepth = 32768    // of 32 bytes each: more than 0x90000 in all
)

// guardSiw makes that queue, if the device is a siw. Where it cannot be made the
// device is as good as it would have been without.
func (d *device) guardSiw(vendor C.uint32_t) {
	if vendor == siwVendor {
		d.guard = C.rn_guard_cq(d.c, siwGuardDepth)
	}
}

func (d *device) unguard() {
	if d.guard != nil {
		C.rn_destroy_guard_cq(d.guard)
		d.guard = nil
	}
}
