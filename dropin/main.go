// Command dropin runs the tests of other packages over TCP and over rdmanet's
// software NIC, and prints what differs. See README.md.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

func main() {
	log := flag.String("log", "", "a `directory` for the output of each run of tests")
	short := flag.Bool("short", false, "as in go test")
	limit := flag.Duration("timeout", 10*time.Minute, "as in go test, for each package")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: dropin/run [flags] [package ...]\n\nWithout a package, the tests of all are run.")
		flag.PrintDefaults()
	}
	flag.Parse()
	b := bench{log: *log, flags: []string{fmt.Sprint("-timeout=", *limit), fmt.Sprint("-short=", *short)}}
	if err := b.compareAll(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "dropin:", err)
		os.Exit(1)
	}
}

func (b *bench) compareAll(packages []string) error {
	expected, err := readExpected("expected.txt")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "dropin-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	chosen, err := b.prepare(dir, packages)
	if err != nil {
		return err
	}
	var all []comparison
	for _, t := range chosen {
		c, err := b.compare(t, expected)
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	table(os.Stdout, all)
	return judge(os.Stdout, all, expected)
}

// prepare makes the overlay, and finds the packages to run the tests of.
func (b *bench) prepare(dir string, packages []string) ([]trial, error) {
	goroot, err := output(goCommand(".", "env", "GOROOT"))
	if err != nil {
		return nil, err
	}
	o, err := newOverlay(dir, strings.TrimSpace(string(goroot)))
	if err != nil {
		return nil, err
	}
	all, err := trials(dir)
	if err != nil {
		return nil, err
	}
	var chosen []trial
	for _, t := range all {
		if len(packages) > 0 && !slices.Contains(packages, t.ImportPath) {
			continue
		}
		if err := o.addTest(t.Dir, t.Name); err != nil {
			return nil, err
		}
		chosen = append(chosen, t)
	}
	for _, p := range packages {
		if !slices.ContainsFunc(all, func(t trial) bool { return t.ImportPath == p }) {
			return nil, fmt.Errorf("%s is not among the packages that suites.go names, or has no tests", p)
		}
	}
	b.overlay, err = o.write()
	return chosen, err
}

// again is how often a test is run that failed over rdmanet alone and is not in the
// list. If it fails once more there, and never over TCP, it differs.
const again = 10

// listedLimit bounds the run of the tests of the list: a test that is not written for
// a failure may hang after it.
const listedLimit = time.Minute

// compare runs a package's tests over both. Over rdmanet, those of the list are run
// by themselves, since many panic.
func (b *bench) compare(t trial, expected []difference) (c comparison, err error) {
	c.pkg = t.ImportPath
	listed := map[string]string{}
	for _, d := range expected {
		if d.pkg == c.pkg {
			listed[strings.TrimSuffix(d.test, "/*")] = failed
		}
	}
	fmt.Fprintf(os.Stderr, "%s over TCP\n", t.ImportPath)
	start := time.Now()
	if c.tcp, err = b.run(t, "tcp", map[string]string{}); err != nil {
		return c, err
	}
	c.times[0] = seconds(start)
	fmt.Fprintf(os.Stderr, "%s over rdmanet\n", t.ImportPath)
	start = time.Now()
	if c.rdma, err = b.run(t, "rdma", listed); err != nil {
		return c, err
	}
	if len(listed) > 0 {
		r, err := b.run(t, "rdma", map[string]string{}, "-run="+pattern(listed), fmt.Sprint("-timeout=", listedLimit))
		if err != nil {
			return c, err
		}
		c.rdma.addAll(r)
	}
	c.times[1] = seconds(start)
	suspects := map[string]string{}
	for _, name := range only(c.tcp, c.rdma) {
		if _, ok := find(expected, c.pkg, name); ok || name == wholePackage {
			c.differ = append(c.differ, name)
		} else {
			suspects[name] = failed
		}
	}
	if len(suspects) == 0 {
		return c, nil
	}
	fmt.Fprintf(os.Stderr, "%s: %d tests again over both\n", t.ImportPath, len(suspects))
	flags := []string{"-run=" + pattern(suspects), fmt.Sprint("-count=", again)}
	tcp, err := b.run(t, "tcp", map[string]string{}, flags...)
	if err != nil {
		return c, err
	}
	rdma, err := b.run(t, "rdma", map[string]string{}, flags...)
	if err != nil {
		return c, err
	}
	for _, name := range slices.Sorted(maps.Keys(suspects)) {
		if tcp.end[name] == passed && rdma.end[name] != passed {
			c.differ = append(c.differ, name)
		} else {
			c.flaky = append(c.flaky, name)
		}
	}
	return c, nil
}

func seconds(since time.Time) string { return fmt.Sprintf("%.1f", time.Since(since).Seconds()) }
