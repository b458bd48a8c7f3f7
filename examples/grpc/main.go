// Grpc is gRPC over rdmanet: a server whose listener, and a client whose dialer,
// are rdmanet's. The service sends back what it gets, one message or a stream.
//
//	grpc -listen :7001          # serve until interrupted
//	grpc -dial 192.0.2.1:7001   # call it
//	grpc                        # both in one process
//
// It is a module of its own, and is run in its directory:
//
//	cd examples/grpc && go run .
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rdmanet/rdmanet/rdmanet"
)

func main() {
	listen := flag.String("listen", "", "serve on `address` (host:port; an empty host is all addresses)")
	dial := flag.String("dial", "", "call the service at `address`")
	size := flag.Int("size", 64<<10, "`bytes` of each message")
	count := flag.Int("n", 100, "messages")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *dial, *size, *count); err != nil {
		fmt.Fprintln(os.Stderr, "grpc:", err)
		os.Exit(1)
	}
}

// run serves, calls, or does both: with neither address, on one of this host's own.
func run(ctx context.Context, listen, dial string, size, count int) error {
	both := listen == "" && dial == ""
	if both {
		listen = "127.0.0.1:0"
	}
	if listen == "" {
		return report(ctx, dial, size, count)
	}
	l, err := rdmanet.Listen("rdma", listen)
	if err != nil {
		return err
	}
	fmt.Println("listening on", l.Addr())
	server := newServer()
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	if both {
		err = report(ctx, l.Addr().String(), size, count)
	} else {
		<-ctx.Done()
	}
	server.GracefulStop()
	return errors.Join(err, <-served)
}

// report calls the service count times in a row, and then streams as much through it.
func report(ctx context.Context, address string, size, count int) error {
	var d rdmanet.Dialer
	dialed := make(chan rdmanet.Info, 1)
	cc, err := newClient(address, func(ctx context.Context, address string) (net.Conn, error) {
		c, err := d.DialContext(ctx, "rdma", address)
		if err == nil {
			info, _ := rdmanet.InfoOf(c)
			select {
			case dialed <- info:
			default: // it has been dialed again
			}
		}
		return c, err
	})
	if err != nil {
		return err
	}
	defer cc.Close()
	message := make([]byte, size)
	for i := range message {
		message[i] = byte(i)
	}
	begin := time.Now()
	for range count {
		if err := call(ctx, cc, message); err != nil {
			return err
		}
	}
	each := time.Since(begin) / time.Duration(count)
	fmt.Printf("%d calls over %s, %d bytes there and back: %v each\n", count, (<-dialed).Provider, size, each)
	begin = time.Now()
	if err := stream(ctx, cc, message, count); err != nil {
		return err
	}
	fmt.Printf("a stream of %d messages: %.0f MB/s each way\n", count, float64(size)*float64(count)/1e6/time.Since(begin).Seconds())
	return nil
}
