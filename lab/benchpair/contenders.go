//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// A transfer is what rstream's options say.
type transfer struct {
	size, iterations, count int
	buffer                  int // ours only: 0 is our default
}

func (t transfer) flags() []string {
	return []string{
		"-size", strconv.Itoa(t.size), "-iterations", strconv.Itoa(t.iterations),
		"-count", strconv.Itoa(t.count), "-buffer", strconv.Itoa(t.buffer),
	}
}

func (t transfer) rstream(port string, options []string) []string {
	return append([]string{
		"-p", port, "-S", strconv.Itoa(t.size), "-I", strconv.Itoa(t.iterations), "-C", strconv.Itoa(t.count),
	}, options...)
}

// results are what is compared, out of the seconds that the client measured: the
// time of half a round trip, and 10^6 bytes a second.
func (t transfer) results(seconds float64) map[string]float64 {
	messages := float64(2 * t.iterations * t.count)
	return map[string]float64{
		"µs":   seconds * 1e6 / messages,
		"MB/s": messages * float64(t.size) / seconds / 1e6,
	}
}

func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

// pair is our client and our server.
func (b *bench) pair(name string, t transfer, key string) *contender {
	return &contender{name: name, key: key, run: func() (map[string]float64, error) {
		addr := b.addr(b.next())
		args := append([]string{"-addr", addr}, t.flags()...)
		out, err := processes(argv(self(), "server", args...), argv(self(), "client", args...), false)
		if err != nil {
			return nil, err
		}
		return oursResults(t, out)
	}}
}

var oursLine = regexp.MustCompile(`(?m)^seconds ([0-9.]+) allocs ([0-9.]+)$`)

func oursResults(t transfer, out outputs) (map[string]float64, error) {
	client, err := numbers(oursLine, out.client)
	if err != nil {
		return nil, err
	}
	r := t.results(client[0])
	r["allocs"] = client[1]
	r["messages"] = float64(2 * t.iterations * t.count)
	if server, err := numbers(oursLine, out.server); err == nil {
		r["allocs"] = max(r["allocs"], server[1])
	}
	return r, nil
}

// rstream is rstream on both sides. Its client prints a line that ends in
// "... 0.12s 1.23 45.67": seconds, Gb/s, and µs for half a round trip.
func (b *bench) rstream(name string, t transfer, key string, options ...string) *contender {
	return &contender{name: name, key: key, run: func() (map[string]float64, error) {
		args := t.rstream(b.next(), options)
		out, err := processes(
			argv("rstream", "-b", append([]string{b.host}, args...)...),
			argv("rstream", "-s", append([]string{b.host}, args...)...), false)
		if err != nil {
			return nil, err
		}
		last, err := numbers(rstreamLine, out.client)
		if err != nil {
			return nil, err
		}
		return map[string]float64{"µs": last[1], "MB/s": float64(t.size) / last[1]}, nil
	}}
}

var rstreamLine = regexp.MustCompile(`(?m)s +([0-9.]+) +([0-9.]+)\s*\z`)

// toRstream is our client and rstream's server.
func (b *bench) toRstream(t transfer, key string) *contender {
	return &contender{name: oursToC, key: key, run: func() (map[string]float64, error) {
		port := b.next()
		out, err := processes(
			argv("rstream", "-b", append([]string{b.host}, t.rstream(port, []string{"-T", "b"})...)...),
			argv(self(), "client", append([]string{"-addr", b.addr(port)}, t.flags()...)...), false)
		if err != nil {
			return nil, err
		}
		return oursResults(t, out)
	}}
}

// perftest is the device without a protocol above it. Its results line begins
// with the size and the number of iterations; the average, of half a round trip
// in µs, or of 10^9 bits a second where they are asked for, stands in a column
// of its own.
func (b *bench) perftest(program string, size, iterations int, options ...string) *contender {
	key, column, factor := "MB/s", 3, 1e9/8/1e6
	if strings.HasSuffix(program, "_lat") {
		key, column, factor = "µs", 5, 1
	} else {
		options = append(options, "--report_gbits")
	}
	if strings.HasPrefix(b.device, "siw") {
		options = append(options, "-R") // iWARP connects by librdmacm alone
	}
	name := strings.Join(append([]string{program}, options...), " ")
	return &contender{name: name, key: key, run: func() (map[string]float64, error) {
		args := append([]string{"-F", "-d", b.device, "-s", strconv.Itoa(size), "-n", strconv.Itoa(max(iterations, 5)), "-p", b.next()}, options...)
		out, err := processes(argv(program, args[0], args[1:]...), argv(program, b.host, args...), false)
		if err != nil {
			return nil, err
		}
		v, err := perftestValue(out.client, size, column)
		return map[string]float64{key: v * factor}, err
	}}
}

// perftestValue is the value of a column, from 0, of the line of results.
func perftestValue(out string, size, column int) (float64, error) {
	for _, line := range strings.Split(out, "\n") {
		f := strings.Fields(line)
		if len(f) <= column || f[0] != strconv.Itoa(size) {
			continue
		}
		v, err := strconv.ParseFloat(f[column], 64)
		if err == nil && v == 0 {
			err = fmt.Errorf("it measured 0: %q", line)
		}
		return v, err
	}
	return 0, fmt.Errorf("no result in %q", out)
}

// dialCount is how many connections a measurement of dials makes.
func (b *bench) dialCount() string { return strconv.Itoa(b.scaled(60)) }

// dials is our dial and close.
func (b *bench) dials() *contender {
	return &contender{name: ours, key: "median", run: func() (map[string]float64, error) {
		args := []string{"-addr", b.addr(b.next()), "-n", b.dialCount()}
		out, err := processes(argv(self(), "accept", args[:2]...), argv(self(), "dial", args...), true)
		return dialResults(out, err)
	}}
}

// dialsC is the same in C, with rsockets or with librdmacm's own calls.
func (b *bench) dialsC(name, api string) *contender {
	return &contender{name: name, key: "median", run: func() (map[string]float64, error) {
		port := b.next()
		out, err := processes(
			argv("dialc", api, "server", b.host, port),
			argv("dialc", api, "client", b.host, port, b.dialCount()), true)
		return dialResults(out, err)
	}}
}

var dialLine = regexp.MustCompile(`(?m)^median ([0-9.]+) connect ([0-9.]+) close ([0-9.]+)$`)

func dialResults(out outputs, err error) (map[string]float64, error) {
	if err != nil {
		return nil, err
	}
	n, err := numbers(dialLine, out.client)
	if err != nil {
		return nil, err
	}
	r := map[string]float64{"median": n[0], "connect": n[1], "close": n[2]}
	return r, addStages(r, out.client)
}

// addStages adds what a client of dials says of the stages to r.
func addStages(r map[string]float64, out string) error {
	_, line, _ := strings.Cut(out, "\nstages ")
	f := strings.Fields(line)
	for i := 0; i+1 < len(f); i += 2 {
		v, err := strconv.ParseFloat(f[i+1], 64)
		if err != nil {
			return err
		}
		r["stage "+f[i]] = v
	}
	return nil
}

// numbers are the groups of re in s.
func numbers(re *regexp.Regexp, s string) ([]float64, error) {
	m := re.FindStringSubmatch(s)
	if m == nil {
		return nil, fmt.Errorf("no result in %q", s)
	}
	var n []float64
	var errs []error
	for _, g := range m[1:] {
		v, err := strconv.ParseFloat(g, 64)
		n, errs = append(n, v), append(errs, err)
	}
	return n, errors.Join(errs...)
}
