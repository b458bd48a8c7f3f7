package rsocket

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/simqp"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// TestHostile checks that whatever a peer does wrong ends the connection with an
// error that says it, for who reads and for who writes.
func TestHostile(t *testing.T) {
	window := uint32(defaultBuffer / 2)
	// announce sends data, but writes no more of it than fits into the region.
	announce := func(r *rawPeer, at, n int) {
		fits := min(n, max(defaultBuffer, int(r.us.Data.Len))-at)
		r.message(newMessage(msgData, uint32(n)), make([]byte, fits), r.us.Data.Addr+uint64(at), r.us.Data.Key)
	}
	tests := []struct {
		name  string
		only  verbs.Transport // if not both
		do    func(r *rawPeer)
		wants string
	}{
		{"data longer than the window", 0, func(r *rawPeer) {
			announce(r, 0, int(r.us.Data.Len+1))
		}, "where the window had"},
		{"data that fills the window, then more", 0, func(r *rawPeer) {
			r.data(0, make([]byte, r.us.Data.Len))
			if r.us.Data.Len == window { // the second one
				r.data(int(window), make([]byte, window))
			}
			// Not into the ring, which is being read.
			r.message(newMessage(msgData, 1), make([]byte, 1), r.us.SGL.Addr+64, r.us.SGL.Key)
		}, "no window granted"},
		{"data across two windows", 0, func(r *rawPeer) {
			r.data(0, make([]byte, r.us.Data.Len-10))
			announce(r, int(r.us.Data.Len)-10, 20)
		}, "where the window had 10 left"},
		{"other length than written", verbs.RoCE, func(r *rawPeer) {
			r.message(newMessage(msgData, 1000), make([]byte, 10), r.us.Data.Addr, r.us.Data.Key)
		}, "wrote 10 bytes and announced 1000"},
		{"nothing written", verbs.RoCE, func(r *rawPeer) {
			r.message(newMessage(msgData, 1000), nil, 0, 0)
		}, "wrote 0 bytes and announced 1000"},
		{"data of no bytes", 0, func(r *rawPeer) { r.message(newMessage(msgData, 0), nil, 0, 0) }, "data message of no bytes"},
		{"data after SHUTDOWN", 0, func(r *rawPeer) {
			r.message(newMessage(msgControl, ctrlShutdown), nil, 0, 0)
			r.data(0, make([]byte, 1))
		}, "data after SHUTDOWN"},
		{"credits beyond what it has", 0, func(r *rawPeer) { r.grant(500, Segment{}) }, "credits"},
		{"credits taken back", 0, func(r *rawPeer) { r.grant(383, Segment{}) }, "credits"},
		{"window of absurd length", 0, func(r *rawPeer) {
			r.grant(384, Segment{Addr: 4096, Len: 0xffffffff})
		}, "window of 4294967295 bytes"},
		{"window beyond the end of memory", 0, func(r *rawPeer) {
			r.grant(384, Segment{Addr: ^uint64(0) - 10, Len: 100})
		}, "beyond the end of memory"},
		{"grant with another write", verbs.RoCE, func(r *rawPeer) {
			r.message(newMessage(msgCredits, 384), make([]byte, 8), r.us.SGL.Addr, r.us.SGL.Key)
		}, "wrote 8 bytes with a grant"},
		{"direct placement", 0, func(r *rawPeer) { r.message(newMessage(msgIOMap, 0), nil, 0, 0) }, "unknown message: direct placement"},
		{"unknown type", 0, func(r *rawPeer) { r.message(newMessage(3, 7), nil, 0, 0) }, "unknown message: message type 3"},
		{"unknown control", 0, func(r *rawPeer) { r.message(newMessage(msgControl, 9), nil, 0, 0) }, "unknown message: control 9"},
		{"control with data", verbs.RoCE, func(r *rawPeer) {
			r.message(newMessage(msgControl, ctrlKeepAlive), make([]byte, 8), r.us.SGL.Addr, r.us.SGL.Key)
		}, "wrote 8 bytes with KEEPALIVE"},
		{"short message", verbs.IWARP, func(r *rawPeer) { r.send([]byte{1, 2}, 0) }, "message of 2 bytes"},
		{"long message", verbs.IWARP, func(r *rawPeer) { r.send(make([]byte, 5), 0) }, "more than 4 bytes"},
		{"no immediate data", verbs.RoCE, func(r *rawPeer) { r.send(nil, 0) }, "without immediate data"},
	}
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		for _, test := range tests {
			if test.only != 0 && test.only != tr {
				continue
			}
			t.Run(test.name, func(t *testing.T) {
				l := newLab(t, simqp.Options{Transport: tr})
				e, r := l.connectRaw(Config{WriteBuffer: 16 << 10}, rawConfig{acceptor: true, depth: 1000})
				reads := make(chan error, 1)
				writes := make(chan error, 1)
				ended := make(chan struct{})
				go func() {
					if strings.HasPrefix(test.name, "data") {
						// Reading could grant what the test does not
						// know of.
						<-ended
					}
					_, err := io.Copy(io.Discard, struct{ io.Reader }{e})
					reads <- err
				}()
				go func() {
					var err error
					for err == nil {
						_, err = e.Write(make([]byte, 4096))
					}
					close(ended)
					writes <- err
				}()
				test.do(r)
				for name, c := range map[string]chan error{"read": reads, "write": writes} {
					select {
					case err := <-c:
						if name == "read" && err == nil {
							continue // end of file before the violation
						}
						var p *ProtocolError
						require.ErrorAs(t, err, &p, name)
						require.ErrorIs(t, err, syscall.EPROTO)
						require.Contains(t, err.Error(), test.wants)
					case <-time.After(10 * time.Second):
						t.Fatalf("%s goes on", name)
					}
				}
				if err := e.Close(time.Second); err != nil { // what was written may have arrived before
					require.ErrorIs(t, err, ErrNotDelivered)
					require.ErrorIs(t, err, syscall.EPROTO)
				}
			})
		}
	})
}

// TestHostileWindow checks that a window that is not there ends the connection.
func TestHostileWindow(t *testing.T) {
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		l := newLab(t, simqp.Options{Transport: tr})
		e, r := l.connectRaw(Config{}, rawConfig{acceptor: true})
		r.grant(384, Segment{Addr: 12345, Key: 1, Len: 1 << 20})
		var err error
		deadline := time.Now().Add(10 * time.Second)
		for err == nil && time.Now().Before(deadline) {
			_, err = e.Write(make([]byte, 4096))
		}
		var c *ConnError
		require.ErrorAs(t, err, &c)
		require.True(t, errors.Is(err, syscall.ECONNRESET), err)
	})
}

// TestStaleData checks that what a block has received before cannot be had by
// the next peer, which announces data that it has not written.
func TestStaleData(t *testing.T) {
	l := newLab(t, simqp.Options{Transport: verbs.IWARP})
	a, b := l.pair(Config{})
	_, err := b.Write(make([]byte, 1000))
	require.NoError(t, err)
	_, err = a.Write([]byte("password"))
	require.NoError(t, err)
	p := make([]byte, 8)
	_, err = io.ReadFull(b, p)
	require.NoError(t, err)
	mem := b.mem
	require.NoError(t, b.Release())
	for _, c := range mem.remote.Bytes() {
		require.Zero(t, c)
	}
}
