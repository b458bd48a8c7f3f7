package scripted

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// Provider is a cm.Provider. Its fields are set before it is used.
type Provider struct {
	// Scripts are those of the identifiers in the order of their making; the
	// last stands for all further ones. nil is no script.
	Scripts []Script

	// ScriptFor, if not nil, is asked instead for the script of the n-th
	// identifier, from 0.
	ScriptFor func(n int) Script

	// Answers are what QueryAddrInfo and GetAddrInfo return.
	Answers []cm.AddrInfo

	// Dev is what identifiers find. NewProvider sets a device that works.
	Dev *RDMADevice

	mu         sync.Mutex
	made       int
	ids        []*ID
	endpoints  []*Endpoint
	violations []string
	port       atomic.Uint32
}

var _ cm.Provider = (*Provider)(nil)

// NewProvider returns a provider with the scripts and a device of its own.
func NewProvider(scripts ...Script) *Provider {
	return &Provider{Scripts: scripts, Dev: NewDevice("scripted0", verbs.RoCE)}
}

// Name is "scripted".
func (p *Provider) Name() string { return "scripted" }

// NewID makes the next identifier.
func (p *Provider) NewID() (cm.ID, error) {
	p.mu.Lock()
	script := p.script(p.made)
	p.made++
	p.mu.Unlock()
	if steps := script[NewID]; len(steps) > 0 {
		if err := steps[0](nil); err != nil {
			return nil, err
		}
	}
	return p.newID(script), nil
}

func (p *Provider) script(n int) Script {
	switch {
	case p.ScriptFor != nil:
		return p.ScriptFor(n)
	case len(p.Scripts) == 0:
		return nil
	}
	return p.Scripts[min(n, len(p.Scripts)-1)]
}

func (p *Provider) newID(script Script) *ID {
	id := &ID{p: p, script: script, used: map[string]int{}, interrupted: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	id.n = len(p.ids)
	p.ids = append(p.ids, id)
	return id
}

// IDs returns all identifiers so far, those of connect requests among them.
func (p *Provider) IDs() []*ID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*ID(nil), p.ids...)
}

// ID returns the n-th identifier, from 0.
func (p *Provider) ID(n int) *ID { return p.IDs()[n] }

// Endpoints returns all endpoints that NewEndpoint has made.
func (p *Provider) Endpoints() []*Endpoint {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*Endpoint(nil), p.endpoints...)
}

// violation notes that a rule was broken.
func (p *Provider) violation(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.violations = append(p.violations, fmt.Sprintf(format, args...))
}

// Verify returns what is wrong at the end: rules that were broken, identifiers
// that were not destroyed, endpoints that were neither released nor handed
// over, objects left on the device.
func (p *Provider) Verify() []string {
	p.mu.Lock()
	wrong := append([]string(nil), p.violations...)
	ids := append([]*ID(nil), p.ids...)
	endpoints := append([]*Endpoint(nil), p.endpoints...)
	p.mu.Unlock()
	for _, id := range ids {
		if n := id.Destroyed(); n != 1 {
			wrong = append(wrong, fmt.Sprintf("id %d was destroyed %d times; calls: %v", id.n, n, id.Calls()))
		}
	}
	for i, ep := range endpoints {
		if s := ep.state(); s != "" {
			wrong = append(wrong, fmt.Sprintf("endpoint %d: %s", i, s))
		}
	}
	if p.Dev != nil {
		if live := p.Dev.Live(); live != 0 {
			wrong = append(wrong, fmt.Sprintf("%d objects are left on the device", live))
		}
	}
	return wrong
}

// freePort is the port that Bind chooses.
func (p *Provider) freePort() uint16 { return uint16(49152 + p.port.Add(1)) }

// peerAddr is where connect requests come from.
var peerAddr = netip.MustParseAddrPort("192.0.2.9:40000")
