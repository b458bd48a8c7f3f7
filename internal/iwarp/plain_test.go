package iwarp

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// listenPlain makes an identifier that serves peers that speak no MPA, too.
func listenPlain(t testing.TB, nic *NIC) (*identifier, chan cm.Event) {
	id := nic.newIdentifier()
	events := handle(id)
	require.NoError(t, id.Bind(cm.Addr{AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}, false))
	require.NoError(t, id.ListenPlain(16))
	return id, events
}

// nextPlain waits for a peer that speaks no MPA, and takes its connection.
func nextPlain(t testing.TB, events chan cm.Event) net.Conn {
	t.Helper()
	ev := next(t, events, cm.ConnectRequest)
	require.True(t, ev.Plain)
	require.Empty(t, ev.Param)
	conn, err := ev.Request.(cm.PlainID).AcceptPlain()
	require.NoError(t, err)
	require.NoError(t, ev.Request.Destroy())
	t.Cleanup(func() { conn.Close() })
	return conn
}

// differing is the key up to n bytes, and then something else.
func differing(n int) string { return requestKey[:n] + "\x00something else" }

// What a peer says is handed over as it was said, however it is cut.
func TestPlainPeers(t *testing.T) {
	nic := openNIC(t, Config{RequestTimeout: time.Minute})
	lid, events := listenPlain(t, nic)
	said := map[string][]string{
		"HTTP":                {"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"},
		"HTTP, M first":       {"MKCOL / HTTP/1.1\r\n\r\n"},
		"TLS":                 {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"},
		"one byte":            {"x"},
		"a zero":              {"\x00"},
		"another case":        {strings.ToLower(requestKey)},
		"a reply":             {replyKey + "\x10\x02\x00\x04\x00\x00\x00\x00"},
		"one byte at a time":  strings.Split("GET / HTTP/1.0", ""),
		"the key but its end": strings.Split(differing(15), ""),
		"much":                {strings.Repeat("0123456789abcdef", 10_000)},
	}
	for n := range len(requestKey) {
		said[requestKey[:n]+"|"] = []string{requestKey[:n], differing(n)[n:]}
		said[requestKey[:n]+", at once"] = []string{differing(n)}
	}
	for name, parts := range said {
		t.Run(name, func(t *testing.T) {
			p := dialRaw(t, lid.LocalAddr())
			want := strings.Join(parts, "")
			go func() {
				for _, part := range parts {
					if _, err := io.WriteString(p.conn, part); err != nil {
						return
					}
					time.Sleep(2 * time.Millisecond)
				}
			}()
			c := nextPlain(t, events)
			require.IsType(t, &net.TCPConn{}, c)
			require.Equal(t, p.conn.LocalAddr().String(), c.RemoteAddr().String())
			require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
			got := make([]byte, len(want))
			_, err := io.ReadFull(c, got)
			require.NoError(t, err)
			require.Equal(t, want, string(got))

			_, err = io.WriteString(c, "answer")
			require.NoError(t, err)
			require.NoError(t, c.(*net.TCPConn).CloseWrite())
			answer, err := io.ReadAll(p.conn)
			require.NoError(t, err)
			require.Equal(t, "answer", string(answer))
			p.conn.Close()
			n, err := c.Read(got)
			require.Zero(t, n)
			require.Equal(t, io.EOF, err)
		})
	}
	require.NoError(t, lid.Destroy())
}

// The bounds of the set-up end with it.
func TestPlainHasNoDeadline(t *testing.T) {
	nic := openNIC(t, Config{RequestTimeout: 100 * time.Millisecond})
	lid, events := listenPlain(t, nic)
	p := dialRaw(t, lid.LocalAddr())
	p.write([]byte("hello"))
	c := nextPlain(t, events)
	time.Sleep(200 * time.Millisecond)
	b := make([]byte, 5)
	_, err := io.ReadFull(c, b)
	require.NoError(t, err)
	time.AfterFunc(200*time.Millisecond, func() { p.conn.Write([]byte("later")) })
	_, err = io.ReadFull(c, b)
	require.NoError(t, err)
	require.Equal(t, "later", string(b))
	require.NoError(t, lid.Destroy())
}

// Peers that speak MPA are served on the same port, in one piece or dribbling, with
// plain ones between them.
func TestPlainBesideMPA(t *testing.T) {
	nic := openNIC(t, Config{RequestTimeout: time.Minute})
	lid, events := listenPlain(t, nic)
	for range 3 {
		dialRaw(t, lid.LocalAddr()).write([]byte("SSH-2.0-x\r\n"))
		nextPlain(t, events)

		a := newEnd(t, nic, nil, verbs.QPAttr{})
		resolve(t, a.id, a.events, lid.LocalAddr())
		require.NoError(t, a.id.Connect(onePair))
		ev := next(t, events, cm.ConnectRequest)
		require.False(t, ev.Plain)
		_, err := ev.Request.(cm.PlainID).AcceptPlain()
		require.ErrorIs(t, err, syscall.EINVAL)
		b := newEnd(t, nic, ev.Request, verbs.QPAttr{})
		require.NoError(t, b.id.Accept(onePair))
		b.next(cm.Established)
		a.next(cm.Established)
		exercise(a, b)
		disconnectPair(a, b)

		p := dialRaw(t, lid.LocalAddr())
		for _, c := range appendSetup(nil, requestKey, &enhancedRequest) {
			p.write([]byte{c})
			time.Sleep(2 * time.Millisecond)
		}
		ev = next(t, events, cm.ConnectRequest)
		require.False(t, ev.Plain)
		require.NoError(t, ev.Request.Reject(nil))
		require.NoError(t, ev.Request.Destroy())
		require.True(t, p.readSetup(replyKey).reject)
		p.conn.Close()
	}
	require.NoError(t, lid.Destroy())
}

// Whoever shows neither that it speaks MPA nor that it does not, is a bounded wait
// and nothing more.
func TestPlainUndecided(t *testing.T) {
	const bound = 500 * time.Millisecond
	nic := openNIC(t, Config{RequestTimeout: bound})
	lid, events := listenPlain(t, nic)
	began := time.Now()
	silent := dialRaw(t, lid.LocalAddr())
	part := dialRaw(t, lid.LocalAddr())
	part.write([]byte(requestKey[:7]))
	key := dialRaw(t, lid.LocalAddr())
	key.write([]byte(requestKey))
	partEnds := dialRaw(t, lid.LocalAddr())
	partEnds.write([]byte(requestKey[:1]))
	require.NoError(t, partEnds.conn.CloseWrite())
	for _, p := range []*rawPeer{silent, part, key, partEnds} {
		p.gone()
		require.GreaterOrEqual(t, time.Since(began), bound)
	}

	// Who ends before it has shown anything goes at once.
	ends := dialRaw(t, lid.LocalAddr())
	require.NoError(t, ends.conn.CloseWrite())
	ends.gone()
	for n := range len(requestKey) + 1 {
		p := dialRaw(t, lid.LocalAddr())
		p.write([]byte(requestKey[:n]))
		require.NoError(t, p.conn.SetLinger(0))
		p.conn.Close()
	}
	broken := dialRaw(t, lid.LocalAddr())
	broken.write([]byte(requestKey + "\x10\x09\x00\x04\x00\x00\x00\x00"))
	broken.gone()

	require.NoError(t, lid.Destroy())
	select {
	case ev := <-events:
		t.Fatalf("%+v", ev)
	default:
	}
}

// A peer that resets its connection after it has shown that it is plain: the reset
// is its user's to see, or it comes first and nobody hears of it.
func TestPlainReset(t *testing.T) {
	nic := openNIC(t, Config{})
	lid, events := listenPlain(t, nic)
	p := dialRaw(t, lid.LocalAddr())
	p.write([]byte("GET"))
	c := nextPlain(t, events)
	require.NoError(t, p.conn.SetLinger(0))
	p.conn.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	_, err := io.Copy(io.Discard, c)
	require.Error(t, err)
	require.False(t, isTimeout(err))

	for range 50 {
		p := dialRaw(t, lid.LocalAddr())
		p.write([]byte("GET"))
		require.NoError(t, p.conn.SetLinger(0))
		p.conn.Close()
	}
	dialRaw(t, lid.LocalAddr()).write([]byte("still served"))
	for {
		c := nextPlain(t, events)
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		b := make([]byte, 12)
		if n, _ := io.ReadFull(c, b); string(b[:n]) == "still served" {
			break
		}
	}
	require.NoError(t, lid.Destroy())
}

// Silent peers, in any number, delay nobody: the oldest of them go.
func TestPlainFlood(t *testing.T) {
	nic := openNIC(t, Config{RequestTimeout: time.Minute})
	lid, events := listenPlain(t, nic) // backlog 16
	var peers []*rawPeer
	for i := range 40 {
		p := dialRaw(t, lid.LocalAddr())
		p.write([]byte(requestKey[:i%len(requestKey)]))
		peers = append(peers, p)
	}
	for _, p := range peers[:40-16] {
		p.gone()
	}
	dialRaw(t, lid.LocalAddr()).write([]byte("GET"))
	nextPlain(t, events)
	began := time.Now()
	require.NoError(t, lid.Destroy())
	require.Less(t, time.Since(began), patience, "it waits for peers")
	for _, p := range peers {
		p.gone()
	}
}

// The plain ones that nobody has decided on count as requests do, and none is lost.
func TestPlainBacklog(t *testing.T) {
	nic := openNIC(t, Config{})
	lid, events := listenPlain(t, nic) // backlog 16
	const peers = 40
	for range peers {
		dialRaw(t, lid.LocalAddr()).write([]byte("hello"))
	}
	var undecided []cm.ID
	for range 16 {
		ev := next(t, events, cm.ConnectRequest)
		require.True(t, ev.Plain)
		undecided = append(undecided, ev.Request)
	}
	for n := range peers {
		if len(undecided) == 0 {
			undecided = append(undecided, next(t, events, cm.ConnectRequest).Request)
		}
		id := undecided[0]
		undecided = undecided[1:]
		require.ErrorIs(t, id.Accept(onePair), syscall.EINVAL)
		if n%2 == 0 {
			require.NoError(t, id.Reject([]byte("not told")))
		}
		require.NoError(t, id.Destroy())
	}
	require.NoError(t, lid.Destroy())
}

// A listener that goes closes what nobody has taken, and leaves alone what somebody
// has.
func TestPlainListenerGoes(t *testing.T) {
	nic := openNIC(t, Config{})
	lid, events := listenPlain(t, nic)
	taken := dialRaw(t, lid.LocalAddr())
	taken.write([]byte("taken"))
	c := nextPlain(t, events)
	asked := dialRaw(t, lid.LocalAddr())
	asked.write([]byte("asked"))
	req := next(t, events, cm.ConnectRequest)

	lid.Handle(nil) // from here on nobody takes
	left := dialRaw(t, lid.LocalAddr())
	left.write([]byte("left"))
	part := dialRaw(t, lid.LocalAddr())
	part.write([]byte(requestKey[:4]))
	silent := dialRaw(t, lid.LocalAddr())
	require.NoError(t, lid.Destroy())
	for _, p := range []*rawPeer{left, part, silent} {
		p.gone()
	}
	later, err := req.Request.(cm.PlainID).AcceptPlain()
	require.NoError(t, err)
	require.NoError(t, req.Request.Destroy())
	for want, c := range map[string]net.Conn{"taken": c, "asked": later} {
		b := make([]byte, 5)
		_, err := io.ReadFull(c, b)
		require.NoError(t, err)
		require.Equal(t, want, string(b))
		require.NoError(t, c.Close())
	}
}
