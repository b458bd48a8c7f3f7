package cm

import "sync/atomic"

// A Manager runs dial and accept sequences on one provider. Its methods may be
// called concurrently.
type Manager struct {
	provider Provider

	// syncAddrInfo is set once it is known that rdma_resolve_addrinfo does
	// not work here and rdma_getaddrinfo does: a library or a kernel from
	// before 2025. Nothing in the answer of the first tells which it is, so
	// it is learnt by trying both with the same arguments.
	syncAddrInfo atomic.Bool
}

// NewManager returns a Manager for the provider. One is kept for the provider's
// lifetime, because of what it learns.
func NewManager(p Provider) *Manager { return &Manager{provider: p} }

// Provider is what the Manager runs on.
func (m *Manager) Provider() Provider { return m.provider }
