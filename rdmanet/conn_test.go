package rdmanet

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"
)

func TestNettest(t *testing.T) { eachTarget(t, testNettest) }

func testNettest(t *testing.T, on target) {
	l := on.listen(t, port0(on.addr4))
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		a, b := on.pair(t, l)
		return a, b, func() { a.Close(); b.Close() }, nil
	})
}

// TestBothWays moves bytes both ways at once and compares checksums.
func TestBothWays(t *testing.T) { eachTarget(t, testBothWays) }

func testBothWays(t *testing.T, on target) {
	a, b := on.pair(t, on.listen(t, port0(on.addr4)))
	size := int64(32 << 20)
	if testing.Short() {
		size = 4 << 20
	}
	var wg sync.WaitGroup
	sums := make([][2][]byte, 2)
	errs := make(chan error, 4)
	for i, c := range []*Conn{a, b} {
		wg.Go(func() {
			h := sha256.New()
			src := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{byte(i)}), size), h)
			_, err := io.CopyBuffer(struct{ io.Writer }{c}, src, make([]byte, 100_000))
			if err == nil {
				err = c.CloseWrite()
			}
			sums[i][0] = h.Sum(nil)
			errs <- err
		})
		wg.Go(func() {
			h := sha256.New()
			n, err := io.CopyBuffer(h, struct{ io.Reader }{c}, make([]byte, 70_001))
			if err == nil && n != size {
				err = errors.New("the stream was cut short")
			}
			sums[1-i][1] = h.Sum(nil)
			errs <- err
		})
	}
	wg.Wait()
	for range 4 {
		require.NoError(t, <-errs)
	}
	for i, s := range sums {
		require.Equal(t, s[0], s[1], "direction %d", i)
	}
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}

// TestSizes writes pieces of one size and reads others.
func TestSizes(t *testing.T) { eachTarget(t, testSizes) }

func testSizes(t *testing.T, on target) {
	l := on.listen(t, port0(on.addr4))
	for _, tc := range []struct{ write, read, total int }{
		{1, 4096, 2000}, {7, 3, 7000}, {64, 100_000, 64 * 500}, {4096, 1, 4096 * 3}, {65537, 4096, 65537 * 5}, {8 << 20, 65537, 8 << 20},
	} {
		a, b := on.pair(t, l)
		sent := make([]byte, tc.total)
		rand.NewChaCha8([32]byte{byte(tc.write)}).Read(sent)
		wrote := make(chan error, 1)
		go func() {
			for p := sent; len(p) > 0; {
				n, err := a.Write(p[:min(tc.write, len(p))])
				if err != nil {
					wrote <- err
					return
				}
				p = p[n:]
			}
			wrote <- a.Close()
		}()
		var got bytes.Buffer
		_, err := io.CopyBuffer(struct{ io.Writer }{&got}, struct{ io.Reader }{b}, make([]byte, tc.read))
		require.NoError(t, err)
		require.NoError(t, <-wrote)
		require.True(t, bytes.Equal(sent, got.Bytes()), "writes of %d, reads of %d", tc.write, tc.read)
		require.NoError(t, b.Close())
	}
}

func TestConnErrors(t *testing.T) { eachTarget(t, testConnErrors) }

func testConnErrors(t *testing.T, on target) {
	a, b := on.pair(t, on.listen(t, port0(on.addr4)))
	require.NoError(t, a.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
	_, err := a.Read(make([]byte, 1))
	oe := requireOpError(t, err, "read")
	require.Equal(t, os.ErrDeadlineExceeded, oe.Err)
	require.Equal(t, a.LocalAddr(), oe.Source)
	require.Equal(t, b.LocalAddr().String(), oe.Addr.String())
	require.NoError(t, a.Close())
	_, err = a.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
	_, err = a.Write(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
	require.ErrorIs(t, a.Close(), net.ErrClosed)
	require.ErrorIs(t, a.SetDeadline(time.Time{}), net.ErrClosed)
	n, err := b.Read(make([]byte, 1))
	require.Zero(t, n)
	require.Equal(t, io.EOF, err, "bare")
	require.NoError(t, b.Close())
}

// TestHalfClose ends one direction and goes on with the other.
func TestHalfClose(t *testing.T) { eachTarget(t, testHalfClose) }

func testHalfClose(t *testing.T, on target) {
	a, b := on.pair(t, on.listen(t, port0(on.addr4)))
	_, err := a.Write([]byte("question"))
	require.NoError(t, err)
	require.NoError(t, a.CloseWrite())
	got, err := io.ReadAll(b)
	require.NoError(t, err)
	require.Equal(t, "question", string(got))
	_, err = b.Write([]byte("answer"))
	require.NoError(t, err)
	require.NoError(t, b.CloseWrite())
	got, err = io.ReadAll(a)
	require.NoError(t, err)
	require.Equal(t, "answer", string(got))
	_, err = a.Write([]byte("more"))
	require.Error(t, err)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}
