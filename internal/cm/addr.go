package cm

const callResolveAddr = "rdma_resolve_addr"

// resolveAddr is the addr stage: it finds the local device that leads to the
// destination. The source address picks it on a host with several; without one
// of the caller's, one that the addrinfo stage has brought is used.
func (a *attempt) resolveAddr(known AddrInfo) error {
	src, _ := sourceFor(a.r.Local, a.target.dst)
	if a.r.Local.IsZero() || src.IsZero() {
		src = known.Src
	}
	err := a.timed(StageAddr, callResolveAddr, func(timeoutMS int) error {
		return a.id.ResolveAddr(src, a.target.dst, timeoutMS)
	}, AddrResolved)
	if err != nil {
		return err
	}
	// Resolution can succeed and yet name no device that this process can
	// open.
	if _, err := a.id.Device(); err != nil {
		return a.callFailed(StageInfo{Stage: StageAddr, Call: callResolveAddr, Addr: a.target.dst}, err)
	}
	return nil
}
