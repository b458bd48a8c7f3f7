//go:build linux && cgo

package rdmacore

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// Dials that are abandoned at any moment, many at a time, against a listener that
// accepts, refuses or does nothing: the reader of events meets queue pairs that
// come and go under it.
func TestDeviceAbandonedDials(t *testing.T) {
	p, _ := needDevice(t)
	if strings.HasPrefix(os.Getenv("RDMANET_TEST_DEVICE"), "siw") {
		t.Skip("siw ends its listener when a dialer goes too soon: internal/cm/settle.go sees to that, and tests above it do")
	}
	noLeaks(t)
	const dialers, rounds = 6, 8
	l, at := listen(t, p, addr4(t), 64)
	accepted := make(chan *end, dialers*rounds)
	var accepting sync.WaitGroup
	stop := make(chan struct{})
	accepting.Go(func() {
		for n := 0; ; n++ {
			var ev cm.Event
			select {
			case <-stop:
				return
			case ev = <-l.events:
			}
			if ev.Type != cm.ConnectRequest {
				continue
			}
			a := newEnd(t, ev.Request)
			switch n % 3 {
			case 0:
				if err := makeQP(a); err == nil {
					a.id.Accept(param()) // fails if the dialer has gone
				}
			case 1:
				a.id.Reject(nil)
			}
			accepted <- a // to be torn down by another goroutine
		}
	})

	var dialing sync.WaitGroup
	errs := make(chan error, dialers*rounds)
	for range dialers {
		dialing.Go(func() {
			for range rounds {
				if err := abandon(p, at, time.Duration(rand.IntN(4000))*time.Microsecond); err != nil {
					errs <- err
				}
			}
		})
	}
	// Whoever the listener does nothing for keeps an iWARP dialer's queue pair for
	// 10 s; its end ends that.
	finished := make(chan struct{})
	go func() { dialing.Wait(); close(finished) }()
	for done := false; !done; {
		select {
		case <-finished:
			done = true
		case <-time.After(50 * time.Millisecond):
		}
		for len(accepted) > 0 {
			(<-accepted).tear(t)
		}
	}
	close(stop)
	accepting.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	for len(accepted) > 0 {
		(<-accepted).tear(t)
	}
	l.tear(t)

	// and all is well
	d, a := connect(t, p, addr4(t))
	disconnect(t, d, a)
	d.tear(t)
	a.tear(t)
}

// makeQP is build without a test that can fail.
func makeQP(e *end) (err error) {
	dev, err := e.id.Device()
	if err != nil {
		return err
	}
	if e.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	if e.cq, err = dev.NewCQ(8); err != nil {
		e.cq = nil
		return err
	}
	qp, err := e.id.CreateQP(e.pd, e.cq, verbs.QPAttr{SendDepth: 2, RecvDepth: 2})
	if err == nil {
		e.qp = qp
	}
	return err
}

// abandon dials, and after a while interrupts that and destroys everything.
func abandon(p cm.Provider, to cm.Addr, after time.Duration) error {
	id, err := p.NewID()
	if err != nil {
		return err
	}
	e := &end{id: id, events: make(chan cm.Event, 64)}
	id.Handle(func(ev cm.Event) { e.events <- ev })
	timer := time.AfterFunc(after, id.Interrupt)
	defer timer.Stop()
	if err := id.ResolveAddr(cm.Addr{}, to, 2000); err != nil {
		return err
	}
	if ev := <-e.events; ev.Type != cm.AddrResolved {
		return fmt.Errorf("%v %d", ev.Type, ev.Status)
	}
	if id.ResolveRoute(2000) == nil {
		if ev := <-e.events; ev.Type != cm.RouteResolved {
			return fmt.Errorf("%v %d", ev.Type, ev.Status)
		}
		if err := makeQP(e); err != nil {
			return err
		}
		id.Connect(param()) // interrupted, perhaps
		time.Sleep(after / 2)
	}
	if e.qp != nil {
		if err := e.qp.Destroy(); err != nil {
			return err
		}
	}
	if err := id.Destroy(); err != nil {
		return err
	}
	if e.cq != nil {
		if err := e.cq.Destroy(); err != nil {
			return err
		}
	}
	if e.pd != nil {
		return e.pd.Dealloc()
	}
	return nil
}

// Interrupt may be called at any time until Destroy, by anyone.
func TestDeviceInterruptRace(t *testing.T) {
	p, _ := needDevice(t)
	noLeaks(t)
	for range 20 {
		d := resolve(t, p, nobody(t))
		d.build(t)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
				d.id.Interrupt()
			})
		}
		d.id.Connect(param())
		wg.Wait()
		require.Error(t, d.id.Connect(param()))
		d.tear(t)
	}
}

// What a dial costs, to see what part of it is a thread (BenchmarkApart): on iWARP
// each dial has one.
func BenchmarkDeviceDial(b *testing.B) {
	p, _ := needDevice(b)
	for b.Loop() {
		d, a := connect(b, p, addr4(b))
		disconnect(b, d, a)
		d.tear(b)
		a.tear(b)
	}
}
