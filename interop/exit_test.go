//go:build linux

package interop

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/rdmanet"
)

// TestExitAfterClose has processes write, close and exit, with data of the peer
// unread and without. The peer reads all of it, and then the end.
func TestExitAfterClose(t *testing.T) { eachPairing(t, testExitAfterClose) }

func testExitAfterClose(t *testing.T, dev device) {
	l := listen(t, rdmanet.ListenConfig{}, addrPort(dev.addr4, 0))
	times := sized(6, 20, 1000)
	began := time.Now()
	for i := range times {
		size := int64(1 + i*7919%100_000)
		p := startPeer(t, time.Minute, peerOptions{
			provider: pairingOf(t).peers.String(), dial: l.Addr().String(), do: "close", size: size, closeT: 20 * time.Second,
		})
		err := readAfterExit(accept(t, l), size, i%2 == 1)
		require.NoError(t, errors.Join(err, p.status()), "time %d of %d", i+1, times)
	}
	t.Logf("%d times in %v", times, time.Since(began).Round(time.Second))
}

// TestExitAfterIdleClose is the same with connections that have been quiet, of
// which Close has nothing to wait for.
func TestExitAfterIdleClose(t *testing.T) { eachPairing(t, testExitAfterIdleClose) }

func testExitAfterIdleClose(t *testing.T, dev device) {
	var wg sync.WaitGroup
	for range sized(1, 5, 20) {
		l := listen(t, rdmanet.ListenConfig{}, addrPort(dev.addr4, 0))
		p := startPeer(t, time.Minute, peerOptions{
			provider: pairingOf(t).peers.String(), dial: l.Addr().String(), do: "idle-close", size: 5000,
		})
		c := accept(t, l)
		wg.Go(func() {
			if err := errors.Join(readAfterExit(c, 5000, true), p.status()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// readAfterExit reads what a child has written before it exited.
func readAfterExit(c *rdmanet.Conn, size int64, talk bool) error {
	defer c.Close()
	if talk { // the child never reads it
		_, err := c.Write(make([]byte, 1000))
		if err != nil && !errors.Is(err, syscall.EPIPE) { // it may have closed already
			return err
		}
	}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	return newPattern(1, size).receive(c, 64<<10)
}

// TestServerClose closes an HTTP server with idle connections whose clients'
// process has stopped.
func TestServerClose(t *testing.T) { eachPairing(t, testServerClose) }

func testServerClose(t *testing.T, dev device) {
	n := sized(20, 50, 100)
	lc := rdmanet.ListenConfig{Provider: pairingOf(t).ours, ReadBuffer: smallBuffers, WriteBuffer: smallBuffers}
	l, err := lc.Listen(t.Context(), "rdma", addrPort(dev.addr4, 0))
	require.NoError(t, err)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(l)
	}()
	p := startPeer(t, 3*time.Minute, peerOptions{
		provider: pairingOf(t).peers.String(), dial: l.Addr().String(), do: "keep-alive", size: int64(n), buffer: smallBuffers,
	})
	p.line("all ask")
	time.Sleep(3 * time.Second) // a pool that nobody has used for a while
	p.stop()
	began := time.Now()
	within(t, patience, "http.Server.Close", func() { require.NoError(t, srv.Close()) })
	took := time.Since(began)
	t.Logf("http.Server.Close of %d idle connections took %v", n, took.Round(100*time.Microsecond))
	require.Less(t, took, 2*time.Second, "one after the other")
	<-served
}

// keepAlive is the child's part of TestServerClose. It has one connection already.
func keepAlive(o *peerOptions, c net.Conn) error {
	conns := []net.Conn{c}
	for len(conns) < int(o.size) {
		c, err := o.connect()
		if err != nil {
			return err
		}
		conns = append(conns, c)
	}
	for _, c := range conns {
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return err
		}
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return err
		}
	}
	fmt.Println("all ask")
	select {}
}
