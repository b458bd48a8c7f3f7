package rdmanet

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// mpaRequest is a connect request of an rsocket, as it is on the wire.
func mpaRequest() []byte {
	be := binary.BigEndian
	h := be.AppendUint16([]byte{1, 0}, 384) // version, flags, credits
	h = append(h, 0, 0, 0, 0)
	h = be.AppendUint64(h, 0x10000) // target SGL
	h = be.AppendUint32(h, 0x51)
	h = be.AppendUint32(h, 2)
	h = be.AppendUint64(h, 0x200000) // first window
	h = be.AppendUint32(h, 0x52)
	h = be.AppendUint32(h, 1<<20)
	b := append([]byte("MPA ID Req Frame"), 0x10, 2)
	b = be.AppendUint16(b, uint16(4+len(h)))
	b = be.AppendUint32(b, 0x0001_0001) // IRD, ORD
	return append(b, h...)
}

// Where what is in a request.
const (
	mpaFlags, mpaRevision, mpaLength, mpaIRD, mpaHeader = 16, 17, 18, 20, 24
)

func bent(f func(b []byte)) []byte {
	b := mpaRequest()
	f(b)
	return b
}

// TestRefusedIsTold of every peer that does not become a connection, once, and what it
// did.
func TestRefusedIsTold(t *testing.T) {
	const limit = 300 * time.Millisecond
	says := func(b []byte) func(*net.TCPConn) {
		return func(c *net.TCPConn) { _, _ = c.Write(b) } // it may be closed already
	}
	ends := func(b []byte) func(*net.TCPConn) {
		return func(c *net.TCPConn) { says(b)(c); _ = c.CloseWrite() }
	}
	resets := func(b []byte) func(*net.TCPConn) {
		return func(c *net.TCPConn) { says(b)(c); _ = c.SetLinger(0); c.Close() }
	}
	behind := "in the middle" // of an end behind a part of the key
	if runtime.GOOS != "linux" {
		behind = "in time"
	}
	plain := ListenConfig{AcceptPlain: true}
	full := ListenConfig{Backlog: 1}
	for name, tc := range map[string]struct {
		lc   ListenConfig
		peer func(*net.TCPConn)
		why  string
		rdma bool // Accept is AcceptRDMA, and called
	}{
		"unknown revision":           {peer: says(bent(func(b []byte) { b[mpaRevision] = 3 })), why: "revision 3"},
		"markers":                    {peer: says(bent(func(b []byte) { b[mpaFlags] |= 0x80 })), why: "wants markers"},
		"peer-to-peer by a Send":     {peer: says(bent(func(b []byte) { b[mpaIRD] |= 0xc0 })), why: "peer-to-peer"},
		"peer-to-peer by nothing":    {peer: says(bent(func(b []byte) { b[mpaIRD] |= 0x80 })), why: "peer-to-peer"},
		"a request that rejects":     {peer: says(bent(func(b []byte) { b[mpaFlags] |= 0x20 })), why: "rejects"},
		"too much private data":      {peer: says(bent(func(b []byte) { b[mpaLength] = 0xff })), why: "private data"},
		"enhanced revision 1":        {peer: says(bent(func(b []byte) { b[mpaRevision] = 1 })), why: "no enhanced set-up"},
		"frames before the reply":    {peer: says(append(mpaRequest(), 0, 0, 0, 0)), why: "frames before the reply"},
		"another rsockets version":   {peer: says(bent(func(b []byte) { b[mpaHeader] = 9 })), why: "version 9"},
		"garbage":                    {peer: says([]byte("GET / HTTP/1.1\r\n\r\n")), why: "does not speak MPA"},
		"silence":                    {peer: says(nil), why: "in time"},
		"a part, then silence":       {peer: says([]byte("MPA ID")), why: "in time"},
		"the end":                    {peer: ends(nil), why: "closed the connection without"},
		"a part, then the end":       {peer: ends(mpaRequest()[:30]), why: "in the middle"},
		"a reset":                    {peer: resets(nil), why: "closed the connection without"},
		"no place in time":           {lc: full, peer: says(mpaRequest()), why: "backlog is full"},
		"plain, silence":             {lc: plain, peer: says(nil), why: "in time"},
		"plain, a part, silence":     {lc: plain, peer: says([]byte("MPA ID")), why: "in time"},
		"plain, a part, then an end": {lc: plain, peer: ends([]byte("MPA ID")), why: behind},
		"plain, the end":             {lc: plain, peer: ends(nil), why: "closed the connection without"},
		"plain, markers":             {lc: plain, peer: says(bent(func(b []byte) { b[mpaFlags] |= 0x80 })), why: "wants markers"},
		"plain, to AcceptRDMA":       {lc: plain, peer: says([]byte("GET")), why: "no RDMA", rdma: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			type refusal struct {
				peer net.Addr
				err  error
			}
			told := make(chan refusal, 16)
			lc := tc.lc
			lc.Provider, lc.HandshakeTimeout = Software, limit
			lc.Refused = func(peer net.Addr, err error) { told <- refusal{peer, err} }
			inner, err := lc.Listen(context.Background(), "rdma4", "127.0.0.1:0")
			require.NoError(t, err)
			l := inner.(*Listener)
			defer l.Close()
			if tc.rdma {
				go l.AcceptRDMA()
			}
			if lc.Backlog == 1 { // one that nobody accepts has the place
				first := dialPlain(t, l)
				_, err := first.Write(mpaRequest())
				require.NoError(t, err)
				_, err = io.ReadFull(first, make([]byte, 20))
				require.NoError(t, err)
			}
			c := dialPlain(t, l)
			local := c.LocalAddr().String()
			tc.peer(c)
			select {
			case r := <-told:
				require.Equal(t, local, r.peer.String())
				require.ErrorContains(t, r.err, tc.why)
				t.Log(r.err)
			case <-time.After(20 * time.Second):
				t.Fatal("Refused is not told")
			}
			require.NoError(t, l.Close()) // after which nobody is told
			require.Empty(t, told, "told twice")
		})
	}
}

// TestCrowdWaits: more peers than a listener has places for, of whatever kind, come at
// once, and wait for their turn while Accept runs; none is refused.
func TestCrowdWaits(t *testing.T) {
	const patience = 4 * time.Minute // an emulated machine with the race detector takes half a minute
	const crowd = 1300               // at most 1,024 wait for a place, and as many may be silent
	refused := make(chan error, crowd)
	lc := ListenConfig{Provider: Software, Backlog: 1, ReadBuffer: 16 << 10, WriteBuffer: 16 << 10, HandshakeTimeout: patience,
		Refused: func(_ net.Addr, err error) { refused <- err }}
	l, err := lc.Listen(context.Background(), "rdma4", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	peers := make([]*net.TCPConn, 0, crowd)
	for range crowd {
		c := dialPlain(t, l)
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		_, err := c.Write(mpaRequest())
		require.NoError(t, err)
		peers = append(peers, c)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(io.Discard, c)
				c.Close()
			}()
		}
	}()
	for _, c := range peers {
		_, err := io.ReadFull(c, make([]byte, 20))
		require.NoError(t, err, "a peer was not answered")
		c.Close() // says nothing
	}
	c, err := (&Dialer{Provider: Software, Timeout: time.Minute}).Dial("rdma", l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, c.Close())
	select {
	case err := <-refused:
		t.Errorf("a peer was refused: %v", err)
	default:
	}
}
