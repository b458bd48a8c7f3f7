// Package hook puts rdmanet in the place of package net's TCP.
//
// Tests under trial import it, and it is compiled with them as a part of the
// standard library (see ../overlay.go). There package net has two variables that
// its Dial and Listen look at first; anywhere else, this package does nothing.
package hook

import (
	"context"
	"net"
	"os"
	"runtime"
	"strings"
	_ "unsafe" // for go:linkname

	"github.com/rdmanet/rdmanet/rdmanet"
)

// The variables of package net. The bool says whether the hook takes the call.

//go:linkname dial net.dropinDial
var dial func(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, bool, error)

//go:linkname listen net.dropinListen
var listen func(ctx context.Context, lc *net.ListenConfig, network, address string) (net.Listener, bool, error)

// DROPIN says what carries the connections, so that one binary serves both runs.
func init() {
	switch v := os.Getenv("DROPIN"); v {
	case "", "tcp":
	case "rdma":
		dial, listen = dialRDMA, listenRDMA
	default:
		panic("DROPIN is " + v + ", neither tcp nor rdma")
	}
}

func dialRDMA(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, bool, error) {
	if !isTCP(network) || forSockets() {
		return nil, false, nil
	}
	r := rdmanet.Dialer{
		Provider: rdmanet.Software,
		Timeout:  d.Timeout, Deadline: d.Deadline,
		LocalAddr: d.LocalAddr, Resolver: d.Resolver,
		KeepAlive: d.KeepAlive, KeepAliveConfig: d.KeepAliveConfig,
		FallbackDelay: d.FallbackDelay,
	}
	c, err := r.DialContext(ctx, network, address)
	return c, true, err
}

func listenRDMA(ctx context.Context, lc *net.ListenConfig, network, address string) (net.Listener, bool, error) {
	if !isTCP(network) || forSockets() {
		return nil, false, nil
	}
	r := rdmanet.ListenConfig{
		Provider:  rdmanet.Software,
		KeepAlive: lc.KeepAlive, KeepAliveConfig: lc.KeepAliveConfig,
	}
	l, err := r.Listen(ctx, network, address)
	return l, true, err
}

func isTCP(network string) bool {
	return network == "tcp" || network == "tcp4" || network == "tcp6"
}

// forSockets tells whether a call is for a socket that must remain one: the
// software NIC's own, or one to a name server.
func forSockets() bool {
	pcs := make([]uintptr, 16)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		f, more := frames.Next()
		if strings.HasPrefix(f.Function, "net.(*Resolver)") {
			return true
		}
		if !strings.HasPrefix(f.Function, "net.") || !more {
			return strings.Contains(f.Function, "github.com/rdmanet/rdmanet/internal/")
		}
	}
}
