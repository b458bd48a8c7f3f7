package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The service has a well-known message type, so that nothing need be generated.
const (
	serviceName  = "rdmanet.example.Echo"
	callMethod   = "/" + serviceName + "/Call"
	streamMethod = "/" + serviceName + "/Stream"
)

var service = grpc.ServiceDesc{
	ServiceName: serviceName,
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Call",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			var message wrapperspb.BytesValue
			if err := decode(&message); err != nil {
				return nil, err
			}
			return &message, nil
		},
	}},
	Streams: []grpc.StreamDesc{{
		StreamName:    "Stream",
		ServerStreams: true,
		ClientStreams: true,
		Handler: func(_ any, s grpc.ServerStream) error {
			for {
				var message wrapperspb.BytesValue
				if err := s.RecvMsg(&message); errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
				if err := s.SendMsg(&message); err != nil {
					return err
				}
			}
		},
	}},
}

const maxMessage = 64 << 20

func newServer() *grpc.Server {
	s := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage))
	s.RegisterService(&service, nil)
	return s
}

// newClient makes a client that dials by dial. The scheme "passthrough" leaves names
// to rdmanet, which resolves them itself.
func newClient(address string, dial func(context.Context, string) (net.Conn, error)) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address,
		grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
}

// call sends one message and checks that it comes back.
func call(ctx context.Context, cc *grpc.ClientConn, message []byte) error {
	var reply wrapperspb.BytesValue
	if err := cc.Invoke(ctx, callMethod, wrapperspb.Bytes(message), &reply); err != nil {
		return err
	}
	return compare(reply.Value, message)
}

// stream sends a message count times without waiting, and checks that each comes back.
func stream(ctx context.Context, cc *grpc.ClientConn, message []byte, count int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := cc.NewStream(ctx, &service.Streams[0], streamMethod)
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		for range count {
			if err := s.SendMsg(wrapperspb.Bytes(message)); err != nil {
				sent <- err
				return
			}
		}
		sent <- s.CloseSend()
	}()
	for i := range count {
		var reply wrapperspb.BytesValue
		if err := s.RecvMsg(&reply); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		if err := compare(reply.Value, message); err != nil {
			return err
		}
	}
	if err := <-sent; err != nil {
		return err
	}
	if err := s.RecvMsg(new(wrapperspb.BytesValue)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("more than was sent came back: %v", err)
	}
	return nil
}

func compare(got, want []byte) error {
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%d bytes came back that are not the %d sent", len(got), len(want))
	}
	return nil
}
