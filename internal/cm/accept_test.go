package cm_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/cm/scripted"
)

// silentPeer begins its handshake and never finishes it.
var silentPeer = scripted.Script{scripted.Accept: {scripted.Silent()}}

var errNotOurs = errors.New("private data: version 2")

// choosy makes endpoints that refuse the private data "bad", and have no memory
// for "big".
func choosy(p *scripted.Provider) func() cm.Endpoint {
	return func() cm.Endpoint {
		ep := p.NewEndpoint()
		ep.OnPrepare = func(_ cm.ID, request cm.Event) error {
			switch {
			case bytes.Equal(request.Param.PrivateData, []byte("bad")):
				return errNotOurs
			case bytes.Equal(request.Param.PrivateData, []byte("big")):
				return &scriptedError{"ibv_reg_mr: cannot allocate memory", syscall.ENOMEM}
			}
			return nil
		}
		return ep
	}
}

func saying(data string) cm.ConnParam { return cm.ConnParam{PrivateData: []byte(data)} }

// refusals collects what a listener's Refused is told.
type refusals struct {
	mu   sync.Mutex
	errs []error
}

func (r *refusals) hook(_ cm.Addr, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

func (r *refusals) all() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]error(nil), r.errs...)
}

func TestAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		l := listen(t, p, listenRequest(p))
		id := p.ID(0).Request(saying("request"), scripted.Script{
			scripted.Accept: {scripted.After(time.Second, cm.Event{Type: cm.Established, Param: saying("more")})}})
		conn, err := l.Accept()
		require.NoError(t, err)
		require.Same(t, id, conn.ID)
		require.Equal(t, "192.0.2.9:40000", conn.Remote.String())
		require.Equal(t, "192.0.2.1:9000", conn.Local.String())
		ep := p.Endpoints()[0]
		require.Same(t, ep, conn.Endpoint)
		require.Equal(t, "request", string(ep.Request().Param.PrivateData))
		require.Equal(t, "more", string(ep.Answer().Param.PrivateData))
		require.Equal(t, "hello", string(id.Called(scripted.Accept)[0].Param.PrivateData))

		require.NoError(t, l.Close())
		synctest.Wait()
		require.Zero(t, id.Destroyed(), "Close leaves alone what Accept has returned")
		require.Empty(t, id.Called(scripted.Interrupt))
		finish(conn)
		requireClean(t, p)
	})
}

// A peer that fails is nobody's business but its own.
func TestBadPeers(t *testing.T) {
	for name, c := range map[string]struct {
		data     string
		script   scripted.Script
		rejected bool
		after    time.Duration // when it is gone
		err      error
	}{
		"bad private data":    {data: "bad", rejected: true, err: errNotOurs},
		"reject fails":        {data: "bad", rejected: true, err: errNotOurs, script: scripted.Script{scripted.Reject: {scripted.Fail(syscall.EINVAL)}}},
		"no queue pair":       {rejected: true, err: syscall.EINVAL, script: scripted.Script{scripted.CreateQP: {scripted.Fail(syscall.EINVAL)}}},
		"accept fails":        {err: syscall.ECONNRESET, script: scripted.Script{scripted.Accept: {scripted.Fail(syscall.ECONNRESET)}}},
		"never finishes":      {after: 10 * time.Second, script: silentPeer},
		"accept blocks":       {after: 10 * time.Second, script: scripted.Script{scripted.Accept: {scripted.Block(time.Hour, scripted.Silent())}}},
		"rejects us":          {err: syscall.ECONNREFUSED, script: scripted.Script{scripted.Accept: {scripted.Event(cm.Rejected, 28)}}},
		"unreachable":         {err: syscall.ETIMEDOUT, script: scripted.Script{scripted.Accept: {scripted.Event(cm.Unreachable, status(syscall.ETIMEDOUT))}}},
		"connect error":       {err: syscall.EINVAL, script: scripted.Script{scripted.Accept: {scripted.Event(cm.ConnectError, status(syscall.EINVAL))}}},
		"gone":                {err: syscall.ECONNRESET, script: scripted.Script{scripted.Accept: {scripted.Event(cm.Disconnected, 0)}}},
		"device removed":      {err: syscall.ENODEV, script: scripted.Script{scripted.Accept: {scripted.Event(cm.DeviceRemoval, 0)}}},
		"wrong event":         {err: syscall.EPROTO, script: scripted.Script{scripted.Accept: {scripted.Event(cm.RouteResolved, 0)}}},
		"established, failed": {err: syscall.EIO, script: scripted.Script{scripted.Accept: {scripted.Event(cm.Established, status(syscall.EIO))}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := scripted.NewProvider()
				r := listenRequest(p)
				r.NewEndpoint = choosy(p)
				var refused refusals
				r.Refused = refused.hook
				l := listen(t, p, r)
				bad := p.ID(0).Request(saying(c.data), c.script)
				good := p.ID(0).Request(saying("good"), nil)
				conn, err := l.Accept()
				require.NoError(t, err)
				require.Same(t, good, conn.ID, "the bad one delays nobody")
				finish(conn)

				if c.after > 0 {
					time.Sleep(c.after - time.Millisecond)
					synctest.Wait()
					require.Zero(t, bad.Destroyed())
					time.Sleep(time.Millisecond)
				}
				synctest.Wait()
				require.Equal(t, 1, bad.Destroyed())
				require.Equal(t, c.rejected, len(bad.Called(scripted.Reject)) == 1)
				require.Len(t, refused.all(), 1)
				if c.err != nil {
					require.ErrorIs(t, refused.all()[0], c.err)
				} else {
					require.ErrorContains(t, refused.all()[0], "did not finish its handshake in time")
				}

				require.NoError(t, l.SetDeadline(time.Now().Add(time.Hour)))
				_, err = l.Accept()
				require.ErrorIs(t, err, os.ErrDeadlineExceeded, "nothing of it comes out of Accept")
				require.NoError(t, l.Close())
				requireClean(t, p)
			})
		})
	}
}

func TestAcceptEndpointRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		r := listenRequest(p)
		r.NewEndpoint = func() cm.Endpoint {
			ep := p.NewEndpoint()
			ep.OnEstablished = func(cm.Event) error { return errNotOurs }
			return ep
		}
		var refused refusals
		r.Refused = refused.hook
		l := listen(t, p, r)
		p.ID(0).Request(cm.ConnParam{}, nil)
		synctest.Wait()
		require.ErrorIs(t, refused.all()[0], errNotOurs)
		require.NoError(t, l.Close())
		requireClean(t, p)
	})
}

func TestHandshakeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		r := listenRequest(p)
		r.HandshakeTimeout = 300 * time.Millisecond
		l := listen(t, p, r)
		slow := p.ID(0).Request(cm.ConnParam{}, scripted.Script{scripted.Accept: {scripted.Both(
			scripted.Before(cm.Event{Type: cm.AddrChange}), scripted.After(299*time.Millisecond, cm.Event{Type: cm.Established}))}})
		tooSlow := p.ID(0).Request(cm.ConnParam{}, scripted.Script{scripted.Accept: {scripted.After(301*time.Millisecond, cm.Event{Type: cm.Established})}})
		conn, err := l.Accept()
		require.NoError(t, err)
		require.Same(t, slow, conn.ID)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 1, tooSlow.Destroyed())
		require.Zero(t, slow.Destroyed(), "the time ends with the handshake")
		finish(conn)
		require.NoError(t, l.Close())
		requireClean(t, p)
	})
}

// The time counts until the endpoint has said yes.
func TestHandshakeTimeoutWhileEstablished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		r := listenRequest(p)
		r.NewEndpoint = func() cm.Endpoint {
			ep := p.NewEndpoint()
			ep.OnEstablished = func(cm.Event) error { time.Sleep(time.Minute); return nil }
			return ep
		}
		l := listen(t, p, r)
		p.ID(0).Request(cm.ConnParam{}, nil)
		require.NoError(t, l.SetDeadline(time.Now().Add(time.Hour)))
		_, err := l.Accept()
		require.Equal(t, os.ErrDeadlineExceeded, err, "an interrupted identifier is of no use")
		require.NoError(t, l.Close())
		requireClean(t, p)
	})
}

// A connection that has ended before Accept is handed out, with what has come.
func TestAcceptDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		l := listen(t, p, listenRequest(p))
		id := p.ID(0).Request(cm.ConnParam{}, scripted.Script{scripted.Accept: {scripted.Both(
			scripted.Before(cm.Event{Type: cm.Established}), scripted.Before(cm.Event{Type: cm.Unreachable}))}})
		synctest.Wait()
		id.Deliver(cm.Event{Type: cm.Disconnected})
		conn, err := l.Accept()
		require.NoError(t, err)
		id.Deliver(cm.Event{Type: cm.TimewaitExit})
		var got []cm.EventType
		conn.Handle(func(ev cm.Event) { got = append(got, ev.Type) })
		require.Equal(t, []cm.EventType{cm.Unreachable, cm.Disconnected, cm.TimewaitExit}, got)
		finish(conn)
		require.NoError(t, l.Close())
		requireClean(t, p)
	})
}

// Resources that are exhausted are reported, as something temporary, and not
// for every peer.
func TestAcceptExhausted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		r := listenRequest(p)
		r.NewEndpoint = choosy(p)
		l := listen(t, p, r)
		accept := func() error {
			require.NoError(t, l.SetDeadline(time.Now().Add(100*time.Millisecond)))
			conn, err := l.Accept()
			if err == nil {
				finish(conn)
			}
			return err
		}
		for range 100 {
			id := p.ID(0).Request(saying("big"), nil)
			synctest.Wait()
			require.Len(t, id.Called(scripted.Reject), 1)
		}
		err := accept()
		require.ErrorIs(t, err, syscall.ENOMEM)
		require.True(t, temporary(err))
		require.False(t, timeout(err))
		require.EqualError(t, err, "handshake: ibv_reg_mr: cannot allocate memory", "no hint: the provider knows why, and says so")
		require.Equal(t, cm.StageAccept, stageError(t, err).Stage)
		p.ID(0).Request(saying("big"), nil)
		require.ErrorIs(t, accept(), os.ErrDeadlineExceeded, "one a second")
		p.ID(0).Request(saying("good"), nil)
		require.NoError(t, accept(), "the listener goes on")

		time.Sleep(time.Second)
		p.ID(0).Request(saying("big"), nil)
		require.ErrorIs(t, accept(), syscall.ENOMEM, "the next second")
		require.NoError(t, l.Close())
		requireClean(t, p)
	})
}

func TestListenerDeviceRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		l := listen(t, p, listenRequest(p))
		p.ID(0).Deliver(cm.Event{Type: cm.DeviceRemoval})
		for range 2 { // for good
			_, err := l.Accept()
			require.ErrorIs(t, err, syscall.ENODEV)
			require.Equal(t, cm.DeviceRemoval, stageError(t, err).Event)
			require.False(t, temporary(err))
			require.False(t, timeout(err))
			require.ErrorContains(t, err, "listen again")
		}
		require.Equal(t, 1, p.ID(0).Destroyed(), "the device can go")
		require.NoError(t, l.Close())
		_, err := l.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
		requireClean(t, p)
	})
}

func TestWildcardListenerSurvivesDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		r := listenRequest(p)
		r.Host = ""
		l := listen(t, p, r)
		for _, ev := range []cm.EventType{cm.DeviceRemoval, cm.AddrChange, cm.UnknownEvent} {
			p.ID(0).Deliver(cm.Event{Type: ev})
		}
		p.ID(0).Request(cm.ConnParam{}, nil)
		conn, err := l.Accept()
		require.NoError(t, err)
		finish(conn)
		require.NoError(t, l.Close())
		requireClean(t, p)
	})
}

// Both identifiers of a listener feed it.
func TestAcceptFromBothFamilies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		r := listenRequest(p)
		r.Host = ""
		l := listen(t, p, r)
		for _, n := range []int{0, 1} {
			id := p.ID(n).Request(cm.ConnParam{}, nil)
			conn, err := l.Accept()
			require.NoError(t, err)
			require.Same(t, id, conn.ID)
			finish(conn)
		}
		require.NoError(t, l.Close())
		requireClean(t, p)
	})
}

func TestAcceptDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		l := listen(t, p, listenRequest(p))
		require.NoError(t, l.SetDeadline(time.Now().Add(time.Second)))
		began := time.Now()
		_, err := l.Accept()
		require.Equal(t, os.ErrDeadlineExceeded, err)
		require.Equal(t, time.Second, time.Since(began))

		// In the past it fails even if there is a connection.
		p.ID(0).Request(cm.ConnParam{}, nil)
		synctest.Wait()
		for range 20 {
			_, err = l.Accept()
			require.Equal(t, os.ErrDeadlineExceeded, err)
		}
		require.NoError(t, l.SetDeadline(time.Time{}))
		conn, err := l.Accept()
		require.NoError(t, err)
		finish(conn)

		// Set while Accepts wait, it ends all of them.
		done := make(chan error)
		for range 3 {
			go func() {
				_, err := l.Accept()
				done <- err
			}()
		}
		synctest.Wait()
		require.NoError(t, l.SetDeadline(time.Now().Add(-1)))
		for range 3 {
			require.Equal(t, os.ErrDeadlineExceeded, <-done)
		}
		require.NoError(t, l.Close())
		require.ErrorIs(t, l.SetDeadline(time.Now()), net.ErrClosed)
		requireClean(t, p)
	})
}

// What keeps a provider from taking peers comes out of Accept as a temporary error,
// one at a time and a second apart, whatever it is.
func TestTakingFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		l := listen(t, p, listenRequest(p))
		for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.EPERM, syscall.EIO} {
			for range 100 { // of which most are not told
				p.ID(0).Deliver(cm.Event{Type: cm.UnknownEvent, Status: status(errno), Err: fmt.Errorf("accept4: %w", errno)})
			}
			_, err := l.Accept()
			require.ErrorIs(t, err, errno)
			require.True(t, stageError(t, err).Temporary(), "%v", errno)
			require.False(t, stageError(t, err).Timeout())

			require.NoError(t, l.SetDeadline(time.Now().Add(2*time.Second)))
			_, err = l.Accept()
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.NoError(t, l.SetDeadline(time.Time{}))
		}
		p.ID(0).Request(cm.ConnParam{}, nil)
		conn, err := l.Accept()
		require.NoError(t, err, "it serves again")
		finish(conn)
		require.NoError(t, l.Close())
		requireClean(t, p)
	})
}
