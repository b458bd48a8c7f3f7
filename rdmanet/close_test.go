package rdmanet

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/smtp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// TestCloseManyIdle closes connections, one after the other, whose peers do
// nothing, with reads under way and without.
func TestCloseManyIdle(t *testing.T) { eachTarget(t, testCloseManyIdle) }

func testCloseManyIdle(t *testing.T, on target) {
	const n = 30
	l := on.listen(t, port0(on.addr4))
	var ours, theirs []*Conn
	var readers sync.WaitGroup
	for i := range n {
		a, b := on.pair(t, l)
		ours, theirs = append(ours, a), append(theirs, b)
		_, err := b.Write([]byte("hello"))
		require.NoError(t, err)
		_, err = io.ReadFull(a, make([]byte, 5))
		require.NoError(t, err)
		_, err = a.Write([]byte("welcome, but nobody reads this"))
		require.NoError(t, err)
		if i%2 == 0 {
			readers.Go(func() {
				if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
			})
		}
	}
	time.Sleep(2500 * time.Millisecond)
	began := time.Now()
	for _, c := range ours {
		require.NoError(t, c.Close())
	}
	took := time.Since(began)
	t.Logf("closing %d connections took %v", n, took)
	require.Less(t, took, 2*time.Second) // of a second each, if Close waits for the peer
	readers.Wait()
	for _, c := range theirs {
		_, err := io.Copy(io.Discard, struct{ io.Reader }{c})
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
}

// TestCloseAtOnce closes, with no time to wait, a connection whose bytes are just
// being written: they arrive all the same.
func TestCloseAtOnce(t *testing.T) {
	on := softwareTarget()
	l := on.listen(t, port0(on.addr4))
	d := on.dialer(30 * time.Second)
	d.CloseTimeout = -1
	c, err := d.Dial("rdma", l.Addr().String())
	require.NoError(t, err)
	b, err := l.AcceptRDMA()
	require.NoError(t, err)
	const size = 300_000
	_, err = c.Write(make([]byte, size))
	require.NoError(t, err)
	if err := c.Close(); err != nil {
		require.ErrorIs(t, err, ErrNotDelivered)
		requireOpError(t, err, "close")
		require.True(t, isTimeout(err))
	}
	n, err := io.Copy(io.Discard, struct{ io.Reader }{b})
	require.NoError(t, err)
	require.EqualValues(t, size, n)
	require.NoError(t, b.Close())
}

// TestCloseLost closes connections that fail, before Close and during it, with bytes
// that have not reached the peer: what lies between holds them back.
func TestCloseLost(t *testing.T) {
	on := softwareTarget()
	l := on.listen(t, port0(on.addr4))
	for _, failsFirst := range []bool{true, false} {
		between := newRelay(t, l.Addr().String())
		c, err := on.dialer(30*time.Second).Dial("rdma", between.addr)
		require.NoError(t, err)
		a := c.(*Conn)
		b, err := l.AcceptRDMA()
		require.NoError(t, err)
		_, err = a.Write([]byte("hello"))
		require.NoError(t, err)
		_, err = io.ReadFull(b, make([]byte, 5))
		require.NoError(t, err)
		between.hold()
		// More than the relay's socket holds: what TCP has confirmed counts as
		// arrived. Write may find no room for the end of it.
		require.NoError(t, a.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
		n, _ := a.Write(make([]byte, 512<<10))
		require.NotZero(t, n)
		fail := func() { a.event(cm.Event{Type: cm.DeviceRemoval}) }
		if failsFirst {
			fail()
		} else {
			time.AfterFunc(10*time.Millisecond, fail)
		}
		err = a.Close()
		require.ErrorIs(t, err, ErrNotDelivered)
		require.ErrorIs(t, err, syscall.ENODEV)
		requireOpError(t, err, "close")
		between.end()
		b.Close()
	}
}

// A relay forwards one TCP connection, both ways, until it is told to take no more of
// what the dialer sends.
type relay struct {
	addr  string
	mu    sync.Mutex // held by who reads from the dialer
	conns [2]net.Conn
	done  chan struct{}
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{addr: l.Addr().String(), done: make(chan struct{})}
	go func() {
		defer close(r.done)
		near, err := l.Accept()
		l.Close()
		if err != nil {
			return
		}
		near.(*net.TCPConn).SetReadBuffer(4096)
		far, err := net.Dial("tcp", to)
		if err != nil {
			near.Close()
			return
		}
		r.conns = [2]net.Conn{near, far}
		var back sync.WaitGroup
		back.Go(func() { io.Copy(near, far) })
		for buf := make([]byte, 4096); ; {
			n, err := near.Read(buf)
			r.mu.Lock()
			if err == nil {
				_, err = far.Write(buf[:n])
			}
			r.mu.Unlock()
			if err != nil {
				break
			}
		}
		back.Wait()
	}()
	return r
}

// hold stops it: what one Read takes is all that still comes out of the socket.
func (r *relay) hold() { r.mu.Lock() }

func (r *relay) end() {
	for _, c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	<-r.done
}

// TestListenerCloseUnaccepted closes a listener with connections that nobody has
// accepted: at once, and all of their peers are told, side by side.
func TestListenerCloseUnaccepted(t *testing.T) { eachTarget(t, testListenerCloseUnaccepted) }

func testListenerCloseUnaccepted(t *testing.T, on target) {
	const n = 50
	l := on.listen(t, port0(on.addr4))
	var conns []net.Conn
	for range n {
		c, err := on.dialer(30*time.Second).Dial("rdma", l.Addr().String())
		require.NoError(t, err)
		conns = append(conns, c)
	}
	time.Sleep(50 * time.Millisecond) // the dialers' first words
	began := time.Now()
	require.NoError(t, l.Close())
	t.Logf("Close took %v", time.Since(began))
	require.Less(t, time.Since(began), time.Second)
	for _, c := range conns {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
		_, err := c.Read(make([]byte, 1))
		require.False(t, isTimeout(err), err)
		c.Close()
	}
	t.Logf("all were told after %v", time.Since(began))
}

// selfSigned is a certificate for tests.
func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(crand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestGoodbyes has a mail server over TLS close as soon as it has said goodbye,
// while the client says its own: as over TCP that is no error.
func TestGoodbyes(t *testing.T) { eachTarget(t, testGoodbyes) }

func testGoodbyes(t *testing.T, on target) {
	l := on.listen(t, port0(on.addr4))
	cert := selfSigned(t)
	closed := make(chan struct{})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serveMail(tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}}))
			closed <- struct{}{}
		}
	}()
	failed := 0
	for i := range 10 {
		c, err := on.dialer(30*time.Second).Dial("rdma", l.Addr().String())
		require.NoError(t, err)
		tc := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
		if i%2 == 0 {
			client, err := smtp.NewClient(tc, "localhost")
			require.NoError(t, err)
			require.NoError(t, client.Hello("localhost"))
			if err := client.Quit(); err != nil {
				t.Log(err)
				failed++
			}
			<-closed
			continue
		}
		// The same by hand; the server has closed before the client does.
		r := bufio.NewReader(tc)
		_, err = r.ReadString('\n')
		require.NoError(t, err)
		_, err = io.WriteString(tc, "QUIT\r\n")
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, r)
		require.NoError(t, err)
		<-closed
		_, err = c.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, tc.Close(), "Read has told of the end")
	}
	// A goodbye fails only if this machine takes 50 ms between the peer's and ours.
	require.LessOrEqual(t, failed, 2, "of 5 goodbyes")
}

func serveMail(c net.Conn) {
	defer c.Close()
	io.WriteString(c, "220 hello\r\n")
	for s := bufio.NewScanner(c); s.Scan(); {
		if strings.HasPrefix(s.Text(), "QUIT") {
			io.WriteString(c, "221 bye\r\n")
			return
		}
		io.WriteString(c, "250 ok\r\n")
	}
}

// TestPool has database/sql use connections of a driver that does as those over
// TCP do: if its Write fails with nothing written, the connection is bad, and the
// pool takes another. The server closes what lies idle. No command may fail.
func TestPool(t *testing.T) { eachTarget(t, testPool) }

func testPool(t *testing.T, on target) {
	l := on.listen(t, port0(on.addr4))
	var mu sync.Mutex
	var conns []net.Conn
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			go io.Copy(c, c)
		}
	}()
	connector := &echoConnector{on: on, address: l.Addr().String()}
	db := sql.OpenDB(connector)
	defer db.Close()
	for range 5 {
		_, err := db.Exec("command")
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond)
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		conns = nil
		mu.Unlock()
		time.Sleep(20 * time.Millisecond) // it arrives while nobody looks
	}
	require.Equal(t, 5, connector.dials)
}

// An echoConnector connects to an echo server.
type echoConnector struct {
	on      target
	address string
	dials   int
}

func (c *echoConnector) Driver() driver.Driver { return nil }

func (c *echoConnector) Connect(ctx context.Context) (driver.Conn, error) {
	c.dials++
	conn, err := c.on.dialer(30*time.Second).DialContext(ctx, "rdma", c.address)
	return &echoConn{conn}, err
}

type echoConn struct{ net.Conn }

func (c *echoConn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (c *echoConn) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }

func (c *echoConn) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	n, err := io.WriteString(c, query)
	if err != nil && n == 0 {
		return nil, driver.ErrBadConn
	}
	if err == nil {
		_, err = io.ReadFull(c, make([]byte, len(query)))
	}
	if err != nil {
		return nil, fmt.Errorf("the command may have been carried out: %w", err)
	}
	return driver.ResultNoRows, nil
}
