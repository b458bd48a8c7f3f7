package rdmanet

import (
	"context"
	"net"
	"net/netip"
	"reflect"
	"sync"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// net/http/httptrace leaves its hooks for package net in the context, under a key
// and in a structure of the package internal/nettrace, which nobody else can
// import. Importing httptrace instead would bring crypto/tls into every program
// that dials, 1.3 MB, and its functions only add hooks and cannot hide any. So
// package net is asked: every dial of its looks for the key in its context. The
// fields are found by their names. Where that finds nothing, nothing is traced.
var netTraceKey = sync.OnceValue(func() any {
	probe := &keyProbe{Context: context.Background()}
	_, _ = (&net.Dialer{}).DialContext(probe, "no network", "") // fails behind the look
	return probe.key
})

type keyProbe struct {
	context.Context
	key any
}

func (p *keyProbe) Value(key any) any {
	if t := reflect.TypeOf(key); t.PkgPath() == "internal/nettrace" && t.Name() == "TraceKey" {
		p.key = key
	}
	return nil
}

// A netTrace is what a context holds for package net. The zero value is nothing.
type netTrace struct{ hooks reflect.Value }

func netTraceOf(ctx context.Context) netTrace {
	key := netTraceKey()
	if key == nil {
		return netTrace{}
	}
	v := reflect.ValueOf(ctx.Value(key))
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return netTrace{}
	}
	return netTrace{v.Elem()}
}

func (t netTrace) isZero() bool { return !t.hooks.IsValid() }

// netHook is a hook of the trace; nil if it has none.
func netHook[T any](t netTrace, name string) (hook T) {
	if f := t.hooks.FieldByName(name); f.IsValid() {
		hook, _ = f.Interface().(T)
	}
	return hook
}

// with is a context in which package net finds these hooks in place of the trace's.
func (t netTrace) with(ctx context.Context, start func(network, addr string), done func(network, addr string, err error), dns bool) context.Context {
	if t.isZero() {
		return ctx
	}
	shadow := reflect.New(t.hooks.Type())
	shadow.Elem().Set(t.hooks)
	set := func(name string, hook reflect.Value) {
		if f := shadow.Elem().FieldByName(name); f.IsValid() && (!hook.IsValid() || hook.Type() == f.Type()) {
			if !hook.IsValid() {
				hook = reflect.Zero(f.Type())
			}
			f.Set(hook)
		}
	}
	set("ConnectStart", reflect.ValueOf(start))
	set("ConnectDone", reflect.ValueOf(done))
	if !dns {
		set("DNSStart", reflect.Value{})
		set("DNSDone", reflect.Value{})
	}
	return context.WithValue(ctx, netTraceKey(), shadow.Interface())
}

// quiet is the context for a look-up: the sockets of the resolver are not what is
// dialed.
func (t netTrace) quiet(ctx context.Context) context.Context { return t.with(ctx, nil, nil, true) }

// connects calls ConnectStart and ConnectDone, each once for each address, however
// many providers try it: the first when the first of them does, the second when one
// has connected, or the last that may still try it has failed, and at the latest
// when the dial is over. A nil *connects does nothing.
type connects struct {
	trace   netTrace
	network string // as package net calls it
	start   func(network, addr string)
	done    func(network, addr string, err error)

	mu    sync.Mutex // held while hooks are called, so that they come in order
	addrs []*connectAddr
	left  uint64 // a bit for each way that is not over
	over  bool
}

type connectAddr struct {
	network, addr string
	failed        uint64 // a bit for each way that has failed here
	err           error  // the last
	done          bool
}

// newConnects returns nil where nobody wants to know.
func newConnects(t netTrace, network string, ways int) *connects {
	if t.isZero() {
		return nil
	}
	c := &connects{trace: t, network: network, left: 1<<ways - 1}
	c.start = netHook[func(network, addr string)](t, "ConnectStart")
	c.done = netHook[func(network, addr string, err error)](t, "ConnectDone")
	if c.start == nil && c.done == nil {
		return nil
	}
	return c
}

func (c *connects) at(network, addr string) *connectAddr {
	for _, a := range c.addrs {
		if a.network == network && a.addr == addr {
			return a
		}
	}
	a := &connectAddr{network: network, addr: addr}
	c.addrs = append(c.addrs, a)
	if c.start != nil {
		c.start(network, addr)
	}
	return a
}

// begin is called when a way begins with an address, end when it is through.
func (c *connects) begin(network, addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.at(network, addr)
	}
}

func (c *connects) end(way int, network, addr string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	a := c.at(network, addr)
	a.failed |= 1 << way
	a.err = err
	if err == nil || c.left&^a.failed == 0 {
		c.finish(a, err)
	}
}

func (c *connects) finish(a *connectAddr, err error) {
	if a.done {
		return
	}
	a.done = true
	if c.done != nil {
		c.done(a.network, a.addr, err)
	}
}

// wayOver is called when a way has failed: it tries nothing any more.
func (c *connects) wayOver(way int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left &^= 1 << way
	for _, a := range c.addrs {
		if !c.over && a.failed != 0 && c.left&^a.failed == 0 {
			c.finish(a, a.err)
		}
	}
}

// close ends the dial for the hooks: what has not come to an end fails with err.
func (c *connects) close(err error) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for _, a := range c.addrs {
		if a.err == nil {
			a.err = err
		}
		c.finish(a, a.err)
	}
}

// provider adds the hooks to the connection manager's trace of a provider's dial.
func (c *connects) provider(t *cm.Trace, way int, wrap func(netip.AddrPort, error) error) *cm.Trace {
	if c == nil {
		return t
	}
	traced := &cm.Trace{}
	if t != nil {
		*traced = *t
	}
	traced.AddrStart = func(a cm.Addr) {
		if a.IB == nil {
			c.begin(c.network, a.AddrPort.String())
		}
	}
	traced.AddrDone = func(a cm.Addr, err error) {
		if a.IB == nil {
			if err != nil {
				err = wrap(a.AddrPort, err)
			}
			c.end(way, c.network, a.AddrPort.String(), err)
		}
	}
	return traced
}

// fallback is the context for Dialer.Fallback, whose net.Dialer has hooks of its
// own to call. lookedUp says that the name has been looked up, and told of, before.
func (c *connects) fallback(ctx context.Context, way int, lookedUp bool) context.Context {
	if c == nil { // then there are no hooks but those of a look-up
		return netTraceOf(ctx).with(ctx, nil, nil, !lookedUp)
	}
	return c.trace.with(ctx, c.begin, func(network, addr string, err error) { c.end(way, network, addr, err) }, !lookedUp)
}
