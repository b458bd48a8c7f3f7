package rdmanet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPlainHTTP: one net/http server, fetched from by clients that know RDMA and by
// those that do not, with and without TLS.
func TestPlainHTTP(t *testing.T) { eachPlainTarget(t, testPlainHTTP) }

func testPlainHTTP(t *testing.T, on plainTarget) {
	for _, secure := range []bool{false, true} {
		t.Run(map[bool]string{false: "HTTP", true: "HTTPS"}[secure], func(t *testing.T) {
			seen := &seenConns{}
			server := &httptest.Server{
				Listener: on.listen(t, ListenConfig{}),
				Config: &http.Server{
					Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						http.NewResponseController(w).EnableFullDuplex()
						io.Copy(w, r.Body)
					}),
					ConnContext: func(ctx context.Context, c net.Conn) context.Context {
						seen.add(c)
						return ctx
					},
				},
			}
			server.Listener.(*Listener).SetDeadline(time.Time{})
			if secure {
				server.StartTLS()
			} else {
				server.Start()
			}
			defer server.Close()

			dials := map[string]func(context.Context, string, string) (net.Conn, error){"plain": (&net.Dialer{}).DialContext}
			for _, p := range on.dialers {
				dials[p.String()] = (&Dialer{Provider: p, Timeout: 30 * time.Second}).DialContext
			}
			var wg sync.WaitGroup
			errs := make(chan error, len(dials))
			for name, dial := range dials {
				transport := server.Client().Transport.(*http.Transport).Clone()
				transport.DialContext = dial
				transport.MaxConnsPerHost = 2
				if secure {
					transport.TLSClientConfig.ServerName = "example.com" // which the certificate is for
				}
				client := &http.Client{Transport: transport, Timeout: time.Minute}
				defer transport.CloseIdleConnections()
				wg.Go(func() { errs <- postOften(client, server.URL, name) })
			}
			wg.Wait()
			close(errs)
			for err := range errs {
				require.NoError(t, err)
			}
			rdma, plain := seen.count()
			t.Logf("the server has seen %d RDMA connections and %d plain ones", rdma, plain)
			require.NotZero(t, rdma)
			require.NotZero(t, plain)
			require.LessOrEqual(t, plain, 2)
		})
	}
}

// postOften has bodies of many sizes echoed, several at a time.
func postOften(client *http.Client, url, name string) error {
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() {
			for size := range 4 {
				body := bytes.Repeat([]byte(name), 1+size*size*5000)
				resp, err := client.Post(url, "text/plain", bytes.NewReader(body))
				if err != nil {
					errs[i] = err
					return
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err == nil && !bytes.Equal(body, got) {
					err = errors.New(name + ": another body came back")
				}
				if err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// seenConns are the connections of a server.
type seenConns struct {
	mu          sync.Mutex
	rdma, plain int
}

func (s *seenConns) add(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := InfoOf(c); ok {
		s.rdma++
	} else {
		s.plain++
	}
}

func (s *seenConns) count() (rdma, plain int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rdma, s.plain
}
