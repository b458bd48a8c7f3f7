package iwarp

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// The limits of a NIC, beside Config.MaxReads.
const (
	maxQPWR = 1 << 14
	maxCQE  = 1 << 20
)

// A NIC is a software RDMA NIC: a cm.Provider with one device, which is the NIC
// itself. It holds nothing of the system's as long as nothing was made with it,
// and need not be closed.
type NIC struct {
	cfg     Config
	regions regionTable
	events  eventQueue
	sweeper sweeper
	routes  routeCache

	lingering lingering
	refused   atomic.Int32 // connections in closeBehind
}

var (
	_ cm.Provider  = (*NIC)(nil)
	_ verbs.Device = (*NIC)(nil)
)

// Open makes a NIC. It fails with EINVAL if the configuration makes no sense,
// and on a platform without the sockets that it needs.
func Open(cfg Config) (*NIC, error) {
	if err := cfg.resolve(); err != nil {
		return nil, err
	}
	if err := socketsSupported(); err != nil {
		return nil, err
	}
	return &NIC{
		cfg:       cfg,
		sweeper:   sweeper{soon: sweepSoon, late: sweepLate},
		lingering: lingering{most: maxLingering},
	}, nil
}

// Name is the provider's.
func (n *NIC) Name() string { return "software" }

// Info says what the NIC can do.
func (n *NIC) Info() verbs.DeviceInfo {
	return verbs.DeviceInfo{
		Provider: n.Name(), Name: n.cfg.Name, Transport: verbs.IWARP,
		MaxQPWR: maxQPWR, MaxCQE: maxCQE, MaxSGE: verbs.MaxSGE,
		MaxResponderRes: n.cfg.MaxReads, MaxInitiatorRead: n.cfg.MaxReads,
		CallerDriven: true,
	}
}

// AllocPD allocates a protection domain.
func (n *NIC) AllocPD() (verbs.PD, error) { return &protectionDomain{nic: n}, nil }

// NewCQ creates a completion queue.
func (n *NIC) NewCQ(depth int) (verbs.CQ, error) {
	if depth < 1 || depth > maxCQE {
		return nil, fmt.Errorf("a completion queue has 1 to %d entries, not %d: %w", maxCQE, depth, syscall.EINVAL)
	}
	return newCompletionQueue(depth), nil
}

// An eventQueue carries Disconnected events to the identifiers that they belong
// to, from a goroutine of its own, which runs while there are any: they come from
// code that holds locks, and their handlers may take locks under which that code
// was called. Other events are delivered where they arise, without locks.
type eventQueue struct {
	mu      sync.Mutex
	queue   []queuedEvent
	running bool
}

type queuedEvent struct {
	id *identifier
	ev cm.Event
}

func (q *eventQueue) post(id *identifier, ev cm.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, queuedEvent{id, ev})
	if !q.running {
		q.running = true
		go q.run()
	}
}

func (q *eventQueue) run() {
	for {
		q.mu.Lock()
		batch := q.queue
		q.queue = nil
		q.running = len(batch) > 0
		q.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		for _, e := range batch {
			e.id.Deliver(e.ev)
		}
	}
}
