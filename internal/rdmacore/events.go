//go:build linux && cgo

package rdmacore

// #include "shim.h"
import "C"

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// A channel is an event channel and the goroutine that reads it. One lives while
// there are identifiers, and for channelGrace behind the last, since a program that
// dials again and again would make one for each dial.
//
// Three things meet here, an event, a table of numbers, and an identifier that
// is destroyed. Why they do not collide:
//
//   - An event names its identifier by a number, the context that the identifier
//     has in C. It is taken from the kernel, copied and acknowledged in one
//     crossing, so nothing outside that crossing holds an event, and
//     rdma_destroy_id, which waits for the acknowledgement of every event that
//     was taken, waits for no more than the rest of a crossing.
//   - Destroy first closes the mailbox, then takes the number out of the table,
//     then calls rdma_destroy_id. A number is not given out again. An event that
//     was copied before and is looked up after that finds nothing, or a mailbox
//     that is closed, and is dropped. An event that is still in the kernel when
//     the identifier is destroyed is dropped there.
//   - The identifier of a connect request is born in such a crossing and gets its
//     number there, so that no event of its own can go to the listener. If the
//     request is dropped, whoever drops it destroys the identifier.
//   - The channel in C is freed by the reader when its descriptor has been
//     closed, which endChannel does some time after rdma_destroy_id has returned
//     for the last identifier.
type channel struct {
	p    *provider
	c    *C.struct_rn_event_channel
	file *os.File        // a dup of the channel's descriptor, which is librdmacm's to close
	raw  syscall.RawConn // of file
	ev   C.struct_rn_event

	failed atomic.Bool // reading has failed: nobody is to begin with it any more
}

const channelGrace = 100 * time.Millisecond

// endChannel ends the channel, if there is still no identifier.
func (p *provider) endChannel() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live == 0 && p.channel != nil {
		p.channel.file.Close()
		p.channel = nil
	}
}

// newChannel makes a channel and starts its reader.
func newChannel(p *provider) (*channel, error) {
	ch := &channel{p: p}
	if code := C.rn_create_channel(&ch.c); code != 0 {
		return nil, found(noDevice(callError("rdma_create_event_channel", code), "/"), "/")
	}
	var err error
	if ch.file, ch.raw, err = pollable(int(ch.c.fd), "rdma event channel"); err != nil {
		C.rn_destroy_channel(ch.c)
		return nil, err
	}
	go ch.read()
	return ch, nil
}

// pollable gives Go's poller a descriptor of its own for what fd refers to,
// which it makes non-blocking.
func pollable(fd int, name string) (*os.File, syscall.RawConn, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	file := os.NewFile(uintptr(dup), name)
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, raw, nil
}

// read hands out events until the channel is closed.
func (ch *channel) read() {
	defer C.rn_destroy_channel(ch.c)
	request := ch.p.newHandle()
	var failed C.int
	for {
		code, ok := ch.next(request)
		if !ok {
			return
		}
		switch code {
		case 0:
			failed = 0
			if ch.ev._type == C.RN_EVENT_CONNECT_REQUEST {
				ch.p.request(&ch.ev, request)
				request = ch.p.newHandle()
			} else {
				ch.p.event(&ch.ev)
			}
		case C.int(syscall.EINTR):
		default:
			// No event could be read: memory has run out, or the
			// kernel has closed the door. Nobody can be told which
			// identifier it was about; so all get to know, once.
			ch.failed.Store(true)
			if code != failed {
				failed = code
				ch.p.broken(code)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// next waits for an event and takes it. It reports false when the channel has
// been closed.
func (ch *channel) next(request uintptr) (code C.int, ok bool) {
	err := ch.raw.Read(func(uintptr) bool {
		ch.p.qpMu.Lock()
		code = C.rn_next_event(ch.c, C.uintptr_t(request), &ch.ev)
		ch.p.qpMu.Unlock()
		return code != C.int(syscall.EAGAIN)
	})
	return code, err == nil
}

var eventTypes = map[C.int]cm.EventType{
	C.RN_EVENT_ADDR_RESOLVED:     cm.AddrResolved,
	C.RN_EVENT_ADDR_ERROR:        cm.AddrError,
	C.RN_EVENT_ROUTE_RESOLVED:    cm.RouteResolved,
	C.RN_EVENT_ROUTE_ERROR:       cm.RouteError,
	C.RN_EVENT_CONNECT_REQUEST:   cm.ConnectRequest,
	C.RN_EVENT_CONNECT_RESPONSE:  cm.ConnectResponse,
	C.RN_EVENT_CONNECT_ERROR:     cm.ConnectError,
	C.RN_EVENT_UNREACHABLE:       cm.Unreachable,
	C.RN_EVENT_REJECTED:          cm.Rejected,
	C.RN_EVENT_ESTABLISHED:       cm.Established,
	C.RN_EVENT_DISCONNECTED:      cm.Disconnected,
	C.RN_EVENT_DEVICE_REMOVAL:    cm.DeviceRemoval,
	C.RN_EVENT_ADDR_CHANGE:       cm.AddrChange,
	C.RN_EVENT_TIMEWAIT_EXIT:     cm.TimewaitExit,
	C.RN_EVENT_ADDRINFO_RESOLVED: cm.AddrInfoResolved,
	C.RN_EVENT_ADDRINFO_ERROR:    cm.AddrInfoError,
}

// goEvent is the event that C has copied out.
func goEvent(c *C.struct_rn_event) cm.Event {
	ev := cm.Event{
		Type:   cm.UnknownEvent,
		Status: int(c.status),
		Param: cm.ConnParam{
			ResponderResources: uint8(c.responder_resources),
			InitiatorDepth:     uint8(c.initiator_depth),
			FlowControl:        uint8(c.flow_control),
			RetryCount:         uint8(c.retry_count),
			RNRRetryCount:      uint8(c.rnr_retry_count),
		},
	}
	if t, ok := eventTypes[c._type]; ok {
		ev.Type = t
	}
	if ev.Type == cm.AddrInfoError && ev.Status > 0 {
		ev.Status = -ev.Status // the one event where librdmacm reports errno as it is
	}
	if n := int(c.private_data_len); n > 0 {
		ev.Param.PrivateData = C.GoBytes(unsafe.Pointer(&c.private_data[0]), C.int(n))
	}
	return ev
}

// event delivers an event to the identifier it is about.
func (p *provider) event(c *C.struct_rn_event) {
	p.mu.Lock()
	id := p.ids[uintptr(c.handle)]
	p.mu.Unlock()
	if id == nil {
		return
	}
	ev := goEvent(c)
	if ev.Type == cm.DeviceRemoval {
		id.deviceRemoved()
	}
	id.happened(ev.Type)
	id.Deliver(ev)
}

// request gives the identifier of a connect request its place, and delivers the
// request to the listener.
func (p *provider) request(c *C.struct_rn_event, handle uintptr) {
	id := newIdentifier(p, handle, c.request)
	p.mu.Lock()
	p.live++
	p.ids[handle] = id
	listener := p.ids[uintptr(c.handle)]
	p.mu.Unlock()

	ev := goEvent(c)
	ev.Request = id
	if listener == nil || !listener.Deliver(ev) {
		// not here: what destroying waits for may need this goroutine
		go id.Destroy()
	}
}

// broken tells every identifier that events may have been lost.
func (p *provider) broken(code C.int) {
	p.mu.Lock()
	ids := make([]*identifier, 0, len(p.ids))
	for _, id := range p.ids {
		ids = append(ids, id)
	}
	p.mu.Unlock()
	for _, id := range ids {
		id.Deliver(cm.Event{Type: cm.UnknownEvent, Status: -int(code)})
	}
}

// newHandle is a number that no identifier has.
func (p *provider) newHandle() uintptr {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		p.handles++
		if _, taken := p.ids[p.handles]; !taken && p.handles != 0 {
			return p.handles
		}
	}
}
