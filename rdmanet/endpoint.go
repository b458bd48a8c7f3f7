package rdmanet

import (
	"net"
	"time"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/rsocket"
)

// Connection parameters of both sides. retry_count is 6 and not 7, because with
// 7 some devices never give up a peer that has vanished. rnr_retry_count acts on
// the peer's queue pair: 7 makes it wait for our receives, however long. One
// Read each way serves as keepalive where the other side grants it.
const (
	retryCount    = 6
	rnrRetryCount = 7
	readDepth     = 1
)

// endpointConfig is what Dialer and ListenConfig say about a connection.
type endpointConfig struct {
	readBuffer, writeBuffer int
	keepAlive               net.KeepAliveConfig
	closeTimeout            time.Duration
}

// keepAlive merges the two keepalive fields as package net does: the
// configuration counts if it is enabled; otherwise a KeepAlive of 0 is on with
// the defaults, a positive one is the idle time alone, a negative one is off. A
// negative field of the configuration, which for package net leaves the system's
// value, is the default: RDMA has no such value.
func keepAlive(d time.Duration, cfg net.KeepAliveConfig) net.KeepAliveConfig {
	switch {
	case cfg.Enable:
		return net.KeepAliveConfig{Enable: true, Idle: max(cfg.Idle, 0), Interval: max(cfg.Interval, 0), Count: max(cfg.Count, 0)}
	case d < 0:
		return net.KeepAliveConfig{}
	}
	return net.KeepAliveConfig{Enable: true, Idle: d}
}

// A tcpKeepAliver is an identifier of the software NIC, whose TCP connection has
// a keepalive of its own.
type tcpKeepAliver interface {
	SetKeepAlive(net.KeepAliveConfig) error
}

// endpoint builds the stream of a connection for the dial and the accept
// sequence.
type endpoint struct {
	cfg       endpointConfig
	accepting bool
	reads     int // Reads that may be outstanding towards the peer
	stream    *rsocket.Stream
	info      Info
	up        bool // the connection is established
}

var _ cm.Endpoint = (*endpoint)(nil)

func newEndpoint(cfg endpointConfig) *endpoint { return &endpoint{cfg: cfg} }

// Prepare opens the stream. On the accepting side it reads the peer's header
// before that, so that a peer that is no rsocket costs no memory.
func (e *endpoint) Prepare(id cm.ID, request cm.Event) (cm.ConnParam, error) {
	dev, err := id.Device()
	if err != nil {
		return cm.ConnParam{}, err
	}
	e.accepting = request.Type == cm.ConnectRequest
	ib := !id.RemoteAddr().IsValid() // both ends have InfiniBand addresses
	param := cm.ConnParam{
		ResponderResources: readDepth, InitiatorDepth: readDepth,
		FlowControl: 1, RetryCount: retryCount, RNRRetryCount: rnrRetryCount,
	}
	var peer rsocket.Header
	if e.accepting {
		if peer, err = rsocket.ParseHeader(request.Param.PrivateData, ib); err != nil {
			return cm.ConnParam{}, err
		}
		// A request tells what the peer wants to be served, and what it serves.
		param.ResponderResources = min(param.ResponderResources, request.Param.ResponderResources)
		param.InitiatorDepth = min(param.InitiatorDepth, request.Param.InitiatorDepth)
		e.reads = int(param.InitiatorDepth)
	}
	if tcp, ok := id.(tcpKeepAliver); ok {
		if err := tcp.SetKeepAlive(e.cfg.keepAlive); err != nil {
			return cm.ConnParam{}, err
		}
	}
	e.stream, err = rsocket.Open(rsocket.MemoryOf(dev), id.CreateQP, rsocket.Config{
		ReadBuffer: e.cfg.readBuffer, WriteBuffer: e.cfg.writeBuffer,
		Acceptor: e.accepting, KeepAlive: e.cfg.keepAlive,
	})
	if err != nil {
		return cm.ConnParam{}, err
	}
	if e.accepting {
		e.stream.Start(peer, e.reads)
	}
	e.info = infoOf(dev.Info(), id.Port(), e.stream)
	ours := e.stream.Header()
	param.PrivateData = ours.AppendRequest(nil, false) // cm puts the header of InfiniBand addresses in front
	return param, nil
}

// Established lets the stream send. On the dialing side the peer's header, and
// the Reads that it serves, come with the event.
func (e *endpoint) Established(ev cm.Event) error {
	if !e.accepting {
		peer, err := rsocket.ParseHeader(ev.Param.PrivateData, false)
		if err != nil {
			return err
		}
		e.reads = min(readDepth, int(ev.Param.InitiatorDepth))
		e.stream.Start(peer, e.reads)
	}
	e.stream.Established()
	e.up = true
	return nil
}

// abandonTimeout is how long the peer of a connection that nobody wants gets to
// hear of its end.
const abandonTimeout = 100 * time.Millisecond

// Release gives up the stream. A peer that is connected is told first: a C
// reader does not wake for less.
func (e *endpoint) Release() {
	if e.stream == nil {
		return
	}
	if e.up {
		e.stream.Close(abandonTimeout)
	}
	e.stream.Release()
}
