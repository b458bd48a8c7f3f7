package iwarp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// An identifier is a cm.ID. Its stages are in the files named after them:
// resolve.go, connect.go, listen.go, accept.go.
//
// Its methods are called by one goroutine at a time, but for Interrupt. What a
// goroutine of the identifier's own changes is guarded by mu.
type identifier struct {
	cm.Mailbox
	nic *NIC

	// ctx ends with Interrupt and with Destroy, and with it all that blocks.
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup // goroutines of the identifier

	bound   bool
	v6only  bool
	answers []cm.AddrInfo
	src     netip.AddrPort // the address to dial from, if one was asked for
	keep    *net.KeepAliveConfig

	listener *listener
	requests requestBound    // of the listener's peers
	request  *connectRequest // of a ConnectRequest that has not been answered
	qp       *queuePair

	connected atomic.Bool // Connect has its TCP connection

	mu            sync.Mutex
	local, remote netip.AddrPort
}

var (
	_ cm.PlainID        = (*identifier)(nil)
	_ cm.ConnectWaiter  = (*identifier)(nil)
	_ cm.RequestBounder = (*identifier)(nil)
	_ cm.TCPID          = (*identifier)(nil)
)

// NewID makes an identifier.
func (n *NIC) NewID() (cm.ID, error) { return n.newIdentifier(), nil }

func (n *NIC) newIdentifier() *identifier {
	i := &identifier{nic: n}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	return i
}

// Device is the NIC, once there is an address.
func (i *identifier) Device() (verbs.Device, error) {
	if !i.bound && !i.LocalAddr().IsValid() {
		return nil, fmt.Errorf("the identifier has no address yet: %w", syscall.ENODEV)
	}
	return i.nic, nil
}

// Port is nothing: the NIC has no ports.
func (i *identifier) Port() verbs.PortInfo { return verbs.PortInfo{} }

// CreateQP creates the identifier's queue pair.
func (i *identifier) CreateQP(pd verbs.PD, cq verbs.CQ, attr verbs.QPAttr) (verbs.QP, error) {
	if i.qp != nil {
		return nil, fmt.Errorf("the identifier has a queue pair already: %w", syscall.EINVAL)
	}
	q, err := newQueuePair(i, pd, cq, attr)
	if err != nil {
		return nil, err
	}
	i.qp = q
	return q, nil
}

// SetKeepAlive sets TCP's keepalive for the connection that the identifier will
// have, in place of Config.KeepAlive: before Connect, before Listen for all that
// is accepted, or before Accept.
func (i *identifier) SetKeepAlive(cfg net.KeepAliveConfig) error {
	i.keep = &cfg
	if i.request != nil && i.request.plain == nil {
		return i.request.conn.SetKeepAliveConfig(cfg)
	}
	return nil
}

func (i *identifier) keepAlive() net.KeepAliveConfig {
	if i.keep != nil {
		return *i.keep
	}
	return i.nic.cfg.KeepAlive
}

// LocalAddr is the address of this end.
func (i *identifier) LocalAddr() netip.AddrPort {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.local
}

// RemoteAddr is the address of the other end.
func (i *identifier) RemoteAddr() netip.AddrPort {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.remote
}

func (i *identifier) setAddrs(local, remote netip.AddrPort) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.local, i.remote = local, remote
}

// Disconnect ends the connection in order.
func (i *identifier) Disconnect() error {
	if i.qp == nil {
		return fmt.Errorf("the identifier is not connected: %w", syscall.EINVAL)
	}
	i.qp.disconnect()
	return nil
}

// Interrupt ends what is under way.
func (i *identifier) Interrupt() { i.cancel() }

// Destroy ends what is under way and waits for it, which takes no time; a
// connection that was not ended is, behind the caller. The queue pair must be
// destroyed before.
func (i *identifier) Destroy() error {
	i.cancel()
	if i.listener != nil {
		i.listener.close()
	}
	i.work.Wait()
	if i.request != nil {
		i.request.drop()
		i.request = nil
	}
	for _, id := range i.Close() {
		_ = id.Destroy() // a request that nobody has taken
	}
	return nil
}

// addrPort is a TCP address without the mapping of IPv4 into IPv6.
func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
