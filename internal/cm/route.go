package cm

const (
	callResolveRoute = "rdma_resolve_route"
	callSetOption    = "rdma_set_option"
)

// resolveRoute is the route stage: it finds the path from the device to the
// destination. On InfiniBand that is a question to the subnet administrator,
// unless the addrinfo stage has brought the path records.
func (a *attempt) resolveRoute(known AddrInfo) error {
	if known.Route != nil {
		info := StageInfo{Stage: StageRoute, Call: callSetOption}
		_, err := a.step(info, a.guard(), func() error { return a.id.SetRoute(known.Route) }, RouteResolved)
		return err
	}
	return a.timed(StageRoute, callResolveRoute, a.id.ResolveRoute, RouteResolved)
}
