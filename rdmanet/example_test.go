package rdmanet_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/rdmanet/rdmanet/rdmanet"
)

func ExampleDialer_DialContext() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var d rdmanet.Dialer
	conn, err := d.DialContext(ctx, "rdma", "10.0.0.7:9000")
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintln(conn, "hello")
}

// A fleet in which only some clients know of rdmanet: one HTTP server, on one port,
// serves them all.
func ExampleListenConfig_acceptPlain() {
	lc := rdmanet.ListenConfig{AcceptPlain: true}
	l, err := lc.Listen(context.Background(), "rdma", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello, %s", r.UserAgent())
	})}
	go server.Serve(l)
	defer server.Close()

	fetch := func(name string, dial func(ctx context.Context, network, address string) (net.Conn, error)) {
		transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
		req, err := http.NewRequest("GET", "http://"+l.Addr().String(), nil)
		if err != nil {
			log.Fatal(err)
		}
		req.Header.Set("User-Agent", name)
		resp, err := transport.RoundTrip(req)
		if err != nil {
			log.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", body)
	}
	var rdma rdmanet.Dialer
	fetch("client with rdmanet", rdma.DialContext)
	var plain net.Dialer
	fetch("client without", plain.DialContext)
	// Output:
	// hello, client with rdmanet
	// hello, client without
}
