// Echo is rdmanet's example: a server that sends back what it gets, and a client
// that measures the round trips and checks every byte of them.
//
//	echo -listen :7000                      # serve until interrupted
//	echo -dial 192.0.2.1:7000 -size 4096 -v # dial, 1000 round trips
//	echo                                    # both ends in one process
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rdmanet/rdmanet/rdmanet"
)

// options are the command line.
type options struct {
	listen   string
	dial     string
	count    int
	size     int
	timeout  time.Duration
	network  string
	provider rdmanet.Provider
	verbose  bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	opt, err := parse(os.Args[1:], os.Stderr)
	if err == flag.ErrHelp {
		return
	}
	if err != nil {
		os.Exit(2)
	}
	if err := run(ctx, opt, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}

func parse(args []string, errs io.Writer) (options, error) {
	var opt options
	fs := flag.NewFlagSet("echo", flag.ContinueOnError)
	fs.SetOutput(errs)
	fs.Usage = func() {
		fmt.Fprintln(errs, "usage: echo [-listen ADDR] [-dial ADDR] [flags]\n"+
			"With -listen alone it serves, with -dial alone it is the client;\n"+
			"with both, or neither, both ends are in this process.")
		fs.PrintDefaults()
	}
	fs.StringVar(&opt.listen, "listen", "", "serve on `address` (host:port; an empty host is all addresses)")
	fs.StringVar(&opt.dial, "dial", "", "connect to `address`")
	fs.IntVar(&opt.count, "n", 1000, "round trips")
	fs.IntVar(&opt.size, "size", 64, "`bytes` of each message")
	fs.DurationVar(&opt.timeout, "timeout", 5*time.Second, "limit for the dial, and for each wait for the peer after it")
	fs.StringVar(&opt.network, "network", "rdma", "network to dial and listen on: rdma, rdma4, rdma6 or ib")
	fs.TextVar(&opt.provider, "provider", rdmanet.Auto, "what carries it: auto, verbs or software")
	fs.BoolVar(&opt.verbose, "v", false, "print each stage of the dial")
	if err := fs.Parse(args); err != nil {
		return opt, err
	}
	var err error
	switch {
	case fs.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case opt.count < 1:
		err = fmt.Errorf("-n must be at least 1")
	case opt.size < 1:
		err = fmt.Errorf("-size must be at least 1")
	case opt.timeout <= 0:
		err = fmt.Errorf("-timeout must be positive")
	}
	if err != nil {
		fmt.Fprintln(errs, "echo:", err)
		fs.Usage()
	}
	return opt, err
}

// run does what the options say.
func run(ctx context.Context, opt options, out io.Writer) error {
	switch {
	case opt.listen != "" && opt.dial == "":
		l, err := listen(ctx, opt)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "listening on %v\n", l.Addr())
		return serve(ctx, l)
	case opt.listen == "" && opt.dial != "":
		return ping(ctx, opt, out)
	}
	return both(ctx, opt, out)
}

// both runs the server and the client in one process.
func both(ctx context.Context, opt options, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	l, err := listenSomewhere(ctx, opt)
	if err != nil {
		return err
	}
	if opt.dial == "" {
		opt.dial = l.Addr().String()
	}
	served := make(chan error, 1)
	go func() { served <- serve(ctx, l) }()
	err = ping(ctx, opt, out)
	stop()
	if serveErr := <-served; err == nil {
		err = serveErr
	}
	return err
}
