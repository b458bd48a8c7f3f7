package rdmanet

import (
	"errors"
	"fmt"
	"sync"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/iwarp"
	"github.com/rdmanet/rdmanet/internal/rdmacore"
)

// Provider says what carries a connection.
type Provider uint8

const (
	// Auto leaves the choice to the package. It is the default.
	Auto Provider = iota
	// Verbs is an RDMA device of the system, by librdmacm and libibverbs.
	Verbs
	// Software is an RDMA NIC in Go, which speaks iWARP over TCP. It needs no
	// device and no privilege, and its peer may be an iWARP adapter.
	Software
)

var providerNames = [...]string{Auto: "auto", Verbs: "verbs", Software: "software"}

// String returns "auto", "verbs" or "software".
func (p Provider) String() string {
	if int(p) < len(providerNames) {
		return providerNames[p]
	}
	return fmt.Sprintf("provider %d", uint8(p))
}

// MarshalText implements encoding.TextMarshaler.
func (p Provider) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler, so that flag.TextVar and
// decoders of configuration take the names of String.
func (p *Provider) UnmarshalText(text []byte) error {
	for i, name := range providerNames {
		if name == string(text) {
			*p = Provider(i)
			return nil
		}
	}
	return fmt.Errorf("unknown provider %q (auto, verbs or software)", text)
}

// managers holds the connection manager of each provider. A provider that could
// not be opened is tried again next time: a device may have come.
var managers struct {
	sync.Mutex
	of map[Provider]*cm.Manager
}

// manager returns the connection manager of a provider.
func manager(p Provider) (*cm.Manager, error) {
	if p == Auto {
		p = Verbs
	}
	managers.Lock()
	defer managers.Unlock()
	if m := managers.of[p]; m != nil {
		return m, nil
	}
	provider, err := open(p)
	if err != nil {
		return nil, fmt.Errorf("provider %v: %w", p, err)
	}
	if managers.of == nil {
		managers.of = make(map[Provider]*cm.Manager)
	}
	m := cm.NewManager(provider)
	managers.of[p] = m
	return m, nil
}

func open(p Provider) (cm.Provider, error) {
	switch p {
	case Verbs:
		return rdmacore.Open()
	case Software:
		return iwarp.Open(iwarp.Config{})
	}
	return nil, errors.New("unknown provider")
}
