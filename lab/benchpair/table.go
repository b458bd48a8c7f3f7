//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// print writes the table of all items.
func (b *bench) print(w io.Writer, items []*item, rounds int) {
	fmt.Fprintf(w, "### %s on %s (%s), %d rounds\n\n", b.device, os.Getenv("LAB_GUEST"), os.Getenv("LAB_VERSIONS"), rounds)
	fmt.Fprintf(w, "| | median | min to max | compared: the goal | ratio of the medians | median of the rounds' ratios | reached |\n|---|--:|--:|---|--:|--:|---|\n")
	for _, it := range items {
		fmt.Fprintf(w, "| **%s**, %s | | | | | | |\n", it.name, it.unit)
		for _, c := range it.contenders {
			name := c.name
			if c.failed > 0 {
				reason, _, _ := strings.Cut(c.err.Error(), "\n")
				name += fmt.Sprintf(" (failed %d times: %s)", c.failed, reason)
			}
			if len(c.values) == 0 {
				fmt.Fprintf(w, "| %s | | | | | | |\n", name)
				continue
			}
			fmt.Fprintf(w, "| %s | %.1f | %.1f to %.1f |", name, median(c.values), slices.Min(c.values), slices.Max(c.values))
			it.printRatio(w, c)
		}
	}
	printStages(w, items)
	printAllocs(w, items)
}

// printRatio ends the line of a contender with what ours is to be compared with
// it. Of two goals with the same contender the second gets a line of its own.
func (it *item) printRatio(w io.Writer, c *contender) {
	first := true
	for _, g := range it.goals {
		if g.theirs != c.name {
			continue
		}
		o := it.find(g.ours)
		if o == nil || len(o.values) == 0 || len(c.values) == 0 {
			continue
		}
		var each []float64
		for i := range min(len(o.values), len(c.values)) {
			each = append(each, o.values[i]/c.values[i])
		}
		ratio, sign, met := median(o.values)/median(c.values), "≤", ""
		if it.bigger {
			sign = "≥"
		}
		if it.bigger == (ratio >= g.bound) || ratio == g.bound {
			met = "yes"
		} else {
			met = "**no**"
		}
		if !first {
			fmt.Fprint(w, "\n| | | |")
		}
		fmt.Fprintf(w, " %s %s %.2f | %.2f | %.2f | %s |", g.ours, sign, g.bound, ratio, median(each), met)
		first = false
	}
	if first {
		fmt.Fprint(w, " | | | |")
	}
	fmt.Fprintln(w)
}

func (it *item) find(name string) *contender {
	for _, c := range it.contenders {
		if c.name == name {
			return c
		}
	}
	return nil
}

// printStages tells how dials divide.
func printStages(w io.Writer, items []*item) {
	for _, it := range items {
		for _, c := range it.contenders {
			connect := c.column("connect")
			if len(connect) == 0 {
				continue
			}
			fmt.Fprintf(w, "\n%s, %s: dial %.0f µs", it.name, c.name, median(connect))
			sep := " ("
			for _, stage := range []string{"open", "addrinfo", "addr", "route", "queues", "connect"} {
				if v := c.column("stage " + stage); len(v) > 0 {
					fmt.Fprintf(w, "%s%s %.0f", sep, stage, median(v))
					sep = ", "
				}
			}
			if sep == ", " {
				fmt.Fprint(w, ")")
			}
			fmt.Fprintf(w, ", close %.0f µs.\n", median(c.column("close")))
		}
	}
}

// printAllocs tells how many objects one of our ends has allocated, the one that
// allocated more, in each item.
func printAllocs(w io.Writer, items []*item) {
	for _, it := range items {
		for _, c := range it.contenders {
			if allocs := c.column("allocs"); len(allocs) > 0 && c.name == ours {
				fmt.Fprintf(w, "\n%s, objects allocated by an end during %.0f Reads and Writes: median %.0f, at most %.0f.\n",
					it.name, median(c.column("messages")), median(allocs), slices.Max(allocs))
			}
		}
	}
}

// column are the values of a key, of all rounds that have it.
func (c *contender) column(key string) []float64 {
	var v []float64
	for _, r := range c.results {
		if x, ok := r[key]; ok {
			v = append(v, x)
		}
	}
	return v
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	if n == 0 {
		return 0
	}
	return (s[(n-1)/2] + s[n/2]) / 2
}
