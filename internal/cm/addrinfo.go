package cm

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"syscall"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// The addrinfo stage asks the connection manager what it knows of an address
// before it is resolved: a source address, a path, private data that the
// connect request must begin with.
//
// Names never come here: the calls would block in the C library's resolver,
// where no context reaches them. What comes is a numeric address, or, in the
// network ib, the name or ID of a service for the subnet administrator.

const (
	callResolveAddrInfo = "rdma_resolve_addrinfo"
	callGetAddrInfo     = "rdma_getaddrinfo"
	callBindAddr        = "rdma_bind_addr"
)

// resolveAddrInfo returns what is known of the attempt's address; nothing known
// is the zero AddrInfo. The destination stays the one that was asked for: it
// has the zone as the caller wrote it.
func (a *attempt) resolveAddrInfo() (AddrInfo, error) {
	if a.target.known != nil {
		return *a.target.known, nil
	}
	dst := a.target.dst.AddrPort
	query := AddrInfoQuery{
		Node:    dst.Addr().String(), // with the zone, which getaddrinfo(3) knows
		Service: strconv.Itoa(int(dst.Port())),
	}
	var answers []AddrInfo
	var err error
	if a.m.syncAddrInfo.Load() {
		answers, err = a.getAddrInfo(query)
	} else {
		answers, err = a.asyncAddrInfo(query)
		if unsupported(err) && a.ctx.Err() == nil {
			// The call has not begun, so no event will come. Its
			// errno may be about the kernel or about the arguments:
			// the other call tells.
			if answers, err = a.getAddrInfo(query); err == nil {
				a.m.syncAddrInfo.Store(true)
			}
		}
	}
	if err != nil {
		return AddrInfo{}, err
	}
	if len(answers) == 0 {
		return AddrInfo{}, nil
	}
	return answers[0], nil
}

// asyncAddrInfo uses rdma_resolve_addrinfo(3).
func (a *attempt) asyncAddrInfo(query AddrInfoQuery) ([]AddrInfo, error) {
	info := StageInfo{Stage: StageAddrInfo, Call: callResolveAddrInfo}
	_, err := a.step(info, a.guard(), func() error { return a.id.ResolveAddrInfo(query) }, AddrInfoResolved)
	if err != nil {
		return nil, err
	}
	answers, err := a.id.QueryAddrInfo()
	if err != nil {
		info.Addr, info.Call = a.target.dst, "rdma_query_addrinfo"
		return nil, a.callFailed(info, err)
	}
	return answers, nil
}

// getAddrInfo uses rdma_getaddrinfo(3).
func (a *attempt) getAddrInfo(query AddrInfoQuery) (answers []AddrInfo, err error) {
	info := StageInfo{Stage: StageAddrInfo, Call: callGetAddrInfo}
	_, err = a.step(info, a.guard(), func() (err error) {
		answers, err = a.id.GetAddrInfo(query)
		return err
	}, None)
	return answers, err
}

// unsupported reports whether an error of rdma_resolve_addrinfo's own call can
// mean that library or kernel do not have it. librdmacm loses the kernel's
// errno and leaves −1, or, by the platform's conventions, another errno that
// says nothing; what clearly says something else is exhaustion.
func unsupported(err error) bool {
	var e *StageError
	if !errors.As(err, &e) || e.Call != callResolveAddrInfo || e.Event != None {
		return false
	}
	return errors.Is(err, errors.ErrUnsupported) || !exhausted(e.Errno) && e.Errno != syscall.EBUSY
}

// resolveService asks the subnet administrator for an InfiniBand service, on an
// identifier of its own that is bound to the port which local names. Each
// answer becomes a target with an identifier of its own: the one bound to an IP
// address cannot go on to an InfiniBand address.
func (m *Manager) resolveService(ctx context.Context, r *DialRequest) ([]target, error) {
	a := m.newAttempt(ctx, r, target{})
	defer a.cancel(nil)
	if ctx.Err() != nil {
		return nil, a.ended()
	}
	targets, err, left := await(a.ctx, a.service, func([]target) {})
	if left {
		return nil, a.ended()
	}
	return targets, err
}

// service is the worker of resolveService.
func (a *attempt) service() ([]target, error) {
	id, err := a.open()
	if err != nil {
		return nil, err
	}
	a.id = id
	id.Handle(a.box.put)
	stop := interruptOn(a.ctx, id.Interrupt)
	answers, err := a.askService()
	stop()
	_ = id.Destroy() // the answer, or the error, is what counts
	if err != nil {
		return nil, err
	}
	var targets []target
	for _, info := range answers {
		if !info.Dst.IsZero() {
			targets = append(targets, target{dst: info.Dst, known: &info})
		}
	}
	if len(targets) == 0 {
		return nil, &StageError{Stage: StageAddrInfo, Call: callResolveAddrInfo, Errno: syscall.EADDRNOTAVAIL,
			Err: syscall.EADDRNOTAVAIL, Hint: "the subnet administrator knows no service " + strconv.Quote(a.r.Service)}
	}
	return targets, nil
}

func (a *attempt) askService() ([]AddrInfo, error) {
	bind := StageInfo{Stage: StageAddrInfo, Call: callBindAddr}
	if a.r.Local.IsZero() || a.r.Local.IB == nil && a.r.Local.Addr().IsUnspecified() {
		return nil, &StageError{Stage: StageAddrInfo, Call: callBindAddr, Errno: syscall.EDESTADDRREQ,
			Err: syscall.EDESTADDRREQ, Hint: "the network ib needs a local address, to know the InfiniBand port to ask on"}
	}
	local := a.r.Local
	if local.IB == nil {
		local.AddrPort = netip.AddrPortFrom(local.Addr().Unmap(), 0)
	}
	if _, err := a.step(bind, a.guard(), func() error { return a.id.Bind(local, false) }, None); err != nil {
		return nil, err
	}
	dev, err := a.id.Device()
	if err != nil {
		return nil, a.callFailed(bind, err)
	}
	if d := dev.Info(); d.Transport != verbs.InfiniBand {
		return nil, &StageError{Stage: StageAddrInfo, Call: callResolveAddrInfo, Errno: syscall.EOPNOTSUPP, Err: syscall.EOPNOTSUPP,
			Hint: "the port of " + local.Addr().String() + ", on " + d.Name + ", is not InfiniBand but " + d.Transport.String()}
	}
	query := AddrInfoQuery{Service: a.r.Service, SA: true}
	answers, err := a.asyncAddrInfo(query)
	var e *StageError
	if unsupported(err) && a.ctx.Err() == nil && errors.As(err, &e) {
		e.Hint = "asking the subnet administrator takes librdmacm 59 or later, and a kernel that knows services"
	}
	return answers, err
}
