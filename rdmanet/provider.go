package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/iwarp"
	"github.com/rdmanet/rdmanet/internal/rdmacore"
)

// Provider says what carries a connection.
type Provider uint8

const (
	// Auto is the default: a dial lets a device and the software NIC race,
	// the device first, and a listener serves peers of both. The environment
	// variable RDMANET_PROVIDER, if set to the name of another provider,
	// takes its place.
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

// managers holds for each provider how it was opened last.
var managers struct {
	sync.Mutex
	of map[Provider]*opening
}

// An opening is a provider being opened, and what has come of it. Its goroutine
// belongs to no dial: whoever wants the provider waits for done, as long as its
// context lasts. When it is over nobody touches done any more: it may have been made in
// a bubble of testing/synctest, out of which a channel must not be used.
type opening struct {
	over atomic.Bool   // what follows done is set
	done chan struct{} // closed then
	m    *cm.Manager
	err  error // errUnavailable too
	when time.Time
}

// openAgain spares a dial that falls back on the software NIC most of the time
// that it takes to find no device. After it a provider that could not be opened is
// tried anew, since a device may have come.
const openAgain = time.Second

// providerVariable is the environment variable that stands in for Auto.
const providerVariable = "RDMANET_PROVIDER"

// choices are the providers that p stands for, in the order in which a dial
// tries them. Network ib is a matter of devices.
func (p Provider) choices(network cm.Network) []Provider {
	if p == Auto {
		// What cannot be read there is no provider, and fails as one.
		if name := os.Getenv(providerVariable); name != "" && p.UnmarshalText([]byte(name)) != nil {
			p = Provider(len(providerNames))
		}
	}
	switch {
	case p != Auto:
		return []Provider{p}
	case network == cm.IB:
		return []Provider{Verbs}
	}
	return []Provider{Verbs, Software}
}

// manager returns the connection manager of a provider. Where the provider is not
// to be had, the error is errUnavailable too; where that cannot be told, for want of
// descriptors or memory, it is not. The context bounds the wait for a provider that is
// being opened.
func manager(ctx context.Context, p Provider) (*cm.Manager, error) {
	o := openingOf(p, open)
	if o.over.Load() {
		return o.m, o.err
	}
	select {
	case <-o.done:
		return o.m, o.err
	case <-ctx.Done():
		return nil, cm.Ended(ctx, cm.StageOpen)
	}
}

// openingOf is the opening of a provider that counts: begun now, if there is none.
func openingOf(p Provider, open func(Provider) (cm.Provider, error)) *opening {
	managers.Lock()
	defer managers.Unlock()
	if o := managers.of[p]; o != nil && !o.stale() {
		return o
	}
	o := &opening{done: make(chan struct{})}
	if managers.of == nil {
		managers.of = make(map[Provider]*opening)
	}
	managers.of[p] = o
	go func() {
		defer func() {
			o.over.Store(true)
			close(o.done)
		}()
		provider, err := open(p)
		switch {
		case scarce(err):
			o.err = &providerError{p, err} // not kept: it may pass at once
			return
		case err != nil:
			o.err, o.when = &unavailableError{providerError{p, err}}, time.Now()
			return
		}
		o.m = cm.NewManager(provider)
	}()
	return o
}

// stale reports whether an opening has failed so long ago that it is worth another
// try.
func (o *opening) stale() bool {
	return o.over.Load() && o.err != nil && time.Since(o.when) >= openAgain
}

func open(p Provider) (cm.Provider, error) {
	switch p {
	case Verbs:
		return rdmacore.Open()
	case Software:
		return iwarp.Open(iwarp.Config{})
	}
	return nil, fmt.Errorf("no such provider; is %s set to auto, verbs or software?", providerVariable)
}

// A providerError says why a provider could not be opened. It may pass.
type providerError struct {
	provider Provider
	err      error
}

func (e *providerError) Error() string {
	if int(e.provider) >= len(providerNames) {
		return fmt.Sprintf("%v: %v", e.provider, e.err)
	}
	return fmt.Sprintf("provider %v: %v", e.provider, e.err)
}
func (e *providerError) Unwrap() error   { return e.err }
func (e *providerError) Timeout() bool   { return false }
func (e *providerError) Temporary() bool { return true }

// An unavailableError says why a provider is not to be had.
type unavailableError struct{ providerError }

func (e *unavailableError) Unwrap() []error { return []error{errUnavailable, e.err} }
func (e *unavailableError) Temporary() bool { return false }

// scarce reports whether an error is for want of descriptors or memory, which
// says nothing of what this host has.
func scarce(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.EAGAIN} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
