//go:build linux

package interop

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/rdmanet"
)

// A site is an HTTP server and a client of it, over RDMA.
type site struct {
	server   *http.Server
	client   *http.Client
	base     string
	conns    *connCounter
	canceled chan error    // how /wait saw its request end
	blocked  chan struct{} // /slow has begun
	release  chan struct{} // lets /slow answer
	served   chan error
}

// A connCounter counts a server's connections by their state.
type connCounter struct {
	mu   sync.Mutex
	seen map[net.Conn]http.ConnState
}

func (c *connCounter) state(conn net.Conn, s http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[conn] = s
}

func (c *connCounter) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.seen)
}

// security is how a site's connections are secured.
type security int

const (
	plain     security = iota
	tlsHTTP11          // TLS, HTTP/1.1
	tlsHTTP2           // TLS, HTTP/2
)

func newSite(t *testing.T, dev device, sec security) *site {
	t.Helper()
	l := listen(t, rdmanet.ListenConfig{}, addrPort(dev.addr4, 0))
	s := &site{
		conns:    &connCounter{seen: map[net.Conn]http.ConnState{}},
		canceled: make(chan error, 1), blocked: make(chan struct{}, 1), release: make(chan struct{}), served: make(chan error, 1),
		base: "http://" + l.Addr().String(),
	}
	d := dialer(patience)
	transport := &http.Transport{DialContext: d.DialContext, ForceAttemptHTTP2: sec == tlsHTTP2}
	s.server = &http.Server{Handler: s.routes(), ConnState: s.conns.state}
	serve := func() error { return s.server.Serve(l) }
	if sec != plain {
		s.base = "https://" + l.Addr().String()
		s.server.TLSConfig, transport.TLSClientConfig = tlsConfigs(t, net.IP(dev.addr4.AsSlice()))
		if sec == tlsHTTP11 {
			s.server.Protocols = new(http.Protocols)
			s.server.Protocols.SetHTTP1(true)
		}
		serve = func() error { return s.server.ServeTLS(l, "", "") }
	}
	s.client = &http.Client{Transport: transport, Timeout: 2 * time.Minute}
	go func() { s.served <- serve() }()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		s.server.Close()
		if err := <-s.served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
	return s
}

func (s *site) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello over %s from %s", r.Proto, r.RemoteAddr)
	})
	mux.HandleFunc("GET /large", func(w http.ResponseWriter, r *http.Request) {
		newPattern(2, largeBody()).send(w, 64<<10)
	})
	mux.HandleFunc("POST /check", func(w http.ResponseWriter, r *http.Request) {
		if err := newPattern(1, largeBody()).receive(r.Body, 64<<10); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		io.WriteString(w, "right")
	})
	mux.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		io.Copy(w, r.Body)
	})
	mux.HandleFunc("GET /wait", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			s.canceled <- context.Cause(r.Context())
		case <-time.After(patience):
			s.canceled <- errors.New("nobody canceled it")
		}
	})
	mux.HandleFunc("GET /slow", func(w http.ResponseWriter, r *http.Request) {
		s.blocked <- struct{}{}
		<-s.release
		io.WriteString(w, "at last")
	})
	return mux
}

func largeBody() int64 { return sized[int64](1<<20, 4<<20, 64<<20) }

// get fetches a page whole, and reports whether its connection had been used
// before.
func (s *site) get(ctx context.Context, path string) (body string, reused bool, err error) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path, nil)
	if err != nil {
		return "", false, err
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return "", reused, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, b)
	}
	return string(b), reused, err
}

func eachSecurity(t *testing.T, test func(t *testing.T, s *site)) {
	dev := needDevice(t)
	for name, sec := range map[string]security{"plain": plain, "TLS": tlsHTTP11, "HTTP2": tlsHTTP2} {
		t.Run(name, func(t *testing.T) { test(t, newSite(t, dev, sec)) })
	}
}

// TestHTTPReuse fetches several times over one connection.
func TestHTTPReuse(t *testing.T) {
	eachSecurity(t, func(t *testing.T, s *site) {
		for i := range 20 {
			body, reused, err := s.get(t.Context(), "/hello")
			require.NoError(t, err)
			require.Contains(t, body, "hello over HTTP/")
			require.Equal(t, i > 0, reused, "request %d", i)
		}
		require.Equal(t, 1, s.conns.total())
	})
}

// TestHTTPLarge gets and posts bodies that are larger than all buffers.
func TestHTTPLarge(t *testing.T) {
	eachSecurity(t, func(t *testing.T, s *site) {
		resp, err := s.client.Get(s.base + "/large")
		require.NoError(t, err)
		require.NoError(t, newPattern(2, largeBody()).receive(resp.Body, 50_000))
		resp.Body.Close()

		resp, err = s.client.Post(s.base+"/check", "application/octet-stream", newPattern(1, largeBody()))
		require.NoError(t, err)
		answer, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, "right", string(answer))

		resp, err = s.client.Post(s.base+"/echo", "application/octet-stream", newPattern(4, largeBody()))
		require.NoError(t, err)
		require.NoError(t, newPattern(4, largeBody()).receive(resp.Body, 50_000))
		resp.Body.Close()
	})
}

// TestHTTPParallel fetches by several goroutines at once.
func TestHTTPParallel(t *testing.T) {
	eachSecurity(t, func(t *testing.T, s *site) {
		errs := make([]error, 8)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				for range 5 {
					if _, _, err := s.get(t.Context(), "/hello"); err != nil {
						errs[i] = err
						return
					}
				}
			})
		}
		within(t, 2*patience, "all requests", wg.Wait)
		require.NoError(t, errors.Join(errs...))
	})
}

// TestHTTPClientCancels ends a request whose answer is under way: the server must
// get to know, and the client must be able to go on.
func TestHTTPClientCancels(t *testing.T) {
	eachSecurity(t, func(t *testing.T, s *site) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"/wait", nil)
		require.NoError(t, err)
		resp, err := s.client.Do(r)
		require.NoError(t, err)
		read := background(func() (int64, error) { return io.Copy(io.Discard, resp.Body) })
		requireWaiting(t, read)
		cancel()
		require.ErrorIs(t, await(t, "the client's read", read, 5*time.Second).err, context.Canceled)
		resp.Body.Close()
		select {
		case err := <-s.canceled:
			require.ErrorIs(t, err, context.Canceled)
		case <-time.After(patience):
			t.Fatal("the server does not get to know")
		}
		_, _, err = s.get(t.Context(), "/hello")
		require.NoError(t, err)
	})
}

// TestHTTPShutdown shuts a server down while it has a request and an idle
// connection: the request is answered, the idle connection is closed, and nobody
// is served any more.
func TestHTTPShutdown(t *testing.T) {
	eachSecurity(t, func(t *testing.T, s *site) {
		_, _, err := s.get(t.Context(), "/hello")
		require.NoError(t, err)
		answered := make(chan error, 1)
		go func() {
			body, _, err := s.get(context.Background(), "/slow")
			if err == nil && body != "at last" {
				err = fmt.Errorf("answer %q", body)
			}
			answered <- err
		}()
		select {
		case <-s.blocked:
		case err := <-answered:
			t.Fatalf("the request ended before it was answered: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		down := background(func() (int64, error) { return 0, s.server.Shutdown(ctx) })
		requireWaiting(t, down)
		close(s.release)
		require.NoError(t, await(t, "the answer", errResult(answered), patience).err)
		require.NoError(t, await(t, "Shutdown", down, patience).err)
		within(t, patience, "a dial to the server that is gone", func() {
			_, _, err := s.get(context.Background(), "/hello")
			require.Error(t, err)
		})
	})
}

func errResult(c <-chan error) <-chan result {
	return background(func() (int64, error) { return 0, <-c })
}

// TestTLS is TLS without HTTP: a handshake, data both ways, an orderly end, and an
// end in the middle of a record, which TLS must not take for one.
func TestTLS(t *testing.T) {
	dev := needDevice(t)
	serverConfig, clientConfig := tlsConfigs(t, net.IP(dev.addr4.AsSlice()))
	clientConfig.ServerName = dev.addr4.String()
	connect := func(t *testing.T) (client, server *tls.Conn, below *rdmanet.Conn) {
		a, b := pair(t, rdmanet.Dialer{}, rdmanet.ListenConfig{}, dev.addr4)
		client, server = tls.Client(a, clientConfig), tls.Server(b, serverConfig)
		shook := background(func() (int64, error) { return 0, server.Handshake() })
		require.NoError(t, client.SetDeadline(time.Now().Add(patience)))
		require.NoError(t, server.SetDeadline(time.Now().Add(patience)))
		require.NoError(t, client.Handshake())
		require.NoError(t, await(t, "the server's handshake", shook, patience).err)
		return client, server, a
	}
	t.Run("both ways", func(t *testing.T) {
		client, server, _ := connect(t)
		info, ok := rdmanet.InfoOf(client)
		require.True(t, ok)
		require.Equal(t, dev.name, info.Device)
		bothWays(t, client, server, sized[int64](1<<20, 4<<20, 64<<20), 2*time.Minute)
	})
	t.Run("truncated", func(t *testing.T) {
		client, server, below := connect(t)
		_, err := client.Write([]byte("half a"))
		require.NoError(t, err)
		_, err = below.Write([]byte{23, 3, 3}) // of a record's header
		require.NoError(t, err)
		require.NoError(t, below.Close())
		got, err := io.ReadAll(server)
		require.True(t, bytes.Equal([]byte("half a"), got))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		server.Close()
	})
}

// tlsConfigs is a server's configuration and that of a client who trusts it.
func tlsConfigs(t *testing.T, ip net.IP) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "rdmanet test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{ip},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, &tls.Config{RootCAs: roots}
}
