package scripted

import (
	"sync"
	"sync/atomic"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// RDMADevice is a verbs.Device whose queue pairs take work and never complete
// it. It counts what is alive on it.
type RDMADevice struct {
	info verbs.DeviceInfo
	live atomic.Int64
	keys atomic.Uint32
}

// NewDevice returns a device with generous limits.
func NewDevice(name string, t verbs.Transport) *RDMADevice {
	return &RDMADevice{info: verbs.DeviceInfo{Provider: "scripted", Name: name, Transport: t,
		MaxQPWR: 4096, MaxCQE: 1 << 16, MaxSGE: 16, MaxResponderRes: 16, MaxInitiatorRead: 16}}
}

// Live is how many domains, regions, completion queues and queue pairs there
// are.
func (d *RDMADevice) Live() int { return int(d.live.Load()) }

// Info describes the device.
func (d *RDMADevice) Info() verbs.DeviceInfo { return d.info }

// AllocPD allocates a protection domain.
func (d *RDMADevice) AllocPD() (verbs.PD, error) {
	d.live.Add(1)
	return &pd{d: d}, nil
}

// NewCQ creates a completion queue in which nothing ever completes.
func (d *RDMADevice) NewCQ(int) (verbs.CQ, error) {
	d.live.Add(1)
	return &cq{d: d, wake: make(chan struct{}, 1)}, nil
}

func (d *RDMADevice) newQP(attr verbs.QPAttr, gone func()) verbs.QP {
	d.live.Add(1)
	return &qp{d: d, attr: attr, gone: gone}
}

type pd struct {
	d    *RDMADevice
	once sync.Once
}

func (p *pd) Device() verbs.Device { return p.d }

func (p *pd) RegisterMemory(size int, _ verbs.Access) (verbs.MR, error) {
	p.d.live.Add(1)
	return &mr{d: p.d, mem: make([]byte, size), key: p.d.keys.Add(1)}, nil
}

func (p *pd) Dealloc() error {
	p.once.Do(func() { p.d.live.Add(-1) })
	return nil
}

type mr struct {
	d    *RDMADevice
	mem  []byte
	key  uint32
	once sync.Once
}

func (m *mr) Bytes() []byte { return m.mem }
func (m *mr) Addr() uint64  { return uint64(m.key) << 32 }
func (m *mr) LKey() uint32  { return m.key }
func (m *mr) RKey() uint32  { return m.key }

func (m *mr) Deregister() error {
	m.once.Do(func() { m.d.live.Add(-1) })
	return nil
}

type cq struct {
	d    *RDMADevice
	wake chan struct{}
	once sync.Once
}

func (c *cq) Poll([]verbs.WC) (int, error) { return 0, nil }
func (c *cq) Arm() error                   { return nil }
func (c *cq) Wait() error                  { <-c.wake; return nil }

func (c *cq) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *cq) Destroy() error {
	c.once.Do(func() { c.d.live.Add(-1) })
	return nil
}

type qp struct {
	d    *RDMADevice
	attr verbs.QPAttr
	gone func()
	once sync.Once
}

func (q *qp) PostSend(wr []verbs.SendWR) (int, error) { return len(wr), nil }
func (q *qp) PostRecv(wr []verbs.RecvWR) (int, error) { return len(wr), nil }
func (q *qp) MaxInline() int                          { return q.attr.MaxInline }
func (q *qp) SetError() error                         { return nil }

func (q *qp) Destroy() error {
	q.once.Do(func() {
		q.d.live.Add(-1)
		q.gone()
	})
	return nil
}
