package cm_test

import (
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/cm/scripted"
)

// A plainConn is a connection of a peer that speaks no RDMA.
type plainConn struct {
	net.Conn
	closed atomic.Int32
}

func (c *plainConn) Close() error { c.closed.Add(1); return nil }

// withoutPlain is a provider whose identifiers are no cm.PlainIDs.
type withoutPlain struct{ *scripted.Provider }

func (p withoutPlain) NewID() (cm.ID, error) {
	id, err := p.Provider.NewID()
	return struct{ cm.ID }{id}, err
}

func plainRequest(p *scripted.Provider) cm.ListenRequest {
	r := listenRequest(p)
	r.Plain = true
	return r
}

// Only who asks for them gets plain connections, and only where there can be any.
func TestListenPlain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		l := listen(t, p, listenRequest(p))
		require.Empty(t, p.ID(0).Called(scripted.ListenPlain))
		require.Len(t, p.ID(0).Called(scripted.Listen), 1)
		require.NoError(t, l.Close())
		requireClean(t, p)

		p = scripted.NewProvider()
		l = listen(t, p, plainRequest(p))
		require.Equal(t, 1024, p.ID(0).Called(scripted.ListenPlain)[0].Backlog)
		require.Empty(t, p.ID(0).Called(scripted.Listen))
		require.NoError(t, l.Close())
		requireClean(t, p)

		p = scripted.NewProvider()
		l, err := cm.NewManager(withoutPlain{p}).Listen(t.Context(), plainRequest(p))
		require.NoError(t, err)
		require.Len(t, p.ID(0).Called(scripted.Listen), 1)
		require.NoError(t, l.Close())
		requireClean(t, p)
	})
}

// Plain connections and others come out of one Accept, the plain ones without an
// endpoint.
func TestAcceptPlain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		l := listen(t, p, plainRequest(p))
		for range 3 {
			c := &plainConn{}
			id := p.ID(0).RequestPlain(c, nil)
			conn, err := l.Accept()
			require.NoError(t, err)
			require.Same(t, c, conn.Plain)
			require.Nil(t, conn.ID)
			require.Nil(t, conn.Endpoint)
			require.Equal(t, "192.0.2.9:40000", conn.Remote.String())
			require.Equal(t, "192.0.2.1:9000", conn.Local.String())
			require.Equal(t, 1, id.Destroyed())
			require.Zero(t, c.closed.Load())
			require.Empty(t, p.Endpoints())
		}
		other := p.ID(0).Request(cm.ConnParam{}, nil)
		conn, err := l.Accept()
		require.NoError(t, err)
		require.Nil(t, conn.Plain)
		require.Same(t, other, conn.ID)
		finish(conn)
		require.NoError(t, l.Close())
		requireClean(t, p)
	})
}

// A plain connection that Accept has not returned takes a place in the backlog, and
// waits for one as the others do.
func TestPlainBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		r := plainRequest(p)
		r.Backlog = 2
		r.HandshakeTimeout = time.Minute
		var refused refusals
		r.Refused = refused.hook
		l := listen(t, p, r)
		conns := make([]*plainConn, 4)
		ids := make([]*scripted.ID, 4)
		for i := range conns {
			conns[i] = &plainConn{}
			ids[i] = p.ID(0).RequestPlain(conns[i], nil)
			synctest.Wait()
		}
		rdma := p.ID(0).Request(cm.ConnParam{}, nil)
		synctest.Wait()
		require.Empty(t, rdma.Called(scripted.Accept), "there is no room")
		require.Empty(t, ids[2].Called(scripted.AcceptPlain), "there is no room")

		conn, err := l.Accept()
		require.NoError(t, err)
		require.Same(t, conns[0], conn.Plain)
		synctest.Wait()
		require.Len(t, ids[2].Called(scripted.AcceptPlain), 1, "the next one has its place")

		time.Sleep(time.Minute)
		synctest.Wait()
		require.EqualValues(t, 1, conns[3].closed.Load(), "it has waited for too long")
		require.Len(t, ids[3].Called(scripted.Reject), 1)
		require.Len(t, rdma.Called(scripted.Reject), 1)
		require.Len(t, refused.all(), 2)
		for _, want := range conns[1:3] {
			conn, err := l.Accept()
			require.NoError(t, err)
			require.Same(t, want, conn.Plain)
		}
		require.NoError(t, l.Close())
		requireClean(t, p)
	})
}

// A plain connection takes the place of a handshake that does not end, as a request
// does.
func TestPlainEvicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		r := plainRequest(p)
		r.Backlog = 1
		l := listen(t, p, r)
		slow := p.ID(0).Request(cm.ConnParam{}, silentPeer)
		synctest.Wait()
		c := &plainConn{}
		began := time.Now()
		p.ID(0).RequestPlain(c, nil)
		conn, err := l.Accept()
		require.NoError(t, err)
		require.Same(t, c, conn.Plain)
		require.Equal(t, 2*time.Second, time.Since(began))
		synctest.Wait()
		require.Equal(t, 1, slow.Destroyed())
		require.NoError(t, l.Close())
		requireClean(t, p)
	})
}

// Close ends plain connections in every state, and leaves alone what Accept has
// returned.
func TestClosePlain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		r := plainRequest(p)
		r.Backlog = 1
		r.Refused = func(cm.Addr, error) { t.Error("Refused is called") }
		l := listen(t, p, r)
		accepted, queued, waiting := &plainConn{}, &plainConn{}, &plainConn{}
		p.ID(0).RequestPlain(accepted, nil)
		conn, err := l.Accept()
		require.NoError(t, err)
		require.Same(t, accepted, conn.Plain)
		p.ID(0).RequestPlain(queued, nil)
		synctest.Wait()
		p.ID(0).RequestPlain(waiting, nil)
		synctest.Wait()
		require.NoError(t, l.Close())
		synctest.Wait() // what Close leaves behind its caller
		require.Zero(t, accepted.closed.Load())
		require.EqualValues(t, 1, queued.closed.Load())
		require.EqualValues(t, 1, waiting.closed.Load())
		requireClean(t, p)
	})
}

// A connection that cannot be handed over is the provider's to close.
func TestAcceptPlainFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.NewProvider()
		r := plainRequest(p)
		var refused refusals
		r.Refused = refused.hook
		l := listen(t, p, r)
		bad, good := &plainConn{}, &plainConn{}
		p.ID(0).RequestPlain(bad, scripted.Script{scripted.AcceptPlain: {scripted.Fail(syscall.ECONNABORTED)}})
		p.ID(0).RequestPlain(good, nil)
		conn, err := l.Accept()
		require.NoError(t, err)
		require.Same(t, good, conn.Plain)
		synctest.Wait()
		require.EqualValues(t, 1, bad.closed.Load())
		require.ErrorIs(t, refused.all()[0], syscall.ECONNABORTED)
		require.Equal(t, cm.StageAccept, stageError(t, refused.all()[0]).Stage)
		require.NoError(t, l.Close())
		requireClean(t, p)
	})
}
