package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"github.com/rdmanet/rdmanet/rdmanet"
)

func listen(ctx context.Context, opt options) (net.Listener, error) {
	lc := rdmanet.ListenConfig{Provider: opt.provider}
	return lc.Listen(ctx, opt.network, opt.listen)
}

// listenSomewhere listens on -listen, or on the first address of this host that
// the provider can listen on. Loopback comes last: devices do not have it.
func listenSomewhere(ctx context.Context, opt options) (net.Listener, error) {
	if opt.listen != "" {
		return listen(ctx, opt)
	}
	ifaddrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var hosts, loopback []string
	for _, ifaddr := range ifaddrs {
		switch ipnet, ok := ifaddr.(*net.IPNet); {
		case !ok || ipnet.IP.IsLinkLocalUnicast():
		case ipnet.IP.IsLoopback():
			loopback = append(loopback, ipnet.IP.String())
		default:
			hosts = append(hosts, ipnet.IP.String())
		}
	}
	var first error
	for _, host := range append(hosts, loopback...) {
		opt.listen = net.JoinHostPort(host, "0")
		l, err := listen(ctx, opt)
		if err == nil {
			return l, nil
		}
		if first == nil {
			first = err
		}
	}
	if first == nil {
		first = errors.New("this host has no address to listen on")
	}
	return nil, fmt.Errorf("no address of this host can be listened on: %w", first)
}

// serve echoes on every connection, in a goroutine for each, until the context
// ends. A connection that fails is reported and ends alone.
func serve(ctx context.Context, l net.Listener) error {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		conns = map[net.Conn]struct{}{}
	)
	defer context.AfterFunc(ctx, func() {
		l.Close()
		mu.Lock()
		defer mu.Unlock()
		for c := range conns {
			c.Close()
		}
	})()
	defer wg.Wait()
	defer l.Close()
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				c.Close()
			}
			return nil
		}
		if err != nil {
			if ne, ok := errors.AsType[interface {
				error
				Temporary() bool
			}](err); ok && ne.Temporary() {
				fmt.Fprintln(os.Stderr, "echo:", err)
				continue
			}
			return err
		}
		mu.Lock()
		conns[c] = struct{}{}
		mu.Unlock()
		wg.Go(func() {
			_, err := io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 64<<10))
			mu.Lock()
			delete(conns, c)
			mu.Unlock()
			if closeErr := c.Close(); err == nil {
				err = closeErr
			}
			if err != nil && ctx.Err() == nil {
				fmt.Fprintf(os.Stderr, "echo: connection from %v: %v\n", c.RemoteAddr(), err)
			}
		})
	}
}
