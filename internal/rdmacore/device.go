//go:build linux && cgo

package rdmacore

// #include "shim.h"
import "C"

import (
	"sync"
	"syscall"
	"unsafe"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// device is an ibv_context, which librdmacm opens when it first meets the device
// and shares between all identifiers.
//
// librdmacm closes the context of a device that is gone when the last identifier
// on it is destroyed, without regard to what else was made on it. So a reference
// to it is held (rdma_get_devices(3)) as long as the device is present, and when
// it is gone until the last of our objects is.
type device struct {
	c    *C.struct_rn_context
	hold **C.struct_rn_context
	info verbs.DeviceInfo

	guard *C.struct_rn_cq // of a siw

	mu      sync.Mutex
	objects int  // protection domains and completion queues
	gone    bool // the device was removed
}

var _ verbs.Device = (*device)(nil)

// deviceTable is the devices that are present, as far as identifiers have met
// them.
type deviceTable struct {
	mu sync.Mutex
	by map[*C.struct_rn_context]*device
}

// find is the device of a context that an identifier refers to.
//
// The first time that it sees a context it has librdmacm look at all devices,
// which opens them all.
func (t *deviceTable) find(c *C.struct_rn_context) (*device, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := t.by[c]; d != nil {
		return d, nil
	}
	d := &device{c: c}
	if code := C.rn_hold_device(c, &d.hold); code != 0 {
		return nil, lookError("rdma_get_devices", code)
	}
	var err error
	var vendor C.uint32_t
	if d.info, vendor, err = query(c); err != nil {
		C.rn_release_device(d.hold)
		return nil, err
	}
	d.guardSiw(vendor)
	if t.by == nil {
		t.by = make(map[*C.struct_rn_context]*device)
	}
	t.by[c] = d
	return d, nil
}

// removed takes a device that is gone out of the table.
func (t *deviceTable) removed(d *device) {
	t.mu.Lock()
	if t.by[d.c] == d {
		delete(t.by, d.c)
	}
	t.mu.Unlock()

	d.mu.Lock()
	last := !d.gone && d.objects == 0
	d.gone = true
	d.mu.Unlock()
	if last {
		go d.letGo() // the reader of events has better things to do
	}
}

// letGo gives the device back. The kernel waits for that before it removes a
// device that cannot be taken away from under a program.
func (d *device) letGo() {
	d.unguard()
	C.rn_release_device(d.hold)
	C.rn_sync_devices()
}

// add counts an object that is about to be made.
func (d *device) add(call string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone {
		return &Error{Call: call, Code: int(syscall.ENODEV), Hint: "the device was removed"}
	}
	d.objects++
	return nil
}

// done counts out an object that was destroyed or could not be made.
func (d *device) done() {
	d.mu.Lock()
	d.objects--
	last := d.gone && d.objects == 0
	d.mu.Unlock()
	if last {
		d.letGo()
	}
}

// query is what there is to know about a device, and who has made it.
func query(c *C.struct_rn_context) (info verbs.DeviceInfo, vendor C.uint32_t, err error) {
	var limits C.struct_rn_limits
	if code := C.rn_query_device(c, &limits); code != 0 {
		return info, 0, callError("ibv_query_device", code)
	}
	info = verbs.DeviceInfo{
		Provider:         "verbs",
		Name:             C.GoString(&c.device.name[0]),
		Transport:        transport(c.device.transport_type, limits.link_layer),
		MaxQPWR:          int(limits.max_qp_wr),
		MaxCQE:           int(limits.max_cqe),
		MaxSGE:           int(limits.max_sge),
		MaxResponderRes:  int(limits.max_qp_rd_atom),
		MaxInitiatorRead: int(limits.max_qp_init_rd_atom),
	}
	return info, limits.vendor_id, nil
}

func transport(transportType, linkLayer C.int) verbs.Transport {
	switch {
	case transportType == C.RN_TRANSPORT_IWARP:
		return verbs.IWARP
	case transportType == C.RN_TRANSPORT_IB && linkLayer == C.RN_LINK_LAYER_ETHERNET:
		return verbs.RoCE
	case transportType == C.RN_TRANSPORT_IB:
		return verbs.InfiniBand // drivers from before RoCE do not say
	}
	return verbs.TransportUnknown
}

// Info is what the device is. Its transport is that of its first port; a device
// with ports of both InfiniBand and Ethernet differs in name only.
func (d *device) Info() verbs.DeviceInfo { return d.info }

func (d *device) AllocPD() (verbs.PD, error) {
	const call = "ibv_alloc_pd"
	if err := d.add(call); err != nil {
		return nil, err
	}
	pd := &protectionDomain{dev: d}
	if code := C.rn_alloc_pd(d.c, &pd.c); code != 0 {
		d.done()
		return nil, callError(call, code)
	}
	return pd, nil
}

// protectionDomain is an ibv_pd.
type protectionDomain struct {
	dev *device
	c   *C.struct_rn_pd
}

func (pd *protectionDomain) Device() verbs.Device { return pd.dev }

func (pd *protectionDomain) Dealloc() error {
	if code := C.rn_dealloc_pd(pd.c); code != 0 {
		return callError("ibv_dealloc_pd", code)
	}
	pd.dev.done()
	return nil
}

// memoryRegion is an ibv_mr and the pages behind it.
type memoryRegion struct {
	c   *C.struct_rn_mr
	mem []byte
}

// RegisterMemory maps pages of its own, outside Go's heap: what a device writes
// must not be memory that the garbage collector may give to someone else, nor
// lie on a page with such memory.
func (pd *protectionDomain) RegisterMemory(size int, access verbs.Access) (verbs.MR, error) {
	const call = "ibv_reg_mr"
	mem, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS)
	if err != nil {
		return nil, &Error{Call: "mmap", Code: int(errno(err))}
	}
	var flags C.int
	if access&verbs.LocalWrite != 0 {
		flags |= C.RN_ACCESS_LOCAL_WRITE
	}
	if access&verbs.RemoteWrite != 0 {
		flags |= C.RN_ACCESS_REMOTE_WRITE
	}
	if access&verbs.RemoteRead != 0 {
		flags |= C.RN_ACCESS_REMOTE_READ
	}
	mr := &memoryRegion{mem: mem}
	code := C.rn_reg_mr(pd.c, unsafe.Pointer(&mem[0]), C.size_t(size), flags, &mr.c)
	if code != 0 {
		syscall.Munmap(mem)
		return nil, &Error{Call: call, Code: int(code), Hint: memlockHint(syscall.Errno(code), size)}
	}
	return mr, nil
}

func (mr *memoryRegion) Bytes() []byte { return mr.mem }
func (mr *memoryRegion) Addr() uint64  { return uint64(uintptr(unsafe.Pointer(&mr.mem[0]))) }
func (mr *memoryRegion) LKey() uint32  { return uint32(mr.c.lkey) }
func (mr *memoryRegion) RKey() uint32  { return uint32(mr.c.rkey) }

// Deregister leaves the memory in place if the device does not let go of it.
func (mr *memoryRegion) Deregister() error {
	if code := C.rn_dereg_mr(mr.c); code != 0 {
		return callError("ibv_dereg_mr", code)
	}
	return syscall.Munmap(mr.mem)
}
