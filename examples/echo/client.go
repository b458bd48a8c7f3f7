package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/rdmanet/rdmanet/rdmanet"
)

// ping dials and makes the round trips.
func ping(ctx context.Context, opt options, out io.Writer) error {
	if opt.verbose {
		ctx = rdmanet.WithDialTrace(ctx, printStages(out))
	}
	d := rdmanet.Dialer{Provider: opt.provider, Timeout: opt.timeout}
	c, err := d.DialContext(ctx, opt.network, opt.dial)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if info, ok := rdmanet.InfoOf(c); ok && opt.verbose {
		fmt.Fprintf(out, "connected %v -> %v by %v, device %s, %v\n", c.LocalAddr(), c.RemoteAddr(), info.Provider, info.Device, info.Transport)
	}

	var seed [32]byte
	random := rand.NewChaCha8(seed)
	sent, got := make([]byte, opt.size), make([]byte, opt.size)
	times := make([]time.Duration, opt.count)
	for i := range times {
		random.Read(sent)
		begin := time.Now()
		if err := roundTrip(c, sent, got, opt.timeout); err != nil {
			return fmt.Errorf("round trip %d of %d: %w", i+1, opt.count, err)
		}
		times[i] = time.Since(begin)
		if !bytes.Equal(sent, got) {
			return fmt.Errorf("round trip %d of %d: the echo differs from what was sent, first at byte %d", i+1, opt.count, mismatch(sent, got))
		}
	}
	report(out, opt.size, times)
	return c.Close()
}

// roundTrip writes a message and reads its echo at the same time: a message may
// be larger than all buffers on the way.
func roundTrip(c net.Conn, sent, got []byte, timeout time.Duration) error {
	if len(sent) <= 4096 {
		c.SetDeadline(time.Now().Add(timeout))
		if _, err := c.Write(sent); err != nil {
			return err
		}
		_, err := io.ReadFull(c, got)
		return err
	}
	var (
		once  sync.Once
		first error
		wg    sync.WaitGroup
	)
	fail := func(err error) {
		once.Do(func() {
			first = err
			c.Close() // ends the other direction too
		})
	}
	wg.Go(func() {
		for len(sent) > 0 {
			c.SetWriteDeadline(time.Now().Add(timeout))
			n, err := c.Write(sent[:min(len(sent), 1<<20)])
			if err != nil {
				fail(err)
				return
			}
			sent = sent[n:]
		}
	})
	for len(got) > 0 {
		c.SetReadDeadline(time.Now().Add(timeout))
		n, err := c.Read(got)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			fail(err)
			break
		}
		got = got[n:]
	}
	wg.Wait()
	return first
}

// report prints the times of the round trips and what they amount to.
func report(out io.Writer, size int, times []time.Duration) {
	var total time.Duration
	for _, t := range times {
		total += t
	}
	slices.Sort(times)
	n := len(times)
	rate := float64(size) * float64(n) / total.Seconds() / 1e6
	fmt.Fprintf(out, "%d round trips of %d bytes: min %v, median %v, p99 %v; %.1f MB/s each way\n",
		n, size, times[0], times[n/2], times[(n*99-1)/100], rate)
}

func mismatch(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}
