package main

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/rdmanet/rdmanet/rdmanet"
)

// The two functions are those of README.md.

func serve(address string, server *grpc.Server) error {
	l, err := rdmanet.Listen("rdma", address)
	if err != nil {
		return err
	}
	return server.Serve(l)
}

func dial(address string) (*grpc.ClientConn, error) {
	var d rdmanet.Dialer
	return grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return d.DialContext(ctx, "rdma", address)
		}))
}

func TestReadme(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String() // free in a moment
	require.NoError(t, l.Close())
	server := newServer()
	served := make(chan error, 1)
	go func() { served <- serve(address, server) }()

	cc, err := dial(address)
	require.NoError(t, err)
	defer cc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for { // the server may not listen yet
		if err = call(ctx, cc, []byte("hello")); err == nil {
			break
		}
		select {
		case err := <-served:
			t.Fatal(err)
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	server.Stop()
	require.NoError(t, <-served)
}
