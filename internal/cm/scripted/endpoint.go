package scripted

import (
	"sync"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// Endpoint is a cm.Endpoint with a queue pair and a memory region on the
// provider's device. NewEndpoint makes it; the functions may be set before it
// is used.
type Endpoint struct {
	// OnPrepare and OnEstablished, if not nil, say how the method of that name
	// ends; OnPrepare is called when all has been built.
	OnPrepare     func(id cm.ID, request cm.Event) error
	OnEstablished func(ev cm.Event) error
	Param         cm.ConnParam // what Prepare returns

	p *Provider

	mu          sync.Mutex
	id          *ID
	request     cm.Event
	established cm.Event
	prepared    int
	released    int
	pd          verbs.PD
	mr          verbs.MR
	cq          verbs.CQ
	qp          verbs.QP
}

var _ cm.Endpoint = (*Endpoint)(nil)

// NewEndpoint makes an endpoint that Verify watches over.
func (p *Provider) NewEndpoint() *Endpoint {
	ep := &Endpoint{p: p, Param: cm.ConnParam{PrivateData: []byte("hello")}}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endpoints = append(p.endpoints, ep)
	return ep
}

// Prepare builds a protection domain, a region and two queues.
func (e *Endpoint) Prepare(id cm.ID, request cm.Event) (cm.ConnParam, error) {
	e.mu.Lock()
	e.prepared++
	e.id, _ = id.(*ID)
	e.request = request
	e.mu.Unlock()
	dev, err := id.Device()
	if err != nil {
		return cm.ConnParam{}, err
	}
	if e.pd, err = dev.AllocPD(); err != nil {
		return cm.ConnParam{}, err
	}
	if e.mr, err = e.pd.RegisterMemory(64, verbs.LocalWrite); err != nil {
		return cm.ConnParam{}, err
	}
	if e.cq, err = dev.NewCQ(4); err != nil {
		return cm.ConnParam{}, err
	}
	if e.qp, err = id.CreateQP(e.pd, e.cq, verbs.QPAttr{SendDepth: 2, RecvDepth: 2}); err != nil {
		return cm.ConnParam{}, err
	}
	if e.OnPrepare != nil {
		if err := e.OnPrepare(id, request); err != nil {
			return cm.ConnParam{}, err
		}
	}
	return e.Param, nil
}

// Established remembers the event.
func (e *Endpoint) Established(ev cm.Event) error {
	e.mu.Lock()
	e.established = ev
	e.mu.Unlock()
	if e.OnEstablished != nil {
		return e.OnEstablished(ev)
	}
	return nil
}

// Release destroys what Prepare has built.
func (e *Endpoint) Release() {
	e.mu.Lock()
	e.released++
	again, id := e.released > 1, e.id
	e.mu.Unlock()
	switch {
	case again:
		e.p.violation("an endpoint was released twice")
		return
	case id == nil:
		e.p.violation("an endpoint was released that was not prepared")
		return
	case id.Destroyed() > 0:
		e.p.violation("id %d: Release after Destroy", id.n)
	}
	if e.qp != nil {
		_ = e.qp.Destroy()
	}
	if e.cq != nil {
		_ = e.cq.Destroy()
	}
	if e.mr != nil {
		_ = e.mr.Deregister()
	}
	if e.pd != nil {
		_ = e.pd.Dealloc()
	}
}

// Released is how often Release was called.
func (e *Endpoint) Released() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.released
}

// Request is the event that Prepare was given, and Answer the one that
// Established was given.
func (e *Endpoint) Request() cm.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.request
}

// Answer is the event that Established was given.
func (e *Endpoint) Answer() cm.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.established
}

// state says what is wrong with an endpoint at the end; "" is nothing.
func (e *Endpoint) state() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.prepared == 0:
		return "made and never prepared"
	case e.prepared > 1:
		return "prepared more than once"
	case e.released != 1:
		return "not released once"
	}
	return ""
}
