package rdmanet_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/rdmanet"
)

// An expectation is what an error must be.
type expectation struct {
	is      error
	timeout bool
	says    []string // parts of its text
	not     []string // what its text must not have
}

func (e *expectation) check(t *testing.T, op string, err error) {
	t.Helper()
	require.Error(t, err)
	var oe *net.OpError
	require.ErrorAs(t, err, &oe)
	require.Equal(t, op, oe.Op)
	require.ErrorIs(t, err, e.is)
	require.Equal(t, e.timeout, oe.Timeout(), "Timeout of %v", err)
	require.Equal(t, e.timeout, oe.Temporary(), "Temporary of %v", err)
	for _, part := range e.says {
		require.ErrorContains(t, err, part)
	}
	for _, part := range e.not {
		require.NotContains(t, err.Error(), part)
	}
}

// What a peer does to an established connection is said by Read and by Write, in both
// roles: each is tried as the call that waits for it, and as one that comes later.
func TestErrorsSayWhatThePeerDid(t *testing.T) {
	violation := func(says ...string) expectation { return expectation{is: syscall.EPROTO, says: says} }
	reset := func(says ...string) expectation { return expectation{is: syscall.ECONNRESET, says: says} }
	for _, c := range []struct {
		name string
		does func(t *testing.T, p *framePeer)
		want expectation
	}{
		{"unknown message", func(t *testing.T, p *framePeer) { p.write(t, p.message(3, 0)) },
			violation("the peer broke the rsockets protocol: it sent an unknown message")},
		{"data beyond the window", func(t *testing.T, p *framePeer) { p.write(t, p.message(0, p.length+1)) },
			violation("the peer broke the rsockets protocol")},
		{"long Send", func(t *testing.T, p *framePeer) { p.write(t, p.send(make([]byte, 5))) },
			violation("it sent a message of more than 4 bytes")},
		{"Write to no region", func(t *testing.T, p *framePeer) { p.write(t, tagged(opWrite, p.key+1, p.addr, []byte("x"))) },
			violation("the peer violated the protocol: an RDMA Write names no region", "invalid STag")},
		{"Write outside the region", func(t *testing.T, p *framePeer) { p.write(t, tagged(opWrite, p.key, 0, []byte("x"))) },
			violation("an RDMA Write is not within its region")},
		{"Read of what was not granted", func(t *testing.T, p *framePeer) { p.write(t, p.readRequest()) },
			violation("an RDMA Read asks for a region without remote read")},
		{"Read Response to nothing", func(t *testing.T, p *framePeer) { p.write(t, tagged(opReadResponse, 1, 1, []byte("x"))) },
			violation("a Read Response came without a request")},
		{"unknown opcode", func(t *testing.T, p *framePeer) {
			p.write(t, untagged(ddpVersion, rdmapVersion|9, 0, 1, 0, nil))
		}, violation("an opcode is unknown")},
		{"unknown DDP version", func(t *testing.T, p *framePeer) {
			p.write(t, untagged(3, rdmapVersion|opSend, 0, 1, 0, []byte("1234")))
		}, violation("unknown DDP version")},
		{"unknown queue", func(t *testing.T, p *framePeer) {
			p.write(t, untagged(ddpVersion, rdmapVersion|opSend, 7, 1, 0, []byte("1234")))
		}, violation("unknown queue")},
		{"message number", func(t *testing.T, p *framePeer) {
			p.write(t, untagged(ddpVersion, rdmapVersion|opSend, 0, 5, 0, []byte("1234")))
		}, violation("a message's number is out of order")},
		{"short frame", func(t *testing.T, p *framePeer) { p.write(t, seal([]byte{ddpVersion, rdmapVersion | opSend})) },
			violation("a frame is shorter than its headers")},
		{"Terminate: our STag", func(t *testing.T, p *framePeer) { p.write(t, terminate(0x11, 0)) },
			reset("the peer's device ended the connection for an error that it found", "invalid STag")},
		{"Terminate: our message", func(t *testing.T, p *framePeer) { p.write(t, terminate(0x12, 2)) },
			reset("no buffer for the message")},
		{"Terminate: unknown reason", func(t *testing.T, p *framePeer) { p.write(t, terminate(0x0e, 0x77)) },
			reset("code 0x77")},
		{"TCP reset", func(t *testing.T, p *framePeer) {
			require.NoError(t, p.conn.SetLinger(0))
			p.conn.Close()
		}, reset("the TCP connection broke", "connection reset")},
		{"half a frame", func(t *testing.T, p *framePeer) {
			p.write(t, p.message(0, 1)[:9])
			p.conn.CloseWrite()
		}, reset("in the middle of a frame")},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, role := range []string{"accepted", "dialed"} {
				for _, op := range []string{"read", "write"} {
					t.Run(role+" "+op, func(t *testing.T) {
						conn, peer := withPeer(t, role)
						defer conn.Close()
						require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
						waits := func() error {
							_, err := conn.Read(make([]byte, 1))
							return err
						}
						if op == "write" {
							waits = func() error {
								_, err := conn.Write(make([]byte, 1<<20))
								return err
							}
						}
						ended := make(chan error, 1)
						go func() { ended <- waits() }()
						if op == "write" {
							peer.write(t, peer.message(7, 1)) // a keepalive: now an acceptor may speak
							_, err := io.CopyN(io.Discard, peer.conn, 64<<10)
							require.NoError(t, err) // the window is full
						}
						c.does(t, peer)
						c.want.check(t, op, <-ended)
						_, err := conn.Read(make([]byte, 1))
						c.want.check(t, "read", err)
						_, err = conn.Write([]byte("x"))
						c.want.check(t, "write", err)
					})
				}
			}
		})
	}
}

// withPeer makes a connection of ours to a framePeer.
func withPeer(t *testing.T, role string) (net.Conn, *framePeer) {
	if role == "accepted" {
		lc := rdmanet.ListenConfig{Provider: rdmanet.Software}
		l, err := lc.Listen(t.Context(), "rdma", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		peer := dialFrames(t, l.Addr().String())
		conn, err := l.Accept()
		require.NoError(t, err)
		return conn, peer
	}
	peers := make(chan *framePeer, 1)
	address := serveTCP(t, func(conn *net.TCPConn) {
		p := &framePeer{conn: conn}
		p.readSetup(t)
		p.write(t, mpaFrame(mpaReply, mpaEnhanced, 2, rsocketsHeader(nil)))
		peers <- p
		<-t.Context().Done()
	})
	d := rdmanet.Dialer{Provider: rdmanet.Software, Timeout: 30 * time.Second}
	conn, err := d.Dial("rdma", address)
	require.NoError(t, err)
	return conn, <-peers
}

// What a dial meets is said by its error. Dialer.Fallback is named where the server
// seems to speak no RDMA, and nowhere else.
func TestDialErrorsSayWhatTheServerDid(t *testing.T) {
	const fallback = "Dialer.Fallback"
	request := func(conn *net.TCPConn) {
		conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		io.ReadFull(conn, make([]byte, 20+4+40))
	}
	answers := func(b []byte) func(*net.TCPConn) {
		return func(conn *net.TCPConn) {
			request(conn)
			conn.Write(b)
			io.Copy(io.Discard, conn)
		}
	}
	header := func(change func(b []byte)) func(*net.TCPConn) {
		return answers(mpaFrame(mpaReply, mpaEnhanced, 2, rsocketsHeader(change)))
	}
	wrong := func(says ...string) expectation {
		return expectation{is: syscall.EPROTO, says: append(says, "connect: "), not: []string{fallback}}
	}
	for _, c := range []struct {
		name   string
		server func(*net.TCPConn)
		want   expectation
	}{
		{"HTTP", answers([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")),
			expectation{is: syscall.EPROTO, says: []string{`"HTTP/1.1 400 Bad Request"`, "does not speak MPA", "speak no RDMA", fallback}}},
		{"SSH, which speaks first", func(conn *net.TCPConn) {
			conn.Write([]byte("SSH-2.0-OpenSSH_9.9\r\n"))
			request(conn)
		}, expectation{is: syscall.EPROTO, says: []string{`"SSH-2.0-OpenSSH_9.9"`, "speak no RDMA", fallback}}},
		{"closes", func(conn *net.TCPConn) { request(conn) },
			expectation{is: syscall.ECONNREFUSED, says: []string{"closed the TCP connection without an answer", "speak no RDMA", fallback}, not: []string{"anybody listen"}}},
		{"resets", func(conn *net.TCPConn) { conn.SetLinger(0) },
			expectation{is: syscall.ECONNREFUSED, says: []string{"closed the TCP connection without an answer", "speak no RDMA", fallback}, not: []string{"anybody listen"}}},
		{"waits for more", func(conn *net.TCPConn) { io.Copy(io.Discard, conn) },
			expectation{is: context.DeadlineExceeded, timeout: true, says: []string{"i/o timeout", "not answered", "speak no RDMA", fallback}}},
		{"half an answer", func(conn *net.TCPConn) {
			request(conn)
			conn.Write([]byte(mpaReply[:5]))
		}, wrong("in the middle of its answer")},
		{"rejects", answers(mpaFrame(mpaReply, mpaReject, 2, nil)),
			expectation{is: syscall.ECONNREFUSED, says: []string{"the peer rejected the connect request"}, not: []string{fallback, "anybody listen", "RDMA"}}},
		{"markers", answers(mpaFrame(mpaReply, mpaMarkers|mpaEnhanced, 2, rsocketsHeader(nil))), wrong("markers")},
		{"revision 3", answers(mpaFrame(mpaReply, mpaEnhanced, 3, rsocketsHeader(nil))), wrong("revision 3")},
		{"enhanced revision 1", answers(mpaFrame(mpaReply, mpaEnhanced, 1, rsocketsHeader(nil))), wrong("revision 1")},
		{"long private data", answers(mpaFrame(mpaReply, mpaEnhanced, 2, make([]byte, 600))), wrong("bytes of private data are too many")},
		{"no private data", answers(mpaFrame(mpaReply, mpaEnhanced, 2, nil)), wrong("speaks RDMA, but not rsockets: no private data")},
		{"short private data", answers(mpaFrame(mpaReply, mpaEnhanced, 2, make([]byte, 8))), wrong("not rsockets: 8 bytes of private data")},
		{"header of another version", header(func(b []byte) { b[0] = 9 }), wrong("not rsockets: version 9, want 1")},
		{"header without receives", header(func(b []byte) { b[2], b[3] = 0, 0 }), wrong("not rsockets: it has posted no receives")},
		{"header with another SGL", header(func(b []byte) { b[23] = 7 }), wrong("not rsockets: a target SGL of 7 entries")},
		{"header without a window", header(func(b []byte) { binary.BigEndian.PutUint32(b[36:], 0) }), wrong("not rsockets: a window of no bytes")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // one of them takes a second
			address := serveTCP(t, c.server)
			d := rdmanet.Dialer{Provider: rdmanet.Software, Timeout: 30 * time.Second}
			if c.want.timeout {
				d.Timeout = time.Second // enough for TCP
			}
			_, err := d.Dial("rdma", address)
			c.want.check(t, "dial", err)
			var stage *rdmanet.StageError
			require.ErrorAs(t, err, &stage)
			require.Equal(t, rdmanet.StageConnect, stage.Stage)
			if !c.want.timeout {
				require.Equal(t, strings.Contains(strings.Join(c.want.says, " "), fallback), errors.Is(err, cm.ErrNotRDMA))
			}

			// A program that has a Fallback is not told of it.
			d.Fallback = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nor that") }
			d.FallbackDelay = -1
			_, err = d.Dial("rdma", address)
			require.NotContains(t, err.Error(), fallback)
		})
	}
}

// Where nobody listens, nothing is said of servers without RDMA.
func TestDialErrorWhereNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	d := rdmanet.Dialer{Provider: rdmanet.Software, Timeout: 30 * time.Second}
	_, err = d.Dial("rdma", address)
	want := expectation{is: syscall.ECONNREFUSED, says: []string{"does anybody listen on " + address + "?"}, not: []string{"Fallback"}}
	want.check(t, "dial", err)
}

// Refused says what a peer did.
func TestRefusedSaysWhatThePeerDid(t *testing.T) {
	refused := make(chan error, 1)
	lc := rdmanet.ListenConfig{
		Provider: rdmanet.Software, HandshakeTimeout: 100 * time.Millisecond,
		Refused: func(_ net.Addr, err error) { refused <- err },
	}
	l, err := lc.Listen(t.Context(), "rdma", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	for _, c := range []struct {
		name string
		says []byte
		ends bool
		want string
		is   error
	}{
		{"HTTP", []byte("GET / HTTP/1.1\r\n\r\n"), false, `it said "GET / HTTP/1.1"`, syscall.EPROTO},
		{"nothing", nil, false, "did not send its connect request in time", nil},
		{"nothing, and the end", nil, true, "closed the connection without a connect request", nil},
		{"private data that is too long", mpaFrame(mpaRequest, mpaEnhanced, 2, make([]byte, 600)), false, "bytes of private data are too many", syscall.EPROTO},
		{"no private data", mpaFrame(mpaRequest, mpaEnhanced, 2, nil), false, "the peer speaks RDMA, but not rsockets: no private data", syscall.EPROTO},
		{"header of another version", mpaFrame(mpaRequest, mpaEnhanced, 2, rsocketsHeader(func(b []byte) { b[0] = 9 })), false, "version 9, want 1", syscall.EPROTO},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", l.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			if len(c.says) > 0 {
				_, err = conn.Write(c.says)
				require.NoError(t, err)
			}
			if c.ends {
				conn.Close()
			}
			err = <-refused
			require.ErrorContains(t, err, c.want)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
		})
	}
}
