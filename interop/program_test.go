//go:build linux

package interop

import (
	"bytes"
	"context"
	"fmt"
	"github.com/stretchr/testify/require"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A program is a process that the test has started: a C program, or the test
// binary in another role. It does not outlive the test, or its time limit.
type program struct {
	t      *testing.T
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	output *output
	limit  time.Duration
	ctx    context.Context
	ended  chan struct{}
	err    error // of Wait; read it after ended
}

// start starts a program. prepare, if not nil, may change the command first.
func start(t *testing.T, limit time.Duration, prepare func(*exec.Cmd), name string, args ...string) *program {
	t.Helper()
	// Not the test's context, which ends before its cleanup functions run.
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	p := &program{
		t: t, name: filepath.Base(name), cmd: exec.CommandContext(ctx, name, args...),
		output: newOutput(), limit: limit, ctx: ctx, ended: make(chan struct{}),
	}
	p.cmd.WaitDelay = 2 * time.Second
	p.cmd.Stdout = p.output
	p.cmd.Stderr = p.output
	if prepare != nil {
		prepare(p.cmd)
	}
	if p.cmd.Stdin == nil {
		// The end of its standard input tells a child of ours that the
		// test has gone.
		var err error
		if p.stdin, err = p.cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.cmd.Start(); err != nil {
		cancel()
		t.Fatalf("start %s: %v", p.name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.output.lines)
		close(p.ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-p.ended
		if t.Failed() {
			t.Logf("%s, which ended with %v, printed:\n%s", strings.Join(p.cmd.Args, " "), p.err, p.output)
		}
	})
	return p
}

// wait waits until the program ends, which it must do with status 0.
func (p *program) wait() {
	p.t.Helper()
	if err := p.status(); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

// status waits until the program ends, and returns how.
func (p *program) status() error {
	<-p.ended
	if p.ctx.Err() != nil {
		return fmt.Errorf("it did not end within %v", p.limit)
	}
	return p.err
}

// line waits for a line of output with the given prefix and returns the rest.
func (p *program) line(prefix string) string {
	p.t.Helper()
	for line := range p.output.lines {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return rest
		}
	}
	p.t.Fatalf("%s ended (%v) without printing %q", p.name, p.status(), prefix)
	return ""
}

// output keeps what a program prints, up to a bound, and hands out its lines.
type output struct {
	lines chan string // those beyond its capacity are not handed out

	mu      sync.Mutex
	kept    bytes.Buffer
	partial []byte
}

const maxOutput = 64 << 10

func newOutput() *output { return &output{lines: make(chan string, 1000)} }

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept.Write(b[:min(len(b), maxOutput-o.kept.Len())])
	o.partial = append(o.partial, b...)
	for {
		line, rest, found := bytes.Cut(o.partial, []byte("\n"))
		if !found {
			return len(b), nil
		}
		select {
		case o.lines <- string(line):
		default:
		}
		o.partial = rest
	}
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.kept.String()
}

// findProgram returns the path of an installed program, or ends the test.
func findProgram(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		missing(t, name)
	}
	return path
}

// findPreload returns the path of librspreload.so, or ends the test.
func findPreload(t *testing.T) string {
	t.Helper()
	for _, pattern := range []string{"/usr/lib/*/rsocket/librspreload.so*", "/usr/lib64/rsocket/librspreload.so*", "/usr/lib/rsocket/librspreload.so*"} {
		if paths, _ := filepath.Glob(pattern); len(paths) > 0 {
			return paths[0]
		}
	}
	missing(t, "librspreload.so")
	return ""
}

// lacksAccept4 reports whether librspreload.so is one that does not stand in for
// accept4, which netcat calls; that of librdmacm 44.0 is.
func lacksAccept4(t *testing.T) bool {
	t.Helper()
	library, err := os.ReadFile(findPreload(t))
	require.NoError(t, err)
	return !bytes.Contains(library, []byte("accept4"))
}
