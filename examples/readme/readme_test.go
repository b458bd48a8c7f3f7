// Package readme runs the snippets of README.md and of the package's documentation.
// TestSnippets compares them with the functions here, and with examples/grpc, whose
// own tests run what is in it.
package readme

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/rdmanet"
)

// addresses are those in the snippets. The functions here take theirs as a parameter.
var addresses = strings.NewReplacer(
	`"http://10.0.0.7:9000/"`, `"http://" + address + "/"`,
	`"10.0.0.7:9000"`, "address",
	`":9000"`, "address",
)

func dial(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var d rdmanet.Dialer
	conn, err := d.DialContext(ctx, "rdma", address)
	if err != nil {
		return err // which stage failed, why, and what can be done about it
	}
	defer conn.Close()
	_, err = conn.Write([]byte("hello"))
	return err
}

func listen(address string) error {
	l, err := rdmanet.Listen("rdma", address)
	if err != nil {
		return err
	}
	defer l.Close()
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go serve(conn)
	}
}

func serveHTTP(address string) error {
	l, err := rdmanet.Listen("rdma", address)
	if err != nil {
		return err
	}
	return http.Serve(l, http.FileServer(http.Dir(".")))
}

func getHTTP(address string) ([]byte, error) {
	var d rdmanet.Dialer
	client := http.Client{Transport: &http.Transport{DialContext: d.DialContext}}
	resp, err := client.Get("http://" + address + "/")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

func withoutRDMA() (rdmanet.Dialer, rdmanet.ListenConfig) {
	d := rdmanet.Dialer{Fallback: (&net.Dialer{}).DialContext} // servers that speak TCP alone
	lc := rdmanet.ListenConfig{AcceptPlain: true}              // clients that speak TCP alone
	return d, lc
}

func document(ctx context.Context, address string) (net.Conn, error) {
	d := rdmanet.Dialer{Timeout: 5 * time.Second}
	c, err := d.DialContext(ctx, "rdma", address)
	return c, err
}

// received are what serve has read, one string for each connection.
var received = make(chan string, 100)

func serve(conn net.Conn) {
	defer conn.Close()
	b, _ := io.ReadAll(conn) // what came before an error counts
	received <- string(b)
}

// Each snippet stands, but for its indentation and its addresses, in a file that is
// compiled and run.
func TestSnippets(t *testing.T) {
	var snippets []string
	for _, m := range regexp.MustCompile("(?ms)^```go\n(.*?)^```").FindAllStringSubmatch(read(t, "../../README.md"), -1) {
		snippets = append(snippets, m[1])
	}
	require.GreaterOrEqual(t, len(snippets), 6)
	doc, _, _ := strings.Cut(read(t, "../../rdmanet/doc.go"), "\npackage ")
	indented := regexp.MustCompile(`(?m)(?:^//\t.*\n)+`).FindAllString(doc, -1)
	require.NotEmpty(t, indented)
	for _, s := range indented {
		snippets = append(snippets, strings.ReplaceAll(s, "//\t", ""))
	}

	code := "\n"
	for _, file := range []string{"readme_test.go", "../grpc/example_test.go"} {
		code += unindented(read(t, file))
	}
	for _, s := range snippets {
		require.Contains(t, code, "\n"+unindented(addresses.Replace(s)))
	}
}

func read(t *testing.T, name string) string {
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	return strings.ReplaceAll(string(b), "\r\n", "\n")
}

// unindented is code without the white space that begins its lines, or aligns them.
func unindented(code string) string {
	code = regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAllString(code, "")
	return regexp.MustCompile(` +//`).ReplaceAllString(code, " //")
}

func TestDialAndListen(t *testing.T) {
	address := begin(t, listen)
	require.NoError(t, eventually(t, func() error { return dial(address) }))
	require.Equal(t, "hello", <-received)

	c, err := document(t.Context(), address)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.Empty(t, <-received)
}

func TestHTTP(t *testing.T) {
	address := begin(t, serveHTTP)
	var body []byte
	require.NoError(t, eventually(t, func() (err error) {
		body, err = getHTTP(address)
		return err
	}))
	require.Contains(t, string(body), "readme_test.go")
}

func TestWithoutRDMA(t *testing.T) {
	d, lc := withoutRDMA()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer plain.Close()
	go func() {
		for {
			c, err := plain.Accept()
			if err != nil {
				return
			}
			go answer(c)
		}
	}()
	c, err := d.DialContext(t.Context(), "rdma", plain.Addr().String())
	require.NoError(t, err)
	requireAnswer(t, c)

	l, err := lc.Listen(t.Context(), "rdma", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	for _, dial := range []func(network, address string) (net.Conn, error){net.Dial, rdmanet.Dial} {
		network := "tcp"
		c, err := dial(network, l.Addr().String())
		require.NoError(t, err)
		go func() {
			if c, err := l.Accept(); err == nil {
				answer(c)
			}
		}()
		requireAnswer(t, c)
	}
}

// answer is a server of lines that hangs up on what it does not understand.
func answer(c net.Conn) {
	defer c.Close()
	b := make([]byte, 5)
	if _, err := io.ReadFull(c, b); err == nil && string(b) == "hello" {
		c.Write([]byte("world"))
	}
}

func requireAnswer(t *testing.T, c net.Conn) {
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	_, err := c.Write([]byte("hello"))
	require.NoError(t, err)
	b, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "world", string(b))
}

// begin has a server serve, to the end of the process, at an address that was free a
// moment ago.
func begin(t *testing.T, serve func(address string) error) (address string) {
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		address = l.Addr().String()
		require.NoError(t, l.Close())
		failed := make(chan error, 1)
		go func() { failed <- serve(address) }()
		var c net.Conn
		for {
			select {
			case err := <-failed:
				require.ErrorIs(t, err, syscall.EADDRINUSE)
			default:
				if c, err = net.Dial("tcp", address); err != nil {
					time.Sleep(time.Millisecond)
					continue
				}
				c.Close()
				return address
			}
			break
		}
	}
}

// eventually calls until that succeeds, or time is up.
func eventually(t *testing.T, call func() error) (err error) {
	for deadline := time.Now().Add(30 * time.Second); ; {
		if err = call(); err == nil || time.Now().After(deadline) {
			return err
		}
		t.Log(err)
		time.Sleep(10 * time.Millisecond)
	}
}
