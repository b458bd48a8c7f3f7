package cm

const (
	callCreateQP = "rdma_create_qp"
	callConnect  = "rdma_connect"
)

// ibHeaderSize is the size of the header that leads the private data of a
// connect request between InfiniBand addresses. Between IP addresses the kernel
// puts it there itself.
const ibHeaderSize = 36

// connect is the connect stage: the endpoint builds the queue pair with all it
// needs, the request goes out, and the peer's answer comes in.
func (a *attempt) connect(known AddrInfo) error {
	info := StageInfo{Stage: StageConnect, Call: callCreateQP}
	var param ConnParam
	_, err := a.step(info, 0, func() (err error) {
		a.ep = a.r.NewEndpoint()
		param, err = a.ep.Prepare(a.id, Event{})
		return err
	}, None)
	if err != nil {
		return err
	}
	param.PrivateData = leadPrivateData(a.target.dst, known.ConnectData, param.PrivateData)

	info.Call = callConnect
	ev, err := a.step(info, a.guard(), func() error { return a.request(param) }, Established)
	if ev.Type != None {
		a.settling.awaiting = false
	}
	if err != nil {
		return err
	}
	if err := a.ep.Established(ev); err != nil {
		info.Addr = a.target.dst
		return a.callFailed(info, err)
	}
	return nil
}

// request sends the connect request.
func (a *attempt) request(param ConnParam) error {
	connect := a.id.Connect
	if w, ok := a.id.(ConnectWaiter); ok {
		connect = w.ConnectWait
	}
	if !isIWARP(a.id) {
		return connect(param)
	}
	a.mu.Lock()
	a.way = wayIWARP
	a.mu.Unlock()
	returned := a.settling.begin()
	err := connect(param)
	returned(err)
	return err
}

// leadPrivateData puts in front of a request's private data what has to be
// there: the connect data of the addrinfo stage, and between InfiniBand
// addresses, when there is none, an empty header in its place.
func leadPrivateData(dst Addr, lead, data []byte) []byte {
	if lead == nil && dst.IB != nil {
		lead = make([]byte, ibHeaderSize)
	}
	if len(lead) == 0 {
		return data
	}
	return append(append(make([]byte, 0, len(lead)+len(data)), lead...), data...)
}
