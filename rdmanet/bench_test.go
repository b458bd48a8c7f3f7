package rdmanet

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"
)

// BenchmarkBesideTCP compares the software NIC with TCP of package net, in this
// process and with the same code:
//
//	go test -run '^$' -bench BesideTCP -benchtime 15x ./rdmanet
//
// Each iteration is a round, in which TCP, the software NIC, and TCP again have
// a turn, so that what slows the machine for a while slows all. The figures are
// medians of the rounds; tcp/tcp is what the comparison shows where there is no
// difference, and says how far a ratio can be trusted.
func BenchmarkBesideTCP(b *testing.B) {
	for _, size := range []int{64, 4 << 10} {
		n := 5000
		b.Run(fmt.Sprintf("PingPong/%d", size), func(b *testing.B) {
			besideTCP(b, n, 0, func(l net.Listener, dial func() (net.Conn, error)) measured {
				return pingPong(b, l, dial, size, n)
			})
		})
	}
	for _, size := range []int{64 << 10, 1 << 20} {
		n := 512 << 20 / size
		b.Run(fmt.Sprintf("Stream/%d", size), func(b *testing.B) {
			besideTCP(b, n, size, func(l net.Listener, dial func() (net.Conn, error)) measured {
				return stream(b, l, dial, size, n)
			})
		})
	}
	b.Run("Dial", func(b *testing.B) {
		const n = 500
		besideTCP(b, n, 0, func(l net.Listener, dial func() (net.Conn, error)) measured {
			return dialAndAsk(b, l, dial, n)
		})
	})
}

// measured is what one turn came to.
type measured struct {
	elapsed time.Duration
	allocs  uint64 // of the whole process, both ends
}

// measureTurn measures work that both ends do.
func measureTurn(work func()) measured {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	work()
	elapsed := time.Since(start)
	runtime.ReadMemStats(&after)
	return measured{elapsed, after.Mallocs - before.Mallocs}
}

// besideTCP makes the rounds. A turn is n operations, of size bytes if that is
// what counts.
func besideTCP(b *testing.B, n, size int, turn func(net.Listener, func() (net.Conn, error)) measured) {
	lc := ListenConfig{Provider: Software}
	d := Dialer{Provider: Software}
	ours, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ours.Close()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer plain.Close()
	onTCP := func() measured {
		return turn(plain, func() (net.Conn, error) { return net.Dial("tcp", plain.Addr().String()) })
	}
	onNIC := func() measured {
		return turn(ours, func() (net.Conn, error) { return d.Dial("tcp", ours.Addr().String()) })
	}

	var tcp, nic, ratios, calibration, allocs []float64
	for range b.N {
		first, mid, last := onTCP(), onNIC(), onTCP()
		mean := float64(first.elapsed+last.elapsed) / 2
		tcp = append(tcp, mean)
		nic = append(nic, float64(mid.elapsed))
		ratios = append(ratios, float64(mid.elapsed)/mean)
		calibration = append(calibration, float64(last.elapsed)/float64(first.elapsed))
		allocs = append(allocs, float64(mid.allocs)/float64(n))
	}
	b.ReportMetric(0, "ns/op")
	if size > 0 {
		rate := func(ns []float64) float64 { return float64(n) * float64(size) / median(ns) * 1e3 }
		b.ReportMetric(rate(nic), "nic-MB/s")
		b.ReportMetric(rate(tcp), "tcp-MB/s")
	} else {
		b.ReportMetric(median(nic)/float64(n), "nic-ns")
		b.ReportMetric(median(tcp)/float64(n), "tcp-ns")
	}
	b.ReportMetric(median(ratios), "nic/tcp")
	b.ReportMetric(1/median(ratios), "tcp/nic")
	b.ReportMetric(median(calibration), "tcp/tcp")
	b.ReportMetric(median(allocs), "nic-allocs")
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// connected returns both ends of a connection.
func connected(b *testing.B, l net.Listener, dial func() (net.Conn, error)) (x, y net.Conn) {
	x, err := dial()
	if err != nil {
		b.Fatal(err)
	}
	if y, err = l.Accept(); err != nil {
		b.Fatal(err)
	}
	return x, y
}

// closeBoth closes both ends at the same time, as peers do.
func closeBoth(x, y net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		y.Close()
	}()
	x.Close()
	<-done
}

// echo sends back n messages.
func echo(c net.Conn, buf []byte, n int) error {
	for range n {
		if _, err := io.ReadFull(c, buf); err != nil {
			return err
		}
		if _, err := c.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

// ask sends n messages, each when the one before has come back.
func ask(c net.Conn, buf []byte, n int) error {
	for range n {
		if _, err := c.Write(buf); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			return err
		}
	}
	return nil
}

func pingPong(b *testing.B, l net.Listener, dial func() (net.Conn, error), size, n int) measured {
	x, y := connected(b, l, dial)
	defer closeBoth(x, y)
	errs := make(chan error, 1)
	there, here := make([]byte, size), make([]byte, size)
	go func() { errs <- echo(y, there, 100+n) }()
	err := ask(x, here, 100)
	m := measureTurn(func() {
		if err == nil {
			err = ask(x, here, n)
		}
		if err != nil {
			x.Close()
		}
		if e := <-errs; err == nil {
			err = e
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	return m
}

func stream(b *testing.B, l net.Listener, dial func() (net.Conn, error), size, n int) measured {
	x, y := connected(b, l, dial)
	defer closeBoth(x, y)
	errs := make(chan error, 1)
	there, here := make([]byte, size), make([]byte, size)
	var err error
	m := measureTurn(func() {
		go func() {
			for left := n * size; left > 0; {
				k, err := y.Read(there)
				if err != nil {
					y.Close()
					errs <- err
					return
				}
				left -= k
			}
			errs <- nil
		}()
		for i := 0; i < n && err == nil; i++ {
			_, err = x.Write(here)
		}
		if err != nil {
			x.Close()
		}
		if e := <-errs; err == nil {
			err = e
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// dialAndAsk dials, sends 64 bytes, gets 64 bytes, and closes, n times. The
// server closes each connection when it has seen its end.
func dialAndAsk(b *testing.B, l net.Listener, dial func() (net.Conn, error), n int) measured {
	errs := make(chan error, 1)
	serve := func() error {
		buf := make([]byte, 64)
		for range n {
			c, err := l.Accept()
			if err != nil {
				return err
			}
			if err = echo(c, buf, 1); err == nil {
				_, err = c.Read(buf)
			}
			c.Close()
			if err != io.EOF {
				return fmt.Errorf("the client's end: %w", err)
			}
		}
		return nil
	}
	buf := make([]byte, 64)
	return measureTurn(func() {
		go func() { errs <- serve() }()
		for range n {
			c, err := dial()
			if err == nil {
				err = ask(c, buf, 1)
				c.Close()
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		if err := <-errs; err != nil {
			b.Fatal(err)
		}
	})
}
