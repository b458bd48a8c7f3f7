package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A bench runs tests with the overlay.
type bench struct {
	overlay string
	log     string   // a directory for all output, or ""
	logs    int      // how many files are there
	flags   []string // of go test
}

// run runs a package's tests over TCP or over rdmanet ("tcp", "rdma"), but for those
// to skip. A test that panics or hangs takes those after it along; they are run
// again without those that had ended.
func (b *bench) run(t trial, over string, skip map[string]string, flags ...string) (results, error) {
	all := newResults()
	skip = maps.Clone(skip)
	for {
		rest := slices.Clone(flags)
		if len(skip) > 0 {
			rest = append(rest, "-skip="+pattern(skip))
		}
		o, err := b.once(t, over, rest)
		if err != nil {
			return all, err
		}
		before := len(all.end)
		all.addAll(o.results)
		if o.complete {
			all.spread()
			return all, nil
		}
		if len(all.end) == before {
			return all, fmt.Errorf("the tests of %s came to no end over %s:\n%s", t.ImportPath, over, o.raw)
		}
		maps.Copy(skip, all.end)
	}
}

// An outcome is that of one test program.
type outcome struct {
	results
	complete bool // it got to its end
	raw      []byte
}

func (b *bench) once(t trial, over string, flags []string) (outcome, error) {
	o := outcome{results: newResults()}
	args := slices.Concat([]string{"test", "-json", "-count=1", "-vet=off", "-overlay=" + b.overlay}, b.flags, flags, []string{t.ImportPath})
	cmd := goCommand(t.from, args...)
	cmd.Env = append(cmd.Env, "DROPIN="+over)
	cmd.Stderr = os.Stderr
	var err error
	if o.raw, err = cmd.Output(); err != nil && cmd.ProcessState == nil {
		return o, err
	}
	if err := b.keep(t, over, o.raw); err != nil {
		return o, err
	}
	output := map[string]string{}
	whole := failed
	s := bufio.NewScanner(bytes.NewReader(o.raw))
	s.Buffer(nil, 1<<24)
	for s.Scan() {
		var e struct{ Action, Test, Output string }
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			return o, fmt.Errorf("go test -json %s: %w", t.ImportPath, err)
		}
		switch e.Action {
		case "output":
			output[e.Test] += e.Output
			if e.Test == "" && (e.Output == "PASS\n" || e.Output == "FAIL\n") {
				o.complete = true
			}
		case passed, skipped, failed:
			if e.Test == "" {
				whole = e.Action
				break
			}
			o.add(e.Test, e.Action, output[e.Test])
		}
	}
	switch {
	case !o.complete:
		o.blame(output)
		o.reopen()
	case whole == failed && o.count(failed) == 0:
		o.add(wholePackage, failed, output[""])
	}
	return o, s.Err()
}

var running = regexp.MustCompile(`(?m)^\t*(Test\S+) \((\S+)\)$`)

// blame finds out which test ended the program before its time, if that was at the
// time limit: the one that had been running for longest. After a panic, test2json
// says that the test failed.
func (o *outcome) blame(output map[string]string) {
	var longest time.Duration
	hung := ""
	for _, text := range output {
		if !strings.Contains(text, "panic: test timed out") {
			continue
		}
		for _, m := range running.FindAllStringSubmatch(text, -1) {
			// Of a test and the one below it, which have the same time, the longer name.
			d, err := time.ParseDuration(m[2])
			if err == nil && (d > longest || d == longest && len(m[1]) > len(hung)) {
				longest, hung = d, m[1]
			}
		}
	}
	if hung != "" {
		o.add(hung, failed, output[hung]+"hung\n")
	}
}

// keep writes the output of a test program to the directory for it.
func (b *bench) keep(t trial, over string, raw []byte) error {
	if b.log == "" {
		return nil
	}
	b.logs++
	name := fmt.Sprintf("%02d-%s-%s.json", b.logs, strings.ReplaceAll(t.ImportPath, "/", "+"), over)
	return os.WriteFile(filepath.Join(b.log, name), raw, 0o666)
}
