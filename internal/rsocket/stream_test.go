package rsocket

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"

	"github.com/rdmanet/rdmanet/internal/simqp"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

func TestConn(t *testing.T) {
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
			l := newLab(t, simqp.Options{Transport: tr, Seed: rand.Uint64(), Delay: 100 * time.Microsecond})
			a, b := l.pair(Config{})
			return conn{a}, conn{b}, func() {
				conn{a}.Close()
				conn{b}.Close()
			}, nil
		})
	})
}

func TestEcho(t *testing.T) {
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		l := newLab(t, simqp.Options{Transport: tr})
		a, b := l.pair(Config{})
		go func() {
			_, _ = io.Copy(struct{ io.Writer }{b}, struct{ io.Reader }{b})
			_ = b.CloseWrite()
		}()
		want := make([]byte, 8<<20)
		for i := range want {
			want[i] = byte(rand.Uint32())
		}
		go func() {
			n, err := a.Write(want)
			if n != len(want) || err != nil {
				t.Errorf("wrote %d bytes: %v", n, err)
			}
			if err := a.CloseWrite(); err != nil {
				t.Error(err)
			}
		}()
		within(t, time.Minute, func() {
			got, err := io.ReadAll(a)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got))
		})
	})
}

// TestAcceptorSilent checks that an iWARP acceptor sends nothing before it has
// heard from the dialer, whatever its application does. The simulation takes it
// for a fault.
func TestAcceptorSilent(t *testing.T) {
	l := newLab(t, simqp.Options{Transport: verbs.IWARP})
	a, b := l.open(0, Config{}), l.open(1, Config{})
	defer func() { l.release(a); l.release(b) }()
	h, err := ParseHeader(a.PrivateData(), false)
	require.NoError(t, err)
	b.Start(h, 1)
	h, err = ParseHeader(b.PrivateData(), false)
	require.NoError(t, err)
	simqp.Connect(a.qp, b.qp, 1)
	b.Established()
	written := make(chan error)
	go func() {
		_, err := b.Write([]byte("banner"))
		written <- err
	}()
	select {
	case err := <-written:
		t.Fatalf("written before the dialer is there: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	a.Start(h, 1)
	a.Established()
	require.NoError(t, <-written)
	p := make([]byte, 6)
	_, err = io.ReadFull(a, p)
	require.NoError(t, err)
	require.Equal(t, "banner", string(p))
}
