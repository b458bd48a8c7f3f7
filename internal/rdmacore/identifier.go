//go:build linux && cgo

package rdmacore

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// maxIWARPPrivateData is how much private data goes with a connection over
// iWARP: Linux's soft-iWARP counts what it takes with 8 bits, 4 bytes of its own
// included, and with more the call succeeds and the peer fails.
const maxIWARPPrivateData = 251

// identifier is an rdma_cm_id. See cm.ID for who may call what when.
type identifier struct {
	cm.Mailbox
	blocked interruptible

	p      *provider
	handle uintptr // its number, and the context of c
	c      *C.struct_rn_cm_id
	qp     *queuePair // nil before CreateQP and after the queue pair's Destroy

	// dev is the device, once it has been asked for, and removed that an
	// event has said that it is gone. The reader of events looks at them.
	dev     atomic.Pointer[device]
	removed atomic.Bool
	// connecting is set from Connect or Accept until an event has told how
	// that has ended.
	connecting atomic.Bool
}

var _ cm.ID = (*identifier)(nil)

func newIdentifier(p *provider, handle uintptr, c *C.struct_rn_cm_id) *identifier {
	return &identifier{p: p, handle: handle, c: c}
}

// NewID makes an identifier for reliable connections.
func (p *provider) NewID() (cm.ID, error) {
	handle := p.newHandle()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle != nil {
		p.idle.Stop()
		p.idle = nil
	}
	if p.channel != nil && p.live == 0 && p.channel.failed.Load() {
		p.channel.file.Close()
		p.channel = nil
	}
	if p.channel == nil {
		ch, err := newChannel(p)
		if err != nil {
			return nil, err
		}
		p.channel = ch
	}
	p.live++
	var c *C.struct_rn_cm_id
	if code := C.rn_create_id(p.channel.c, C.uintptr_t(handle), &c); code != 0 {
		p.forget()
		return nil, callError("rdma_create_id", code)
	}
	id := newIdentifier(p, handle, c)
	if p.ids == nil {
		p.ids = make(map[uintptr]*identifier)
	}
	p.ids[handle] = id
	return id, nil
}

// forget counts an identifier out, and lets the channel end with the last. p.mu is
// held.
func (p *provider) forget() {
	p.live--
	if p.live == 0 {
		p.idle = time.AfterFunc(channelGrace, p.endChannel)
	}
}

// The sequence, in its order.

func (id *identifier) Bind(local cm.Addr, v6only bool) error {
	b, err := sockaddr(local)
	if err != nil {
		return err
	}
	var ss C.struct_sockaddr_storage
	fill(&ss, b)
	return lookError("rdma_bind_addr", C.rn_bind(id.c, unsafe.Pointer(&ss), cBool(v6only)))
}

func (id *identifier) ResolveAddr(src, dst cm.Addr, timeoutMS int) error {
	var cdst, csrc C.struct_sockaddr_storage
	b, err := sockaddr(dst)
	if err != nil {
		return err
	}
	fill(&cdst, b)
	var from unsafe.Pointer
	if !src.IsZero() {
		if b, err = sockaddr(src); err != nil {
			return err
		}
		fill(&csrc, b)
		from = unsafe.Pointer(&csrc)
	}
	return callError("rdma_resolve_addr",
		C.rn_resolve_addr(id.c, from, unsafe.Pointer(&cdst), C.int(timeoutMS)))
}

// ResolveRoute can wait for a daemon, ibacm, where that runs.
func (id *identifier) ResolveRoute(timeoutMS int) error {
	return callError("rdma_resolve_route", id.blocked.here(func() int {
		return int(C.rn_resolve_route(id.c, C.int(timeoutMS)))
	}))
}

func (id *identifier) SetRoute(path []byte) error {
	if len(path) == 0 {
		return &Error{Call: "rdma_set_option", Code: int(syscall.EINVAL)}
	}
	return callError("rdma_set_option",
		C.rn_set_path(id.c, unsafe.Pointer(&path[0]), C.size_t(len(path))))
}

// Connect asks for at most as many responder resources and as much initiator
// depth as the device has.
//
// An iWARP device connects by TCP inside the call, which takes minutes if nobody
// answers; so there, and only there, the call is made on a thread of its own.
func (id *identifier) Connect(p cm.ConnParam) error {
	const call = "rdma_connect"
	d, err := id.device()
	if err != nil {
		return err
	}
	param, err := id.param(call, d, p)
	if err != nil {
		return err
	}
	run := id.blocked.here
	if d.info.Transport == verbs.IWARP {
		run = id.blocked.apart
	}
	id.connecting.Store(true)
	code := run(func() int { return int(C.rn_connect(id.c, param)) })
	if code != 0 {
		id.connecting.Store(false)
	}
	return callError(call, code)
}

func (id *identifier) Listen(backlog int) error {
	return lookError("rdma_listen", C.rn_listen(id.c, C.int(backlog)))
}

// Accept grants at most as many responder resources and as much initiator depth
// as the device has.
func (id *identifier) Accept(p cm.ConnParam) error {
	const call = "rdma_accept"
	d, err := id.device()
	if err != nil {
		return err
	}
	param, err := id.param(call, d, p)
	if err != nil {
		return err
	}
	id.connecting.Store(true)
	code := id.blocked.here(func() int { return int(C.rn_accept(id.c, param)) })
	if code != 0 {
		id.connecting.Store(false)
	}
	return callError(call, code)
}

func (id *identifier) Reject(privateData []byte) error {
	const call = "rdma_reject"
	if err := id.checkPrivateData(call, privateData); err != nil {
		return err
	}
	return callError(call,
		C.rn_reject(id.c, unsafe.Pointer(unsafe.SliceData(privateData)), C.uint8_t(len(privateData))))
}

func (id *identifier) Disconnect() error {
	return callError("rdma_disconnect", id.blocked.here(func() int {
		return int(C.rn_disconnect(id.c))
	}))
}

// happened notes what an event says about the state of the connection.
func (id *identifier) happened(t cm.EventType) {
	switch t {
	case cm.Established, cm.Rejected, cm.Unreachable, cm.ConnectError, cm.Disconnected:
		id.connecting.Store(false)
	}
}

func (id *identifier) Interrupt() { id.blocked.interrupt() }

// Destroy destroys the identifier. Its queue pair must be gone: otherwise Destroy
// does nothing and fails with EBUSY.
func (id *identifier) Destroy() error {
	const call = "rdma_destroy_id"
	if id.qp != nil {
		return &Error{Call: call, Code: int(syscall.EBUSY), Hint: "its queue pair still exists"}
	}
	var errs []error
	for _, request := range id.Mailbox.Close() {
		errs = append(errs, request.Destroy())
	}
	id.p.mu.Lock()
	delete(id.p.ids, id.handle)
	id.p.mu.Unlock()

	code := id.unmake(func() int { return int(C.rn_destroy_id(id.c)) })
	id.c = nil

	id.p.mu.Lock()
	id.p.forget()
	id.p.mu.Unlock()
	return errors.Join(append(errs, callError(call, code))...)
}

// unmake makes a call that destroys, which is not to be interrupted. On a thread
// of its own where the kernel may wait: it does until it knows how the set-up of
// an iWARP connection has ended.
func (id *identifier) unmake(call func() int) int {
	if d := id.dev.Load(); d != nil && d.info.Transport == verbs.IWARP && id.connecting.Load() {
		var alone interruptible
		return alone.apart(call)
	}
	return call()
}

// What an identifier knows.

func (id *identifier) Device() (verbs.Device, error) {
	d, err := id.device()
	if err != nil {
		return nil, err
	}
	return d, nil
}

// device is what the connection manager has found. It can find none: on a
// listener on all addresses, for an address that only another kind of interface
// has, or where librdmacm cannot tell which device the kernel means.
func (id *identifier) device() (*device, error) {
	if d := id.dev.Load(); d != nil {
		return d, nil
	}
	if id.c.verbs == nil {
		return nil, found(&Error{Call: "rdma_cm_id", Code: int(syscall.ENODEV), Hint: "no RDMA device stands behind the address"}, "/")
	}
	d, err := id.p.devices.find(id.c.verbs)
	if err != nil {
		return nil, err
	}
	id.dev.Store(d)
	if id.removed.Load() { // the event came before the device was known
		id.p.devices.removed(d)
	}
	return d, nil
}

// deviceRemoved is called by the reader of events.
func (id *identifier) deviceRemoved() {
	id.removed.Store(true)
	if d := id.dev.Load(); d != nil {
		id.p.devices.removed(d)
	}
}

func (id *identifier) addrs() (a C.struct_rn_addrs) {
	if id.c != nil {
		C.rn_get_addrs(id.c, &a)
	}
	return a
}

func (id *identifier) Port() verbs.PortInfo {
	a := id.addrs()
	port := verbs.PortInfo{Port: uint8(a.port_num)}
	gid := *(*[16]byte)(unsafe.Pointer(&a.sgid))
	if gid != [16]byte{} && id.c != nil && id.c.verbs != nil && id.c.verbs.device.transport_type == C.RN_TRANSPORT_IB {
		port.GID = netip.AddrFrom16(gid)
	}
	return port
}

func (id *identifier) LocalAddr() netip.AddrPort {
	a := id.addrs()
	return parseSockaddr(storage(&a.src)).AddrPort
}

func (id *identifier) RemoteAddr() netip.AddrPort {
	a := id.addrs()
	return parseSockaddr(storage(&a.dst)).AddrPort
}

// param is p as C takes it.
func (id *identifier) param(call string, d *device, p cm.ConnParam) (*C.struct_rn_param, error) {
	if err := id.checkPrivateData(call, p.PrivateData); err != nil {
		return nil, err
	}
	param := &C.struct_rn_param{
		responder_resources: C.uint8_t(atMost(p.ResponderResources, d.info.MaxResponderRes)),
		initiator_depth:     C.uint8_t(atMost(p.InitiatorDepth, d.info.MaxInitiatorRead)),
		flow_control:        C.uint8_t(p.FlowControl),
		retry_count:         C.uint8_t(p.RetryCount),
		rnr_retry_count:     C.uint8_t(p.RNRRetryCount),
		private_data_len:    C.uint8_t(len(p.PrivateData)),
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&param.private_data[0])), len(param.private_data)), p.PrivateData)
	return param, nil
}

// atMost is wish, limited to what the device has, as librdmacm counts it: it
// keeps 8 bits of the device's limit.
func atMost(wish uint8, limit int) uint8 { return min(wish, uint8(limit)) }

func (id *identifier) checkPrivateData(call string, data []byte) error {
	most := 255 // what the call can be told
	if v := id.c.verbs; v != nil && v.device.transport_type == C.RN_TRANSPORT_IWARP {
		most = maxIWARPPrivateData
	}
	if len(data) > most {
		return &Error{
			Call: call, Code: int(syscall.EINVAL),
			Hint: fmt.Sprintf("%d bytes of private data; at most %d", len(data), most),
		}
	}
	return nil
}

func storage(ss *C.struct_sockaddr_storage) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(ss)), unsafe.Sizeof(*ss))
}

func fill(ss *C.struct_sockaddr_storage, b []byte) { copy(storage(ss), b) }

func cBool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
