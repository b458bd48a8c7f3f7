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
