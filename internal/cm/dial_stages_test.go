package cm_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/cm/scripted"
)

func TestDialSucceeds(t *testing.T) {
	forEachStage(t, func(t *testing.T, c stageCase) {
		reply := cm.Event{Type: cm.Established, Param: cm.ConnParam{PrivateData: []byte("reply")}}
		script := scripted.Script{scripted.Connect: {scripted.After(time.Millisecond, reply)}}
		for name, steps := range c.base {
			script[name] = steps
		}
		p := c.provider(script)
		r := request(p)
		r.Local.AddrPort = netip.MustParseAddrPort("192.0.2.1:5000")
		conn, err := cm.NewManager(p).Dial(t.Context(), r)
		require.NoError(t, err)

		id := p.ID(0)
		require.Len(t, id.Called(c.call), 1)
		require.Equal(t, "192.0.2.1:5000", conn.Local.String())
		require.Equal(t, "192.0.2.7:9000", conn.Remote.String())
		require.Equal(t, "reply", string(p.Endpoints()[0].Answer().Param.PrivateData))
		require.Equal(t, "hello", string(id.Called(scripted.Connect)[0].Param.PrivateData))
		require.Same(t, p.Endpoints()[0], conn.Endpoint)

		resolve := id.Called(scripted.ResolveAddr)[0]
		require.Equal(t, "192.0.2.1:5000", resolve.Src.String())
		require.Equal(t, "192.0.2.7:9000", resolve.Dst.String())

		synctest.Wait()
		require.Zero(t, id.Destroyed())
		require.Zero(t, p.Endpoints()[0].Released())
		finish(conn)
		requireClean(t, p)
	})
}

// The event may be there before the call has returned.
func TestDialEventBeforeCallReturns(t *testing.T) {
	forEachStage(t, func(t *testing.T, c stageCase) {
		if c.answer == cm.None {
			return
		}
		p := c.provider(c.script(scripted.Before(cm.Event{Type: c.answer})))
		conn, err := cm.NewManager(p).Dial(t.Context(), request(p))
		require.NoError(t, err)
		finish(conn)
		requireClean(t, p)
	})
}

func TestDialFailingEvent(t *testing.T) {
	statuses := map[cm.EventType]map[int]syscall.Errno{
		cm.AddrInfoError: {status(syscall.EINVAL): syscall.EINVAL, int(syscall.ENOENT): syscall.ENOENT, 0: syscall.EHOSTUNREACH},
		cm.AddrError:     {status(syscall.ENODEV): syscall.ENODEV, status(syscall.ENETUNREACH): syscall.ENETUNREACH, 0: syscall.EHOSTUNREACH},
		cm.RouteError:    {status(syscall.EINVAL): syscall.EINVAL, 3: syscall.EHOSTUNREACH},
		cm.Rejected: {8: syscall.ECONNREFUSED, 10: syscall.EAGAIN, 28: syscall.ECONNREFUSED, 4: syscall.ETIMEDOUT,
			status(syscall.ECONNRESET): syscall.ECONNREFUSED, 0: syscall.ECONNREFUSED},
		cm.Unreachable: {status(syscall.ETIMEDOUT): syscall.ETIMEDOUT, status(syscall.ENETUNREACH): syscall.ENETUNREACH,
			7: syscall.EHOSTUNREACH, 0: syscall.EHOSTUNREACH},
		cm.ConnectError: {status(syscall.EINVAL): syscall.EINVAL, 0: syscall.ECONNABORTED, 5: syscall.ECONNABORTED},
		cm.Disconnected: {0: syscall.ECONNRESET, status(syscall.ETIMEDOUT): syscall.ECONNRESET},
	}
	forEachStage(t, func(t *testing.T, c stageCase) {
		for _, typ := range c.fails {
			require.NotEmpty(t, statuses[typ], "no statuses for %v", typ)
			for st, errno := range statuses[typ] {
				p := c.provider(c.script(scripted.Event(typ, st)))
				_, err := cm.NewManager(p).Dial(t.Context(), request(p))
				e := stageError(t, err)
				require.Equal(t, c.stage, e.Stage)
				require.Equal(t, typ, e.Event)
				require.Equal(t, st, e.Status)
				require.Equal(t, errno, e.Errno, "%v %d", typ, st)
				require.ErrorIs(t, err, errno)
				require.Equal(t, errno == syscall.ETIMEDOUT, timeout(err))
				require.Equal(t, "192.0.2.7:9000", e.Addr.String())
				require.Contains(t, err.Error(), c.stage.String()+": ")
				require.Contains(t, err.Error(), typ.String())
				requireClean(t, p)
				c.requireStopped(t, p.ID(0))
			}
		}
	})
}

// An event of the right type with a status is a failure too.
func TestDialAnswerWithStatus(t *testing.T) {
	forEachStage(t, func(t *testing.T, c stageCase) {
		if c.answer == cm.None {
			return
		}
		for st, errno := range map[int]syscall.Errno{status(syscall.EIO): syscall.EIO, 77: syscall.EPROTO} {
			p := c.provider(c.script(scripted.Event(c.answer, st)))
			_, err := cm.NewManager(p).Dial(t.Context(), request(p))
			require.ErrorIs(t, err, errno)
			require.Equal(t, c.stage, stageError(t, err).Stage)
			requireClean(t, p)
		}
	})
}

func TestDialCallFails(t *testing.T) {
	forEachStage(t, func(t *testing.T, c stageCase) {
		for _, errno := range []syscall.Errno{syscall.ENETUNREACH, syscall.ENODEV, syscall.ECONNREFUSED, syscall.EINVAL, syscall.ENOMEM} {
			cause := fmt.Errorf("rdma_something: %w", errno)
			script := c.script(scripted.Fail(cause))
			if c.call == scripted.ResolveAddrInfo {
				// Both calls have to fail: see addrinfo_test.go.
				script[scripted.GetAddrInfo] = []scripted.Step{scripted.Fail(cause)}
			}
			p := c.provider(script)
			_, err := cm.NewManager(p).Dial(t.Context(), request(p))
			e := stageError(t, err)
			require.Equal(t, c.stage, e.Stage)
			require.Equal(t, cm.None, e.Event)
			require.Equal(t, errno, e.Errno)
			require.ErrorIs(t, err, errno)
			require.ErrorIs(t, err, cause)
			require.False(t, timeout(err))
			require.Equal(t, errno == syscall.ENOMEM, temporary(err))
			requireClean(t, p)
			require.Empty(t, p.ID(0).Called(scripted.Interrupt))
		}
	})
}

func TestDialWrongEvent(t *testing.T) {
	harmless := []cm.EventType{cm.None, cm.AddrChange, cm.TimewaitExit, cm.DeviceRemoval}
	forEachStage(t, func(t *testing.T, c stageCase) {
		if c.answer == cm.None {
			return
		}
		tried := 0
		for typ := cm.None; typ <= cm.UnknownEvent; typ++ {
			if slices.Contains(harmless, typ) || typ == c.answer || slices.Contains(c.fails, typ) {
				continue
			}
			tried++
			p := c.provider(c.script(scripted.Event(typ, 0)))
			_, err := cm.NewManager(p).Dial(t.Context(), request(p))
			e := stageError(t, err)
			require.ErrorIs(t, err, syscall.EPROTO)
			require.Equal(t, syscall.EPROTO, e.Errno)
			require.Equal(t, typ, e.Event)
			require.Equal(t, c.stage, e.Stage)
			require.Contains(t, err.Error(), typ.String())
			require.Contains(t, err.Error(), c.answer.String())
			requireClean(t, p)
		}
		require.Greater(t, tried, 5)
	})
}

func TestDialIgnoresWhatDoesNotBelong(t *testing.T) {
	forEachStage(t, func(t *testing.T, c stageCase) {
		if c.answer == cm.None {
			return
		}
		p := c.provider(c.script(scripted.Both(
			scripted.Both(scripted.Before(cm.Event{Type: cm.AddrChange}), scripted.Before(cm.Event{Type: cm.TimewaitExit, Status: -1})),
			scripted.After(time.Second, cm.Event{Type: c.answer}))))
		conn, err := cm.NewManager(p).Dial(t.Context(), request(p))
		require.NoError(t, err)
		finish(conn)
		requireClean(t, p)
	})
}

func TestDialDeviceRemoval(t *testing.T) {
	forEachStage(t, func(t *testing.T, c stageCase) {
		step := scripted.Before(cm.Event{Type: cm.DeviceRemoval})
		p := c.provider(c.script(step))
		_, err := cm.NewManager(p).Dial(t.Context(), request(p))
		e := stageError(t, err)
		require.ErrorIs(t, err, syscall.ENODEV)
		require.Equal(t, cm.DeviceRemoval, e.Event)
		if c.answer != cm.None { // else the next stage meets it
			require.Equal(t, c.stage, e.Stage)
		}
		requireClean(t, p)
	})
}

// Address resolution can succeed and name no device.
func TestDialNoDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider(scripted.Script{scripted.Device: {scripted.Fail(syscall.ENODEV)}})
		_, err := cm.NewManager(p).Dial(t.Context(), request(p))
		require.ErrorIs(t, err, syscall.ENODEV)
		require.Equal(t, cm.StageAddr, stageError(t, err).Stage)
		require.Empty(t, p.Endpoints())
		requireClean(t, p)
	})
}

func TestDialNoProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("librdmacm.so.1 was not found (package librdmacm1)")
		p := scripted.NewProvider(scripted.Script{scripted.NewID: {scripted.Fail(cause)}})
		r := request(p)
		r.Host, r.Names = "several", names("192.0.2.1", "192.0.2.2")
		_, err := cm.NewManager(p).Dial(t.Context(), r)
		require.ErrorIs(t, err, cause)
		require.Equal(t, cm.StageOpen, stageError(t, err).Stage) // one error, not one for each address
		require.False(t, timeout(err))
		requireClean(t, p)
	})
}

func TestDialEndpoint(t *testing.T) {
	refusal := errors.New("not our private data")
	for name, set := range map[string]func(ep *scripted.Endpoint){
		"prepare":     func(ep *scripted.Endpoint) { ep.OnPrepare = func(cm.ID, cm.Event) error { return refusal } },
		"established": func(ep *scripted.Endpoint) { ep.OnEstablished = func(cm.Event) error { return refusal } },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := scripted.NewProvider()
				r := request(p)
				r.NewEndpoint = func() cm.Endpoint {
					ep := p.NewEndpoint()
					set(ep)
					return ep
				}
				_, err := cm.NewManager(p).Dial(t.Context(), r)
				require.ErrorIs(t, err, refusal)
				require.Equal(t, cm.StageConnect, stageError(t, err).Stage)
				requireClean(t, p)
				require.Equal(t, name == "established", len(p.ID(0).Called(scripted.Connect)) == 1)
			})
		})
	}
	t.Run("queue pair", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := scripted.NewProvider(scripted.Script{scripted.CreateQP: {scripted.Fail(syscall.ENOMEM)}})
			_, err := cm.NewManager(p).Dial(t.Context(), request(p))
			require.ErrorIs(t, err, syscall.ENOMEM)
			require.True(t, temporary(err))
			require.EqualError(t, err, "connect: "+syscall.ENOMEM.Error(), "no hint: the provider knows why, and says so")
			requireClean(t, p)
		})
	})
}

// What comes after ESTABLISHED belongs to the new owner, whenever it comes and
// whenever the owner asks.
func TestDialKeepsLaterEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider(scripted.Script{scripted.Connect: {scripted.Both(
			scripted.Before(cm.Event{Type: cm.Established}),
			scripted.Before(cm.Event{Type: cm.Unreachable, Status: 1}))}})
		conn, err := cm.NewManager(p).Dial(t.Context(), request(p))
		require.NoError(t, err)
		p.ID(0).Deliver(cm.Event{Type: cm.Unreachable, Status: 2})

		var got []int
		handler := func(ev cm.Event) { got = append(got, ev.Status) }
		conn.Handle(nil)
		conn.Handle(handler)
		require.Equal(t, []int{1, 2}, got)
		p.ID(0).Deliver(cm.Event{Type: cm.Disconnected, Status: 3})
		require.Equal(t, []int{1, 2, 3}, got)
		conn.Handle(handler)
		require.Equal(t, []int{1, 2, 3}, got, "each once")
		finish(conn)
		requireClean(t, p)
	})
}

func TestDialNeedsNoContextAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		conn, err := cm.NewManager(p).Dial(ctx, request(p))
		require.NoError(t, err)
		cancel()
		time.Sleep(time.Minute)
		require.Empty(t, p.ID(0).Called(scripted.Interrupt))
		require.Zero(t, p.ID(0).Destroyed())
		finish(conn)
		requireClean(t, p)
	})
}
