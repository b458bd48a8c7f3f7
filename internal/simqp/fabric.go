package simqp

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// Options say how a Fabric behaves. The zero value is an orderly RoCE fabric.
type Options struct {
	Transport verbs.Transport // default RoCE

	// Seed makes the schedule random; 0 is for an orderly one.
	Seed uint64
	// Delay is the most that a step is delayed, now and then, with a Seed.
	Delay time.Duration

	MaxInline int           // default 64; less than 0 for none
	Retry     time.Duration // until a vanished peer is given up; default 50 ms; iWARP: never

	// Fault is told of what the user of the devices does wrong. Default: panic.
	Fault func(string)
}

// A Fabric is what the simulated devices are connected by.
type Fabric struct {
	opts Options
	wg   sync.WaitGroup

	mu       sync.Mutex
	rand     *rand.Rand
	nextAddr uint64
	nextKey  uint32
}

// New makes a fabric.
func New(o Options) *Fabric {
	if o.Transport == verbs.TransportUnknown {
		o.Transport = verbs.RoCE
	}
	if o.MaxInline == 0 {
		o.MaxInline = 64
	}
	if o.Retry == 0 {
		o.Retry = 50 * time.Millisecond
	}
	if o.Fault == nil {
		o.Fault = func(s string) { panic(s) }
	}
	return &Fabric{
		opts:     o,
		rand:     rand.New(rand.NewPCG(o.Seed, 1)),
		nextAddr: 1 << 40,
		nextKey:  0x100,
	}
}

// Wait waits until the goroutines of all queue pairs have ended, which they do
// when these are destroyed.
func (f *Fabric) Wait() { f.wg.Wait() }

func (f *Fabric) fault(format string, args ...any) {
	f.opts.Fault("simqp: " + fmt.Sprintf(format, args...))
}

// newRand makes a source of randomness for one queue pair.
func (f *Fabric) newRand() *rand.Rand {
	f.mu.Lock()
	defer f.mu.Unlock()
	return rand.New(rand.NewPCG(f.rand.Uint64(), f.rand.Uint64()))
}

// A Device is a simulated device.
type Device struct {
	fabric *Fabric
	name   string

	// MaxQPWR and MaxCQE are the device's limits; set them before use.
	MaxQPWR, MaxCQE int
	// CallerDriven is what the device says of itself; it works as ever.
	CallerDriven bool
	// FailRegister, if it returns an error, makes RegisterMemory fail.
	FailRegister func(size int) error

	pds, mrs, cqs, qps atomic.Int64
	registrations      atomic.Int64
}

// NewDevice makes a device.
func (f *Fabric) NewDevice(name string) *Device {
	return &Device{fabric: f, name: name, MaxQPWR: 1 << 14, MaxCQE: 1 << 16}
}

// Live counts what exists on the device.
func (d *Device) Live() (pds, mrs, cqs, qps int) {
	return int(d.pds.Load()), int(d.mrs.Load()), int(d.cqs.Load()), int(d.qps.Load())
}

// Registrations counts the regions ever registered.
func (d *Device) Registrations() int { return int(d.registrations.Load()) }

// Info implements verbs.Device.
func (d *Device) Info() verbs.DeviceInfo {
	return verbs.DeviceInfo{
		Provider: "simulation", Name: d.name, Transport: d.fabric.opts.Transport,
		MaxQPWR: d.MaxQPWR, MaxCQE: d.MaxCQE, MaxSGE: verbs.MaxSGE,
		MaxResponderRes: 16, MaxInitiatorRead: 16,
		CallerDriven: d.CallerDriven,
	}
}

// AllocPD implements verbs.Device.
func (d *Device) AllocPD() (verbs.PD, error) {
	d.pds.Add(1)
	return &pd{dev: d}, nil
}

// NewCQ implements verbs.Device.
func (d *Device) NewCQ(depth int) (verbs.CQ, error) {
	d.cqs.Add(1)
	c := &cq{dev: d, depth: depth}
	c.cond.L = &c.mu
	return c, nil
}
