package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// The ends of a test, from best to worst.
const (
	passed  = "pass"
	skipped = "skip"
	failed  = "fail"
)

// results are the ends of tests by name, and what the tests printed. The package
// itself, which fails without a test when TestMain fails it, is TestMain.
type results struct {
	end    map[string]string
	output map[string]string
}

const wholePackage = "TestMain"

func newResults() results { return results{map[string]string{}, map[string]string{}} }

// add notes an end. Of several, the worst counts.
func (r results) add(name, end, output string) {
	order := []string{"", passed, skipped, failed}
	r.end[name] = order[max(slices.Index(order, r.end[name]), slices.Index(order, end))]
	r.output[name] += output
}

func (r results) addAll(other results) {
	for name, end := range other.end {
		r.add(name, end, other.output[name])
	}
}

// count is how many tests ended so.
func (r results) count(end string) (n int) {
	for _, e := range r.end {
		if e == end {
			n++
		}
	}
	return n
}

// only are the names of the tests that passed in a but not in b, without those
// that have such a test below them.
func only(a, b results) (names []string) {
	for name, end := range a.end {
		if end == passed && b.end[name] != passed {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, name+"/") })
	})
}

// pattern matches tests by their whole names, with all below them. Names below
// others of them are left out.
func pattern(names map[string]string) string {
	var all []string
	for name := range names {
		parts := strings.Split(name, "/")
		if len(parts) > 1 && names[strings.Join(parts[:len(parts)-1], "/")] != "" {
			continue
		}
		for i, p := range parts {
			parts[i] = "^" + regexp.QuoteMeta(p) + "$"
		}
		all = append(all, strings.Join(parts, "/"))
	}
	slices.Sort(all)
	return strings.Join(all, "|")
}

// spread has tests fail that have one below them that failed.
func (r results) spread() {
	for name, end := range maps.Clone(r.end) {
		for i, c := range name {
			if c == '/' && end == failed {
				r.add(name[:i], failed, "")
			}
		}
	}
}

// reopen takes back the ends of tests that have one below them that failed: a panic
// fails these as well, before they have run the others below them.
func (r results) reopen() {
	for name, end := range maps.Clone(r.end) {
		for i, c := range name {
			if c == '/' && end == failed {
				delete(r.end, name[:i])
			}
		}
	}
}
