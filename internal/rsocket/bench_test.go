package rsocket

import (
	"fmt"
	"io"
	"testing"

	"github.com/rdmanet/rdmanet/internal/simqp"
)

// The benchmarks run over the simulation. They are for profiles of this
// package's own work: what they say of speed is nothing about devices.

func BenchmarkPingPong(b *testing.B) {
	for _, tr := range transports {
		for _, size := range []int{64, 4096} {
			b.Run(fmt.Sprintf("%v/%d", tr, size), func(b *testing.B) {
				l := newLab(b, simqp.Options{Transport: tr})
				x, y := l.pair(Config{})
				go func() {
					q := make([]byte, size)
					for {
						if _, err := io.ReadFull(y, q); err != nil {
							return
						}
						if _, err := y.Write(q); err != nil {
							return
						}
					}
				}()
				p := make([]byte, size)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := x.Write(p); err != nil {
						b.Fatal(err)
					}
					if _, err := io.ReadFull(x, p); err != nil {
						b.Fatal(err)
					}
				}
				_ = y.Release()
			})
		}
	}
}

func BenchmarkStream(b *testing.B) {
	for _, tr := range transports {
		for _, size := range []int{64, 65536, 1 << 20} {
			b.Run(fmt.Sprintf("%v/%d", tr, size), func(b *testing.B) {
				l := newLab(b, simqp.Options{Transport: tr})
				x, y := l.pair(Config{})
				go func() {
					q := make([]byte, 1<<20)
					for {
						if _, err := y.Read(q); err != nil {
							return
						}
					}
				}()
				p := make([]byte, size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := x.Write(p); err != nil {
						b.Fatal(err)
					}
				}
				_ = y.Release()
			})
		}
	}
}

func BenchmarkDialClose(b *testing.B) {
	l := newLab(b, simqp.Options{})
	for b.Loop() {
		x, y := l.open(0, Config{}), l.open(1, Config{})
		connect(b, x, y, 1)
		_ = conn{x}.Close()
		_ = conn{y}.Close()
	}
}
