package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func ends(m map[string]string) results {
	r := newResults()
	for name, end := range m {
		r.add(name, end, "")
	}
	return r
}

func TestOnly(t *testing.T) {
	tcp := ends(map[string]string{"A": passed, "A/x": passed, "A/y": passed, "B": passed, "C": failed, "D": passed, "E": passed})
	rdma := ends(map[string]string{"A": failed, "A/x": failed, "A/y": passed, "B": passed, "C": passed, "D": skipped})
	if got, want := only(tcp, rdma), []string{"A/x", "D", "E"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestJudge(t *testing.T) {
	c := comparison{
		pkg: "p", differ: []string{"A"},
		tcp:  ends(map[string]string{"A": passed, "B": passed}),
		rdma: ends(map[string]string{"A": failed, "B": passed}),
	}
	a := difference{pkg: "p", test: "A", reason: "r"}
	b := difference{pkg: "p", test: "B", reason: "r"}
	maybe := difference{pkg: "p", test: "B", reason: "r", sometimes: true}
	for _, k := range []struct {
		expected []difference
		ok       bool
	}{
		{nil, false},
		{[]difference{a}, true},
		{[]difference{{pkg: "q", test: "A"}}, false},
		{[]difference{a, b}, false},
		{[]difference{a, maybe}, true},
		{[]difference{{pkg: "p", test: "A/*"}}, false},
	} {
		if err := judge(io.Discard, []comparison{c}, k.expected); (err == nil) != k.ok {
			t.Errorf("%v: %v", k.expected, err)
		}
	}
}

func TestCovers(t *testing.T) {
	d := difference{pkg: "p", test: "A/*"}
	for test, want := range map[string]bool{"A/x": true, "A/x/y": true, "A": false, "AB/x": false} {
		if d.covers("p", test) != want || d.covers("q", test) {
			t.Error(test)
		}
	}
}

// Of what was running at the time limit, that failed which had run for longest.
func TestBlame(t *testing.T) {
	o := outcome{results: ends(map[string]string{"TestC": passed})}
	o.blame(map[string]string{
		"TestA": "panic: test timed out after 5m0s\n\trunning tests:\n\t\tTestA (1s)\n\t\tTestB (4m2s)\n\t\tTestB/y (4m2s)\n",
	})
	if o.end["TestB/y"] != failed || o.end["TestA"] != "" || o.end["TestB"] != "" {
		t.Error(o.end)
	}
	o.spread()
	if o.end["TestB"] != failed || o.end["TestC"] != passed {
		t.Error(o.end)
	}
}

// A panic in one subtest leaves the other to be run.
func TestReopen(t *testing.T) {
	r := ends(map[string]string{"A": failed, "A/x": failed, "B": failed, "C": passed, "C/x": passed})
	r.reopen()
	if r.end["A"] != "" || r.end["A/x"] != failed || r.end["B"] != failed || r.end["C"] != passed {
		t.Error(r.end)
	}
}

func TestPattern(t *testing.T) {
	got := pattern(map[string]string{"A": passed, "A/x": passed, "B/y/z": failed, "B/+": passed})
	if want := `^A$|^B$/^\+$|^B$/^y$/^z$`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestOtherToolchain(t *testing.T) {
	goroot := t.TempDir()
	dir := filepath.Join(goroot, "src", "net")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	text := "package net\n\nfunc (d *Dialer) DialContext(network string) {}\n"
	if err := os.WriteFile(filepath.Join(dir, "dial.go"), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := newOverlay(t.TempDir(), goroot)
	if err == nil || !strings.Contains(err.Error(), "has no func (*Dialer) DialContext(ctx") {
		t.Error(err)
	}
}
