//go:build linux

package interop

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/rdmanet/rdmanet"
)

// envChild makes the test binary a peer that tests may kill, stop, or see exit:
// its value is ignored, its arguments are peerOptions.
const envChild = "RDMANET_INTEROP_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(envChild) != "" {
		os.Exit(childMain(os.Args[1:]))
	}
	os.Exit(noGoroutineLeft(m.Run()))
}

// noGoroutineLeft turns a success into a failure if goroutines go on after the
// tests. Connections whose peer is gone, and memory, are given back behind their
// users, which takes longer than goleak would wait.
func noGoroutineLeft(status int) int {
	for begin := time.Now(); status == 0; {
		err := goleak.Find()
		if err == nil {
			break
		}
		if time.Since(begin) > patience {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}
	return status
}

// peerOptions are the arguments of a child.
type peerOptions struct {
	dial     string // connect there,
	listen   string // or listen here, and print the address
	provider string // what to dial or listen with; "plain" for TCP; Verbs if empty
	do       string // what to do with a connection, see behave
	size     int64
	buffer   int // ReadBuffer and WriteBuffer; 0 is the default
	closeT   time.Duration
	keep     net.KeepAliveConfig // enabled if Idle is not 0

	descriptors, lockedMemory uint64 // limits of the process; 0 is for none
}

func (o *peerOptions) flags() *flag.FlagSet {
	fs := flag.NewFlagSet("child", flag.ContinueOnError)
	fs.StringVar(&o.dial, "dial", "", "")
	fs.StringVar(&o.listen, "listen", "", "")
	fs.StringVar(&o.provider, "provider", "", "")
	fs.StringVar(&o.do, "do", "", "")
	fs.Int64Var(&o.size, "size", 0, "")
	fs.IntVar(&o.buffer, "buffer", 0, "")
	fs.DurationVar(&o.closeT, "close-timeout", 0, "")
	fs.DurationVar(&o.keep.Idle, "keepalive-idle", 0, "")
	fs.DurationVar(&o.keep.Interval, "keepalive-interval", 0, "")
	fs.IntVar(&o.keep.Count, "keepalive-count", 0, "")
	fs.Uint64Var(&o.descriptors, "descriptors", 0, "")
	fs.Uint64Var(&o.lockedMemory, "locked-memory", 0, "")
	return fs
}

func (o *peerOptions) args() []string {
	return []string{
		"-dial", o.dial, "-listen", o.listen, "-provider", o.provider, "-do", o.do, "-size", fmt.Sprint(o.size),
		"-buffer", fmt.Sprint(o.buffer), "-close-timeout", o.closeT.String(),
		"-keepalive-idle", o.keep.Idle.String(), "-keepalive-interval", o.keep.Interval.String(), "-keepalive-count", fmt.Sprint(o.keep.Count),
		"-descriptors", fmt.Sprint(o.descriptors), "-locked-memory", fmt.Sprint(o.lockedMemory),
	}
}

// startPeer runs a child.
func startPeer(t *testing.T, limit time.Duration, o peerOptions) *program {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	return start(t, limit, func(cmd *exec.Cmd) {
		cmd.Env = append(os.Environ(), envChild+"=1")
	}, exe, o.args()...)
}

// withPeer runs a child that is connected to the test, by a dial of ours if
// weDial, otherwise by one of its own.
func withPeer(t *testing.T, limit time.Duration, ip string, weDial bool, d rdmanet.Dialer, o peerOptions) (*program, *rdmanet.Conn) {
	t.Helper()
	o.provider = pairingOf(t).peers.String()
	if weDial {
		o.listen = ip
		p := startPeer(t, limit, o)
		c := dial(t, d, p.line("listening on "))
		p.line("connected")
		return p, c
	}
	lc := rdmanet.ListenConfig{
		ReadBuffer: d.ReadBuffer, WriteBuffer: d.WriteBuffer, KeepAlive: d.KeepAlive, KeepAliveConfig: d.KeepAliveConfig,
		CloseTimeout: d.CloseTimeout,
	}
	l := listen(t, lc, ip)
	o.dial = l.Addr().String()
	p := startPeer(t, limit, o)
	c := accept(t, l)
	p.line("connected")
	return p, c
}

// childMain is what a child does; the result is its exit status.
func childMain(args []string) int {
	var o peerOptions
	if err := o.flags().Parse(args); err != nil {
		return 2
	}
	o.keep.Enable = o.keep.Idle != 0
	if err := errors.Join(limit(unix.RLIMIT_NOFILE, o.descriptors), limit(unix.RLIMIT_MEMLOCK, o.lockedMemory)); err != nil {
		fmt.Println("limit:", err)
		return 2
	}
	if o.do != "ask" && o.do != "auto" { // which read their standard input
		go func() {
			io.Copy(io.Discard, os.Stdin)
			os.Exit(5) // the test has gone
		}()
	}
	if o.do == "auto" {
		if err := auto(o.dial); err != nil {
			fmt.Println("auto:", err)
			return 4
		}
		return 0
	}
	c, err := o.connect()
	if err != nil {
		fmt.Println("connect:", err)
		return 3
	}
	fmt.Println("connected")
	if err := o.behave(c); err != nil {
		fmt.Println(o.do+":", err)
		return 4
	}
	return 0
}

// limit sets a limit of the process, unless it is 0.
func limit(resource int, n uint64) error {
	if n == 0 {
		return nil
	}
	return unix.Setrlimit(resource, &unix.Rlimit{Cur: n, Max: n})
}

func (o *peerOptions) connect() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if o.dial != "" {
		d := rdmanet.Dialer{Provider: rdmanet.Verbs, ReadBuffer: o.buffer, WriteBuffer: o.buffer, CloseTimeout: o.closeT, KeepAliveConfig: o.keep}
		if o.provider != "" {
			if err := d.Provider.UnmarshalText([]byte(o.provider)); err != nil {
				return nil, err
			}
		}
		return d.DialContext(ctx, "rdma", o.dial)
	}
	lc := rdmanet.ListenConfig{Provider: rdmanet.Verbs, ReadBuffer: o.buffer, WriteBuffer: o.buffer, CloseTimeout: o.closeT, KeepAliveConfig: o.keep}
	l, err := o.listenBy(ctx, lc)
	if err != nil {
		return nil, err
	}
	fmt.Println("listening on", l.Addr())
	if o.provider == "plain" {
		return nil, echoPlain(l)
	}
	if o.do == "echo-all" {
		return nil, echoAll(l, func(err error) { fmt.Println("accept:", err) })
	}
	defer l.Close()
	if err := l.(*rdmanet.Listener).SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	return l.Accept()
}

// listenBy listens with the provider that was asked for.
func (o *peerOptions) listenBy(ctx context.Context, lc rdmanet.ListenConfig) (net.Listener, error) {
	switch o.provider {
	case "":
	case "plain":
		return net.Listen("tcp", o.listen)
	default:
		if err := lc.Provider.UnmarshalText([]byte(o.provider)); err != nil {
			return nil, err
		}
	}
	return lc.Listen(ctx, "rdma", o.listen)
}

// behave does what a child is for.
func (o *peerOptions) behave(c net.Conn) error {
	switch o.do {
	case "hold": // neither read nor write
		select {}
	case "read": // read and never write
		_, err := io.Copy(io.Discard, struct{ io.Reader }{c})
		return err
	case "echo":
		_, err := io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 64<<10))
		return errors.Join(err, c.Close())
	case "send": // for ever
		return newPattern(1, 1<<62).send(c, 64<<10)
	case "dial-all": // what this process gets, and hold it
		return dialAll(o.dial, c)
	case "survive-read", "survive-write", "survive-both", "survive-send":
		return survive(c.(*rdmanet.Conn), strings.TrimPrefix(o.do, "survive-"))
	case "keep-alive": // ask an HTTP server once on each of many connections, and keep them
		return keepAlive(o, c)
	case "idle-close": // write, rest, close at once, and exit
		if err := newPattern(1, o.size).send(c, 300_000); err != nil {
			return err
		}
		time.Sleep(2500 * time.Millisecond)
		return c.Close()
	case "ask": // what standard input says, line by line, and print the answers
		return ask(c)
	case "close": // write, close at once, and exit
		if err := newPattern(1, o.size).send(c, 300_000); err != nil {
			return err
		}
		return c.Close()
	}
	return fmt.Errorf("unknown behaviour %q", o.do)
}

// ask sends lines of standard input and prints what comes back.
func ask(c net.Conn) error {
	answers := bufio.NewReader(c)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if _, err := c.Write(append(lines.Bytes(), '\n')); err != nil {
			return err
		}
		answer, err := answers.ReadString('\n')
		if err != nil {
			return err
		}
		fmt.Print("answer: ", answer)
	}
	return c.Close()
}

// echoAll echoes on every connection until the listener is closed. temporary is
// told when it can take no more for the moment.
func echoAll(l net.Listener, temporary func(error)) error {
	for {
		c, err := l.Accept()
		var ne interface{ Temporary() bool }
		switch {
		case err == nil:
		case errors.As(err, &ne) && ne.Temporary():
			temporary(err)
			continue
		default:
			return err
		}
		go func() {
			defer c.Close()
			io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 64<<10))
		}()
	}
}
