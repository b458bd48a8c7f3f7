//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"time"

	"github.com/rdmanet/rdmanet/rdmanet"
)

// syncSize is what rstream's client sends first, and its server answers.
const syncSize = 16

// server is one connection of rstream's server.
func server(o options) error {
	l, err := listen(o)
	if err != nil {
		return err
	}
	defer l.Close()
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	buf := make([]byte, max(o.size, syncSize))
	if err := answer(c, buf[:syncSize], 1); err != nil {
		return fmt.Errorf("the first exchange: %w", err)
	}
	before := mallocs()
	for range o.iterations {
		if err := answer(c, buf[:o.size], o.count); err != nil {
			return err
		}
	}
	report(o, 0, mallocs()-before)
	if _, err := c.Read(buf); !errors.Is(err, io.EOF) {
		return fmt.Errorf("instead of the end came: %w", err)
	}
	return nil
}

// client is one connection of rstream's client.
func client(o options) error {
	d := rdmanet.Dialer{Provider: rdmanet.Verbs, ReadBuffer: o.buffer, WriteBuffer: o.buffer, Timeout: 5 * time.Second}
	c, err := d.Dial("rdma", o.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	buf := make([]byte, max(o.size, syncSize))
	if err := ask(c, buf[:syncSize], 1); err != nil {
		return fmt.Errorf("the first exchange: %w", err)
	}
	before := mallocs()
	start := time.Now()
	for range o.iterations {
		if err := ask(c, buf[:o.size], o.count); err != nil {
			return err
		}
	}
	elapsed := time.Since(start)
	report(o, elapsed, mallocs()-before)
	return nil
}

// ask sends count messages and receives as many; answer does it in the other order.
func ask(c net.Conn, b []byte, count int) error {
	if err := send(c, b, count); err != nil {
		return err
	}
	return receive(c, b, count)
}

func answer(c net.Conn, b []byte, count int) error {
	if err := receive(c, b, count); err != nil {
		return err
	}
	return send(c, b, count)
}

func send(c net.Conn, b []byte, count int) error {
	for range count {
		if _, err := c.Write(b); err != nil {
			return err
		}
	}
	return nil
}

func receive(c net.Conn, b []byte, count int) error {
	for range count {
		if _, err := io.ReadFull(c, b); err != nil {
			return err
		}
	}
	return nil
}

// mallocs is how many objects this process has allocated.
func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// report prints what run parses: seconds, and the objects that the process has
// allocated meanwhile, those of the runtime itself included.
func report(o options, elapsed time.Duration, allocs uint64) {
	fmt.Printf("seconds %.6f allocs %d\n", elapsed.Seconds(), allocs)
}

func listen(o options) (net.Listener, error) {
	lc := rdmanet.ListenConfig{Provider: rdmanet.Verbs, ReadBuffer: o.buffer, WriteBuffer: o.buffer}
	return lc.Listen(context.Background(), "rdma", o.addr)
}

// accept serves dial, until it is killed: one connection after the other, read to
// its end. That one fails is seen at the other end.
func accept(o options) error {
	l, err := listen(o)
	if err != nil {
		return err
	}
	defer l.Close()
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, struct{ io.Reader }{c})
		_ = c.Close()
	}
}

// dial connects and closes, and prints the median of the times that took. The
// first is not counted: it opens the device and registers memory.
func dial(o options) error {
	d := rdmanet.Dialer{Provider: rdmanet.Verbs, ReadBuffer: o.buffer, WriteBuffer: o.buffer, Timeout: 5 * time.Second}
	var connects, closes, times []time.Duration
	stages := map[string][]time.Duration{}
	ctx := rdmanet.WithDialTrace(context.Background(), &rdmanet.DialTrace{StageDone: func(r rdmanet.DialStageResult) {
		stages[stageName(r)] = append(stages[stageName(r)], r.Elapsed)
	}})
	for range o.dials {
		start := time.Now()
		c, err := d.DialContext(ctx, "rdma", o.addr)
		if err != nil {
			return err
		}
		connected := time.Now()
		if err := c.Close(); err != nil {
			return err
		}
		end := time.Now()
		connects = append(connects, connected.Sub(start))
		closes = append(closes, end.Sub(connected))
		times = append(times, end.Sub(start))
	}
	fmt.Printf("median %.1f connect %.1f close %.1f\n", micros(times[1:]), micros(connects[1:]), micros(closes[1:]))
	fmt.Print("stages")
	for _, stage := range []string{"open", "addrinfo", "addr", "route", "queues", "connect"} {
		if len(stages[stage]) > 0 {
			fmt.Printf(" %s %.1f", stage, micros(stages[stage]))
		}
	}
	fmt.Println()
	return nil
}

// stageName is the stage by the name that the C side prints: the queues are made
// in the connect stage.
func stageName(r rdmanet.DialStageResult) string {
	if r.Call == "rdma_create_qp" {
		return "queues"
	}
	return string(r.Stage)
}

func micros(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Nanoseconds()) / 1e3
}
