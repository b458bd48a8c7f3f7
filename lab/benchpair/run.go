//go:build linux

package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// A bench is the comparison on one device.
type bench struct {
	device string
	host   string // the device's address
	scale  float64
	port   int // of the last pair of processes
}

// A contender is one way to do an item.
type contender struct {
	name string
	run  func() (map[string]float64, error)
	key  string // of the map: what is compared

	values  []float64
	results []map[string]float64
	failed  int
	err     error // the last failure
}

// An item is one line of comparison: the contenders do the same, in turns.
type item struct {
	name       string
	unit       string
	bigger     bool // bigger values are better
	contenders []*contender
	goals      []goal
}

// A goal is a bound on the ratio of two contenders' medians.
type goal struct {
	ours, theirs string
	bound        float64
}

// run does all items, as many rounds as asked for, and prints the table.
func run(args []string) error {
	f := flag.NewFlagSet("run", flag.ExitOnError)
	rounds := f.Int("rounds", 7, "rounds, of which each runs every contender once")
	only := f.String("only", "", "only the items whose name contains `text`")
	b := &bench{device: os.Getenv("RDMANET_TEST_DEVICE"), host: os.Getenv("RDMANET_TEST_ADDR4"), port: 7500}
	f.Float64Var(&b.scale, "scale", 1, "factor of the amount of work in each measurement")
	if err := f.Parse(args); err != nil {
		return err
	}
	if b.device == "" || b.host == "" {
		return fmt.Errorf("RDMANET_TEST_DEVICE and RDMANET_TEST_ADDR4 do not say which device to use")
	}
	var items []*item
	for _, it := range b.items() {
		if strings.Contains(it.name, *only) {
			items = append(items, it)
		}
	}
	for round := range *rounds {
		for _, it := range items {
			for i := range it.contenders {
				c := it.contenders[i]
				if round%2 == 1 { // what drifts within a round favours nobody
					c = it.contenders[len(it.contenders)-1-i]
				}
				c.once(it.name)
			}
		}
		fmt.Fprintf(os.Stderr, "round %d of %d done\n", round+1, *rounds)
	}
	b.print(os.Stdout, items, *rounds)
	return nil
}

// maxFailed is how often a contender may fail; then it is left out.
const maxFailed = 3

// once runs a contender, and if that fails runs it again.
func (c *contender) once(item string) {
	for range 2 {
		if c.failed == maxFailed {
			return
		}
		r, err := c.run()
		if err == nil {
			c.values = append(c.values, r[c.key])
			c.results = append(c.results, r)
			fmt.Fprintf(os.Stderr, "%s, %s: %.1f\n", item, c.name, r[c.key])
			return
		}
		c.err = err
		c.failed++
		fmt.Fprintf(os.Stderr, "%s, %s: %v\n", item, c.name, err)
	}
}

// Names of contenders.
const (
	ours      = "rdmanet"
	oursEqual = "rdmanet, 1 MiB buffers"
	oursToC   = "rdmanet to rstream"
	spinning  = "rstream"
	blocking  = "rstream -T b"
	rsockets  = "rsockets in C"
	cmCalls   = "librdmacm in C"
)

// rstreamBuffer is what rstream sets both its buffers to.
const rstreamBuffer = 1 << 20

func (b *bench) items() []*item {
	var items []*item
	for _, size := range []int{64, 4096} {
		t := transfer{size: size, iterations: b.scaled(3000), count: 1}
		items = append(items, &item{
			name: "ping-pong " + sizeName(size), unit: "µs",
			contenders: []*contender{
				b.pair(ours, t, "µs"),
				b.rstream(spinning, t, "µs"),
				b.rstream(blocking, t, "µs", "-T", "b"),
				b.toRstream(t, "µs"),
				b.perftest("ib_send_lat", size, b.scaled(3000)),
				b.perftest("ib_send_lat", size, b.scaled(3000), "-e"),
			},
			goals: []goal{{ours, spinning, 1.1}, {ours, blocking, 1.1}},
		})
	}
	for _, size := range []int{64 << 10, 1 << 20} {
		t := transfer{size: size, iterations: 1, count: max(b.scaled(64<<20)/size, 1)}
		equal := t
		equal.buffer = rstreamBuffer
		items = append(items, &item{
			name: "streaming " + sizeName(size), unit: "MB/s", bigger: true,
			contenders: []*contender{
				b.pair(ours, t, "MB/s"),
				b.pair(oursEqual, equal, "MB/s"),
				b.rstream(spinning, t, "MB/s"),
				b.rstream(blocking, t, "MB/s", "-T", "b"),
				b.toRstream(t, "MB/s"),
				b.perftest("ib_write_bw", size, t.count),
			},
			goals: []goal{{ours, spinning, 1.1}, {ours, blocking, 1.1}, {oursEqual, spinning, 0.95}, {oursEqual, blocking, 0.95}},
		})
	}
	return append(items, &item{
		name: "dial and close", unit: "µs",
		contenders: []*contender{b.dials(), b.dialsC(rsockets, "rs"), b.dialsC(cmCalls, "cm")},
		goals:      []goal{{ours, rsockets, 1.3}, {ours, cmCalls, 1.3}},
	})
}

func (b *bench) scaled(n int) int { return max(int(float64(n)*b.scale), 2) }

func sizeName(n int) string {
	switch {
	case n >= 1<<20:
		return strconv.Itoa(n>>20) + " MiB"
	case n >= 1<<10:
		return strconv.Itoa(n>>10) + " KiB"
	}
	return strconv.Itoa(n) + " B"
}

// next is the port for the next pair of processes. None is used twice: on some
// devices a port is not free at once.
func (b *bench) next() string {
	b.port++
	return strconv.Itoa(b.port)
}

func (b *bench) addr(port string) string { return net.JoinHostPort(b.host, port) }
