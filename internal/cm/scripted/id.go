package scripted

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// A Call is what an identifier was asked to do.
type Call struct {
	Name string
	At   time.Time

	Src, Dst  cm.Addr          // ResolveAddr; Bind: Src
	TimeoutMS int              // ResolveAddr, ResolveRoute
	Query     cm.AddrInfoQuery // ResolveAddrInfo, GetAddrInfo
	Param     cm.ConnParam     // Connect, Accept
	Data      []byte           // SetRoute, Reject
	V6Only    bool             // Bind
	Backlog   int              // Listen
}

func (c Call) String() string { return c.Name }

// ID is a cm.ID that follows a script.
type ID struct {
	p      *Provider
	n      int
	script Script

	box         cm.Mailbox
	interrupted chan struct{} // closed by Interrupt
	once        sync.Once
	busy        atomic.Bool // a method is under way
	destroyed   atomic.Int32
	qps         atomic.Int32

	mu            sync.Mutex
	calls         []Call
	used          map[string]int // how often each call was made
	local, remote netip.AddrPort

	plain net.Conn // of RequestPlain; nil once it is accepted
}

var _ cm.PlainID = (*ID)(nil)

// Deliver gives the identifier an event. It reports whether the event was
// taken: after Destroy it is not.
func (id *ID) Deliver(ev cm.Event) bool { return id.box.Deliver(ev) }

// Request delivers a connect request of a peer to a listening identifier. The
// script is that of the request's identifier, which is returned.
func (id *ID) Request(param cm.ConnParam, script Script) *ID {
	req := id.newRequest(script)
	if !id.Deliver(cm.Event{Type: cm.ConnectRequest, Param: param, Request: req}) {
		_ = req.Destroy()
	}
	return req
}

// RequestPlain delivers the connection of a peer that speaks no RDMA to a
// listening identifier. The script is that of the request's identifier, which is
// returned.
func (id *ID) RequestPlain(conn net.Conn, script Script) *ID {
	req := id.newRequest(script)
	req.plain = conn
	if !id.Deliver(cm.Event{Type: cm.ConnectRequest, Request: req, Plain: true}) {
		_ = req.Destroy()
	}
	return req
}

func (id *ID) newRequest(script Script) *ID {
	req := id.p.newID(script)
	req.remote = peerAddr
	id.mu.Lock()
	defer id.mu.Unlock()
	req.local = id.local
	return req
}

// Calls returns what was called so far.
func (id *ID) Calls() []Call {
	id.mu.Lock()
	defer id.mu.Unlock()
	return slices.Clone(id.calls)
}

// Called returns the calls of one name so far.
func (id *ID) Called(name string) []Call {
	return slices.DeleteFunc(id.Calls(), func(c Call) bool { return c.Name != name })
}

// Destroyed is how often Destroy was called.
func (id *ID) Destroyed() int { return int(id.destroyed.Load()) }

// Interrupted is closed when the identifier has been interrupted.
func (id *ID) Interrupted() <-chan struct{} { return id.interrupted }

// note writes a call down and returns its step, which is nil where the script
// says nothing.
func (id *ID) note(c Call) Step {
	c.At = time.Now()
	id.mu.Lock()
	defer id.mu.Unlock()
	id.calls = append(id.calls, c)
	n := id.used[c.Name]
	id.used[c.Name]++
	steps := id.script[c.Name]
	if len(steps) == 0 {
		return nil
	}
	return steps[min(n, len(steps)-1)]
}

// enter begins a method that only the identifier's owner may call.
func (id *ID) enter(name string) (leave func()) {
	if !id.busy.CompareAndSwap(false, true) {
		id.p.violation("id %d: %s while another method is under way", id.n, name)
		return func() {}
	}
	if id.Destroyed() > 0 {
		id.p.violation("id %d: %s after Destroy", id.n, name)
	}
	return func() { id.busy.Store(false) }
}

// call makes a call: what the script says, or else the default. Once the
// identifier has been interrupted it is EINTR.
func (id *ID) call(c Call, otherwise Step) error {
	defer id.enter(c.Name)()
	step := id.note(c)
	select {
	case <-id.interrupted:
		return syscall.EINTR
	default:
	}
	if step == nil {
		step = otherwise
	}
	return step(id)
}

// Handle sets the handler.
func (id *ID) Handle(fn func(cm.Event)) {
	defer id.enter("Handle")()
	id.box.Handle(fn)
}

// ResolveAddrInfo answers AddrInfoResolved.
func (id *ID) ResolveAddrInfo(q cm.AddrInfoQuery) error {
	return id.call(Call{Name: ResolveAddrInfo, Query: q}, Event(cm.AddrInfoResolved, 0))
}

// QueryAddrInfo returns the provider's Answers.
func (id *ID) QueryAddrInfo() ([]cm.AddrInfo, error) {
	if err := id.call(Call{Name: QueryAddrInfo}, Silent()); err != nil {
		return nil, err
	}
	return id.p.Answers, nil
}

// GetAddrInfo returns the provider's Answers.
func (id *ID) GetAddrInfo(q cm.AddrInfoQuery) ([]cm.AddrInfo, error) {
	if err := id.call(Call{Name: GetAddrInfo, Query: q}, Silent()); err != nil {
		return nil, err
	}
	return id.p.Answers, nil
}

// Bind takes the address, and a port of its own choice if that is 0.
func (id *ID) Bind(local cm.Addr, v6only bool) error {
	return id.call(Call{Name: Bind, Src: local, V6Only: v6only}, func(*ID) error {
		port := local.Port()
		if port == 0 {
			port = id.p.freePort()
		}
		id.setAddrs(netip.AddrPortFrom(local.Addr(), port), netip.AddrPort{})
		return nil
	})
}

// ResolveAddr answers AddrResolved.
func (id *ID) ResolveAddr(src, dst cm.Addr, timeoutMS int) error {
	err := id.call(Call{Name: ResolveAddr, Src: src, Dst: dst, TimeoutMS: timeoutMS}, Event(cm.AddrResolved, 0))
	if err == nil {
		id.setAddrs(src.AddrPort, dst.AddrPort)
	}
	return err
}

func (id *ID) setAddrs(local, remote netip.AddrPort) {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.local, id.remote = local, remote
}

// ResolveRoute answers RouteResolved.
func (id *ID) ResolveRoute(timeoutMS int) error {
	return id.call(Call{Name: ResolveRoute, TimeoutMS: timeoutMS}, Event(cm.RouteResolved, 0))
}

// SetRoute answers RouteResolved.
func (id *ID) SetRoute(path []byte) error {
	return id.call(Call{Name: SetRoute, Data: slices.Clone(path)}, Event(cm.RouteResolved, 0))
}

// Connect answers Established.
func (id *ID) Connect(p cm.ConnParam) error {
	return id.call(Call{Name: Connect, Param: p}, Event(cm.Established, 0))
}

// Listen succeeds.
func (id *ID) Listen(backlog int) error {
	return id.call(Call{Name: Listen, Backlog: backlog}, Silent())
}

// ListenPlain succeeds.
func (id *ID) ListenPlain(backlog int) error {
	return id.call(Call{Name: ListenPlain, Backlog: backlog}, Silent())
}

// AcceptPlain hands over the connection of RequestPlain.
func (id *ID) AcceptPlain() (net.Conn, error) {
	if err := id.call(Call{Name: AcceptPlain}, Silent()); err != nil {
		return nil, err
	}
	if id.plain == nil {
		id.p.violation("id %d: AcceptPlain without a connection", id.n)
	}
	conn := id.plain
	id.plain = nil
	return conn, nil
}

// Accept answers Established.
func (id *ID) Accept(p cm.ConnParam) error {
	return id.call(Call{Name: Accept, Param: p}, Event(cm.Established, 0))
}

// Reject succeeds.
func (id *ID) Reject(privateData []byte) error {
	return id.call(Call{Name: Reject, Data: slices.Clone(privateData)}, Silent())
}

// Disconnect answers Disconnected.
func (id *ID) Disconnect() error {
	return id.call(Call{Name: Disconnect}, Event(cm.Disconnected, 0))
}

// Device is the provider's.
func (id *ID) Device() (verbs.Device, error) {
	if err := id.call(Call{Name: Device}, Silent()); err != nil {
		return nil, err
	}
	return id.p.Dev, nil
}

// Port is port 1.
func (id *ID) Port() verbs.PortInfo {
	defer id.enter("Port")()
	return verbs.PortInfo{Port: 1}
}

// CreateQP makes a queue pair that takes work and never completes it.
func (id *ID) CreateQP(pd verbs.PD, cq verbs.CQ, attr verbs.QPAttr) (verbs.QP, error) {
	if err := id.call(Call{Name: CreateQP}, Silent()); err != nil {
		return nil, err
	}
	id.qps.Add(1)
	return id.p.Dev.newQP(attr, func() { id.qps.Add(-1) }), nil
}

// LocalAddr is what Bind or ResolveAddr were given.
func (id *ID) LocalAddr() netip.AddrPort {
	defer id.enter("LocalAddr")()
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.local
}

// RemoteAddr is what ResolveAddr was given, or the peer's.
func (id *ID) RemoteAddr() netip.AddrPort {
	defer id.enter("RemoteAddr")()
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.remote
}

// Interrupt ends the step under way, if it is one that can be ended, and all
// later ones.
func (id *ID) Interrupt() {
	if step := id.note(Call{Name: Interrupt}); step != nil {
		_ = step(id)
	}
	if id.Destroyed() > 0 {
		id.p.violation("id %d: Interrupt after Destroy", id.n)
	}
	id.once.Do(func() { close(id.interrupted) })
}

// Destroy ends the identifier and the requests that nobody has taken.
func (id *ID) Destroy() error {
	defer id.enter(Destroy)()
	step := id.note(Call{Name: Destroy})
	if id.qps.Load() != 0 {
		id.p.violation("id %d: Destroy before its queue pair's", id.n)
	}
	var err error
	if step != nil {
		err = step(id)
	}
	for _, req := range id.box.Close() {
		_ = req.Destroy() // as the provider's own
	}
	if id.plain != nil {
		_ = id.plain.Close() // nobody has accepted it
	}
	id.destroyed.Add(1)
	return err
}
