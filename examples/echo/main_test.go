package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/rdmanet"
)

func TestParse(t *testing.T) {
	opt, err := parse([]string{"-dial", "10.0.0.7:9000", "-n", "5", "-size", "100", "-timeout", "2s", "-network", "rdma4", "-provider", "verbs", "-v"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, options{dial: "10.0.0.7:9000", count: 5, size: 100, timeout: 2 * time.Second, network: "rdma4", provider: rdmanet.Verbs, verbose: true}, opt)
	for _, args := range []string{"-n 0", "-size 0", "-timeout 0s", "-timeout -1s", "-provider pigeon", "stray", "-unknown"} {
		var said bytes.Buffer
		_, err := parse(strings.Fields(args), &said)
		require.Error(t, err, args)
		require.Contains(t, said.String(), "usage", args)
	}
}

// software are options for a run on the software NIC.
func software(t *testing.T, args string) options {
	t.Helper()
	opt, err := parse(strings.Fields("-provider software -listen 127.0.0.1:0 "+args), io.Discard)
	require.NoError(t, err)
	return opt
}

func TestBothEnds(t *testing.T) {
	for _, args := range []string{"-n 100", "-n 20 -size 4097", "-n 3 -size 8388608"} {
		var out bytes.Buffer
		require.NoError(t, both(t.Context(), software(t, args+" -v"), &out))
		t.Log(out.String())
		for _, want := range []string{"rdma_resolve_route", "ESTABLISHED", "by software", "round trips", "median"} {
			require.Contains(t, out.String(), want)
		}
	}
}

// TestLiar: an echo that differs is found.
func TestLiar(t *testing.T) {
	l, err := listen(t.Context(), software(t, ""))
	require.NoError(t, err)
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, 64)
		for {
			if _, err := io.ReadFull(c, buf); err != nil {
				return
			}
			buf[17] ^= 1
			c.Write(buf)
		}
	}()
	opt := software(t, "-n 3")
	opt.dial = l.Addr().String()
	require.ErrorContains(t, ping(t.Context(), opt, io.Discard), "first at byte 17")
}

func TestPingFails(t *testing.T) {
	opt := software(t, "")
	opt.dial = "127.0.0.1:9"
	require.ErrorIs(t, ping(t.Context(), opt, io.Discard), syscall.ECONNREFUSED)
}

// TestServeUntilInterrupted: connections end with the server.
func TestServeUntilInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	l, err := listen(ctx, software(t, ""))
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- serve(ctx, l) }()
	c, err := (&rdmanet.Dialer{Provider: rdmanet.Software}).Dial("rdma", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	var sent, got [10]byte
	require.NoError(t, roundTrip(c, sent[:], got[:], 5*time.Second))
	interrupt()
	require.NoError(t, <-served)
	_, err = c.Read(got[:])
	require.Error(t, err)
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}
