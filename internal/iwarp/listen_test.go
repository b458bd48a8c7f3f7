package iwarp

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// gone waits until the other side has closed the connection.
func (p *rawPeer) gone() {
	p.t.Helper()
	p.conn.SetReadDeadline(time.Now().Add(patience))
	_, err := io.Copy(io.Discard, p.conn)
	require.False(p.t, isTimeout(err), "the connection is still there")
}

// A peer that says nothing, or dribbles, costs one bounded wait; others are
// served meanwhile.
func TestSilentPeers(t *testing.T) {
	nic := openNIC(t, Config{RequestTimeout: 300 * time.Millisecond})
	lid, levents := listen(t, nic, "127.0.0.1:0")
	silent := dialRaw(t, lid.LocalAddr())
	slow := dialRaw(t, lid.LocalAddr())
	began := time.Now()
	go func() {
		for i := range len(requestKey) {
			if _, err := slow.conn.Write([]byte(requestKey[i : i+1])); err != nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	a := newEnd(t, nic, nil, verbs.QPAttr{})
	resolve(t, a.id, a.events, lid.LocalAddr())
	require.NoError(t, a.id.Connect(onePair))
	b := newEnd(t, nic, next(t, levents, cm.ConnectRequest).Request, verbs.QPAttr{})
	require.NoError(t, b.id.Accept(onePair))
	a.next(cm.Established)
	require.Less(t, time.Since(began), 250*time.Millisecond, "the others delay it")
	b.next(cm.Established)

	silent.gone()
	slow.gone()
	require.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond)
	require.NoError(t, lid.Destroy())
	disconnectPair(a, b)
}

// When too many say nothing, the oldest of them have to go, and who speaks gets
// through.
func TestSilentFlood(t *testing.T) {
	nic := openNIC(t, Config{RequestTimeout: time.Minute})
	lid, levents := listen(t, nic, "127.0.0.1:0") // backlog 16
	var peers []*rawPeer
	for range 40 {
		peers = append(peers, dialRaw(t, lid.LocalAddr()))
	}
	for _, p := range peers[:40-16] {
		p.gone()
	}
	p := dialRaw(t, lid.LocalAddr())
	p.write(appendSetup(nil, requestKey, &enhancedRequest))
	ev := next(t, levents, cm.ConnectRequest)
	require.NoError(t, ev.Request.Reject(nil))
	require.NoError(t, ev.Request.Destroy())
	require.True(t, p.readSetup(replyKey).reject)
	peers[39].silent(10 * time.Millisecond)
	require.NoError(t, lid.Destroy())
	for _, p := range peers {
		p.gone()
	}
	p.conn.Close()
}

// No more requests are handed out than the backlog, until some are decided; none
// is lost.
func TestBacklog(t *testing.T) {
	nic := openNIC(t, Config{})
	id := nic.newIdentifier()
	events := handle(id)
	require.NoError(t, id.Bind(cm.Addr{AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}, false))
	require.NoError(t, id.Listen(3))
	const peers = 10
	for range peers {
		dialRaw(t, id.LocalAddr()).write(appendSetup(nil, requestKey, &enhancedRequest))
	}
	var requests []cm.ID
	for range 3 {
		requests = append(requests, next(t, events, cm.ConnectRequest).Request)
	}
	// One more TCP connection may have been accepted before the third request
	// was there.
	time.Sleep(50 * time.Millisecond)
	require.LessOrEqual(t, len(events), 3)
	for n := 0; n < peers; n++ {
		if len(requests) == 0 {
			requests = append(requests, next(t, events, cm.ConnectRequest).Request)
		}
		require.NoError(t, requests[0].Reject(nil))
		require.NoError(t, requests[0].Destroy())
		requests = requests[1:]
	}
	require.NoError(t, id.Destroy())
}

// A listener that goes refuses what nobody has taken, and leaves alone what
// somebody has.
func TestListenerGoes(t *testing.T) {
	nic := openNIC(t, Config{})
	lid, levents := listen(t, nic, "127.0.0.1:0")
	taken := dialRaw(t, lid.LocalAddr())
	taken.write(appendSetup(nil, requestKey, &enhancedRequest))
	req := next(t, levents, cm.ConnectRequest)

	lid.Handle(nil) // from here on nobody takes
	left := dialRaw(t, lid.LocalAddr())
	left.write(appendSetup(nil, requestKey, &enhancedRequest))
	half := dialRaw(t, lid.LocalAddr())
	half.write([]byte(requestKey))
	time.Sleep(20 * time.Millisecond)
	addr := lid.LocalAddr()
	require.NoError(t, lid.Destroy())
	left.gone()
	half.gone()
	_, err := net.Dial("tcp", addr.String())
	require.Error(t, err)

	b := newEnd(t, nic, req.Request, verbs.QPAttr{})
	require.NoError(t, b.id.Accept(onePair))
	b.next(cm.Established)
	require.False(t, taken.readSetup(replyKey).reject)
	taken.conn.Close()
	b.awaitDisconnected()
	b.destroy()
}

// A dialer that has gone before it is accepted is noticed afterwards.
func TestDialerGone(t *testing.T) {
	nic := openNIC(t, Config{})
	lid, levents := listen(t, nic, "127.0.0.1:0")
	p := dialRaw(t, lid.LocalAddr())
	p.write(appendSetup(nil, requestKey, &enhancedRequest))
	req := next(t, levents, cm.ConnectRequest)
	p.conn.SetLinger(0)
	p.conn.Close()
	time.Sleep(10 * time.Millisecond)
	b := newEnd(t, nic, req.Request, verbs.QPAttr{})
	b.postRecv(1, 0, 4)
	if b.id.Accept(onePair) == nil {
		b.next(cm.Established)
		b.awaitDisconnected()
		b.want(1, verbs.WCWRFlushErr, 0)
	}
	b.destroy()
	require.NoError(t, lid.Destroy())
}
