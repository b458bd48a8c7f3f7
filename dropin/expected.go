package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// A difference is a test that passes over TCP and does not over rdmanet, and why
// this must be so.
type difference struct {
	pkg, test string
	sometimes bool // it may also pass
	reason    string
}

// covers tells whether the difference is that of a test. A name that ends in /* is
// that of each subtest.
func (d difference) covers(pkg, test string) bool {
	above, all := strings.CutSuffix(d.test, "*")
	return d.pkg == pkg && (d.test == test || all && strings.HasPrefix(test, above))
}

// find finds the difference that covers a test.
func find(expected []difference, pkg, test string) (difference, bool) {
	for _, d := range expected {
		if d.covers(pkg, test) {
			return d, true
		}
	}
	return difference{}, false
}

// readExpected reads the list: lines of package, test, "always" or "sometimes", and
// the reason. Empty lines and comments (#) say nothing.
func readExpected(file string) (all []difference, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for n := 1; s.Scan(); n++ {
		line := strings.TrimSpace(s.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		w := strings.Fields(line)
		if len(w) < 4 || w[2] != "always" && w[2] != "sometimes" {
			return nil, fmt.Errorf("%s:%d: not a package, a test, always or sometimes, and a reason", file, n)
		}
		all = append(all, difference{w[0], w[1], w[2] == "sometimes", strings.Join(w[3:], " ")})
	}
	return all, s.Err()
}

// A comparison is what became of one package's tests.
type comparison struct {
	pkg       string
	tcp, rdma results
	times     [2]string
	differ    []string // passed over TCP alone, each time
	flaky     []string // passed over TCP alone, and then over both, or failed over both
}

// table prints the comparisons as a table.
func table(w io.Writer, all []comparison) {
	const row = "%-42s %6v %6v %8v %7v %7v %7v\n"
	fmt.Fprintf(w, "\n"+row, "package", "tests", "TCP", "rdmanet", "differ", "s TCP", "s rdma")
	for _, c := range all {
		names := newResults()
		names.addAll(c.tcp)
		names.addAll(c.rdma)
		fmt.Fprintf(w, row, c.pkg, len(names.end), c.tcp.count(passed), c.rdma.count(passed), len(c.differ), c.times[0], c.times[1])
	}
}

// judge prints each difference with its reason. It returns an error if one has
// none, or if one that has a reason is no longer there.
func judge(w io.Writer, all []comparison, expected []difference) error {
	unlisted, stale := 0, 0
	for _, c := range all {
		for _, name := range c.differ {
			if d, ok := find(expected, c.pkg, name); ok {
				fmt.Fprintf(w, "\n%s %s\n\t%s\n", c.pkg, name, d.reason)
				continue
			}
			unlisted++
			fmt.Fprintf(w, "\n%s %s: NOT LISTED\n%s", c.pkg, name, indented(c.rdma.output[name]))
		}
		for _, name := range c.flaky {
			fmt.Fprintf(w, "\n%s %s: failed once over rdmanet alone, not when run again\n%s", c.pkg, name, indented(c.rdma.output[name]))
		}
		for _, name := range only(c.rdma, c.tcp) {
			fmt.Fprintf(w, "\n%s %s: passed over rdmanet, not over TCP (%s)\n", c.pkg, name, c.tcp.end[name])
		}
		for name, end := range c.tcp.end {
			if d, ok := find(expected, c.pkg, name); ok && !d.sometimes && end == passed && c.rdma.end[name] == passed {
				stale++
				fmt.Fprintf(w, "\n%s %s: LISTED, BUT PASSES\n", c.pkg, name)
			}
		}
	}
	fmt.Fprintln(w)
	if unlisted+stale > 0 {
		return errors.New(strings.Join([]string{
			fmt.Sprintf("%d tests fail over rdmanet alone and are not in the list", unlisted),
			fmt.Sprintf("%d are in the list and pass", stale),
		}, "; "))
	}
	return nil
}

// indented is the end of an output.
func indented(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if drop := len(lines) - 30; drop > 0 {
		lines = append([]string{fmt.Sprintf("(%d lines)", drop)}, lines[drop:]...)
	}
	return "\t" + strings.Join(lines, "\n\t") + "\n"
}
