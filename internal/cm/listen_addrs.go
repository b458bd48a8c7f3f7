package cm

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
)

const callListen = "rdma_listen"

// Which identifiers a listener needs is decided here alone.
//
// A specific address, or all addresses of one family, is one identifier. All
// addresses of both families is one identifier for each, on the same port: one
// on the IPv6 wildcard that takes IPv4 too, as a TCP socket does, is bound on
// siw, but refuses its IPv4 peers. Where a provider cannot have two, or the host
// lacks a family, it is that one, or one of a single family. The plans are tried
// in order.

// A binding is one identifier's address.
type binding struct {
	ip     netip.Addr
	v6only bool
}

// plans returns what to bind, in the order in which to try it. An invalid ip is
// all addresses, and so is an unspecified one.
func plans(network Network, ip netip.Addr) [][]binding {
	v4 := binding{ip: netip.IPv4Unspecified()}
	v6 := binding{ip: netip.IPv6Unspecified(), v6only: true}
	both := binding{ip: netip.IPv6Unspecified()}
	switch {
	case ip.IsValid() && !ip.IsUnspecified():
		return [][]binding{{{ip: ip, v6only: ip.Is6()}}}
	case network == IPv4:
		return [][]binding{{v4}}
	case network == IPv6:
		return [][]binding{{v6}}
	}
	return [][]binding{{v4, v6}, {both}, {v4}, {v6}}
}

// boundIDs are the identifiers of a listener. They listen.
type boundIDs struct {
	ids  []ID
	addr netip.AddrPort // what the listener calls its address
}

func (b *boundIDs) destroy() {
	for _, id := range b.ids {
		_ = id.Destroy() // nobody is left to tell
	}
}

// bind makes the identifiers that listen on addr, with their events going to
// box.
func (m *Manager) bind(ctx context.Context, r *ListenRequest, addr netip.AddrPort, box *inbox) (*boundIDs, error) {
	var first error
	for _, plan := range plans(r.Network, addr.Addr()) {
		b, err := m.bindPlan(ctx, r, plan, addr.Port(), box)
		if err == nil {
			return b, nil
		}
		// Of several failures the one counts that is not about a family
		// that this host lacks.
		if first == nil || lacksFamily(first) {
			first = err
		}
		if ctx.Err() != nil || isStage(err, StageOpen) || errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
	}
	return nil, first
}

func lacksFamily(err error) bool {
	return errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EPROTONOSUPPORT)
}

// bindPlan makes a plan's identifiers. A port that the connection manager chose
// for the first of them may be taken in the other family, or by TCP: then it is
// given back, and another is chosen.
func (m *Manager) bindPlan(ctx context.Context, r *ListenRequest, plan []binding, port uint16, box *inbox) (*boundIDs, error) {
	for try := 1; ; try++ {
		b := &boundIDs{}
		var err error
		at := port
		for _, bd := range plan {
			var id ID
			if id, err = m.bindOne(ctx, r, bd, at, box); err != nil {
				break
			}
			b.ids = append(b.ids, id)
			local := id.LocalAddr()
			at = local.Port()
			b.addr = netip.AddrPortFrom(bd.ip, at)
			if local.Addr().IsValid() { // it may have one family where both were asked for, or no zone
				b.addr = local
			}
		}
		if err == nil {
			return b, nil
		}
		b.destroy()
		if port != 0 || !errors.Is(err, syscall.EADDRINUSE) || try == portTries || ctx.Err() != nil {
			return nil, err
		}
	}
}

// bindOne makes one identifier that listens.
func (m *Manager) bindOne(ctx context.Context, r *ListenRequest, bd binding, port uint16, box *inbox) (ID, error) {
	addr := Addr{AddrPort: netip.AddrPortFrom(bd.ip, port)}
	failed := func(stage Stage, call string, err error) error {
		if ctx.Err() != nil {
			return &StageError{Stage: stage, Call: call, Addr: addr, Err: newContextError(ctx)}
		}
		return bindFailed(addr.AddrPort, stage, call, err)
	}
	id, err := m.provider.NewID()
	if err != nil {
		return nil, failed(StageOpen, callCreateID, err)
	}
	stop := interruptOn(ctx, id.Interrupt)
	stage, call := StageBind, callBindAddr
	if err = id.Bind(addr, bd.v6only); err == nil {
		id.Handle(box.put)
		stage, call = StageListen, callListen
		err = listenOn(id, r)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		err = failed(stage, call, err)
		_ = id.Destroy()
		return nil, err
	}
	return id, nil
}

// listenOn makes an identifier listen: for all peers where it can and the request
// says so, and with the request's bounds also for those that do not send theirs.
func listenOn(id ID, r *ListenRequest) error {
	if b, ok := id.(RequestBounder); ok {
		b.BoundRequests(r.HandshakeTimeout, func(peer netip.AddrPort, err error) {
			if r.Refused != nil {
				r.Refused(Addr{AddrPort: peer}, err)
			}
		})
	}
	if p, ok := id.(PlainID); ok && r.Plain {
		return p.ListenPlain(kernelBacklog)
	}
	return id.Listen(kernelBacklog)
}
