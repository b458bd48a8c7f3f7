package iwarp

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// exercise uses all operations, both ways.
func exercise(a, b *side) {
	t := a.t
	for _, d := range [][2]*side{{a, b}, {b, a}} {
		x, y := d[0], d[1]
		fillPattern(x.mr.Bytes()[:5000], 3)
		y.postRecv(1, 600_000, 100)
		x.post(to(x.request(verbs.OpWrite, 1, 0, 5000), y, 50_000), x.request(verbs.OpSend, 2, 0, 100))
		y.want(1, verbs.WCSuccess, verbs.WCRecv)
		x.want(1, verbs.WCSuccess, verbs.WCWrite)
		x.want(2, verbs.WCSuccess, verbs.WCSend)
		require.Equal(t, x.mr.Bytes()[:5000], y.mr.Bytes()[50_000:55_000])
		require.Equal(t, x.mr.Bytes()[:100], y.mr.Bytes()[600_000:600_100])

		x.post(to(x.request(verbs.OpRead, 3, 700_000, 5000), y, 50_000))
		for len(x.wcs) == 0 {
			y.drive(0)
			x.drive(0)
		}
		x.want(3, verbs.WCSuccess, verbs.WCRead)
		require.Equal(t, x.mr.Bytes()[:5000], x.mr.Bytes()[700_000:705_000])
	}
}

// Every kind of NIC understands every other.
func TestSetupVariants(t *testing.T) {
	variants := []struct {
		name string
		cfg  Config
	}{
		{"default", Config{}},
		{"crc", Config{CRC: true}},
		{"revision 1", Config{Revision: 1}},
		{"revision 1 with crc", Config{Revision: 1, CRC: true}},
		{"write rtr", Config{RTR: WriteRTR}},
		{"read rtr", Config{RTR: ReadRTR}},
		{"read rtr with crc", Config{RTR: ReadRTR, CRC: true}},
		{"small frames", Config{FrameSize: 256}},
		{"frames of the mss", Config{FrameMSS: true}},
	}
	for _, d := range variants {
		for _, a := range variants {
			t.Run(d.name+" to "+a.name, func(t *testing.T) {
				x, y := connectPair(t, openNIC(t, d.cfg), openNIC(t, a.cfg), verbs.QPAttr{})
				require.Equal(t, d.cfg.CRC || a.cfg.CRC, x.qp.(*queuePair).crc)
				require.Equal(t, d.cfg.CRC || a.cfg.CRC, y.qp.(*queuePair).crc)
				exercise(x, y)
				disconnectPair(x, y)
			})
		}
	}
}

func TestSetupIPv6(t *testing.T) {
	nic := openNIC(t, Config{})
	for _, addr := range []string{"[::1]:0", "[::]:0", "0.0.0.0:0"} {
		lid, levents := listen(t, nic, addr)
		dst := netip.MustParseAddr("::1")
		if strings.HasPrefix(addr, "0") {
			dst = netip.MustParseAddr("127.0.0.1")
		}
		dsts := []netip.Addr{dst}
		if addr == "[::]:0" {
			dsts = append(dsts, netip.MustParseAddr("127.0.0.1")) // both families
		}
		for _, dst := range dsts {
			a := newEnd(t, nic, nil, verbs.QPAttr{})
			resolve(t, a.id, a.events, netip.AddrPortFrom(dst, lid.LocalAddr().Port()))
			require.NoError(t, a.id.Connect(onePair))
			req := next(t, levents, cm.ConnectRequest)
			b := newEnd(t, nic, req.Request, verbs.QPAttr{})
			require.NoError(t, b.id.Accept(onePair))
			b.next(cm.Established)
			a.next(cm.Established)
			require.Equal(t, a.id.LocalAddr(), b.id.RemoteAddr())
			require.Equal(t, a.id.RemoteAddr(), b.id.LocalAddr())
			require.Equal(t, dst, b.id.LocalAddr().Addr())
			exercise(a, b)
			disconnectPair(a, b)
		}
		require.NoError(t, lid.Destroy())
	}
}

func TestV6Only(t *testing.T) {
	nic := openNIC(t, Config{})
	id := nic.newIdentifier()
	require.NoError(t, id.Bind(cm.Addr{AddrPort: netip.MustParseAddrPort("[::]:0")}, true))
	require.NoError(t, id.Listen(0))
	_, err := net.Dial("tcp4", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), id.LocalAddr().Port()).String())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.NoError(t, id.Destroy())
}

// What is put into a request and a reply, byte by byte.
func TestSetupBytes(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"default", Config{}, "\x10\x02\x00\x06\x00\x03\x00\x05hi"},
		{"crc", Config{CRC: true}, "\x50\x02\x00\x06\x00\x03\x00\x05hi"},
		{"revision 1", Config{Revision: 1}, "\x00\x01\x00\x02hi"},
		{"write rtr", Config{RTR: WriteRTR}, "\x10\x02\x00\x06\x80\x03\x80\x05hi"},
		{"read rtr", Config{RTR: ReadRTR}, "\x10\x02\x00\x06\x80\x03\x40\x05hi"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := cm.ConnParam{PrivateData: []byte("hi"), ResponderResources: 3, InitiatorDepth: 5}
			require.NoError(t, c.cfg.resolve())
			f, err := request(&c.cfg, &p)
			require.NoError(t, err)
			require.Equal(t, requestKey+c.want, string(appendSetup(nil, requestKey, &f)))
		})
	}
}

// The responder answers in kind, and the depths are what the two agree on.
func TestReply(t *testing.T) {
	for _, c := range []struct {
		name           string
		request, reply string // behind the key
		ird, ord       int
		rtr            RTR
		crc            bool
	}{
		{"plain", "\x10\x02\x00\x04\x00\x02\x00\x08", "\x10\x02\x00\x04\x00\x08\x00\x02", 8, 2, NoRTR, false},
		{"nothing asked", "\x10\x02\x00\x04\x00\x00\x00\x00", "\x10\x02\x00\x04\x00\x04\x00\x00", 4, 0, NoRTR, false},
		{"too much asked", "\x10\x02\x00\x04\x3f\xff\x3f\xff", "\x10\x02\x00\x04\x00\x80\x00\x04", 128, 4, NoRTR, false},
		{"crc", "\x50\x02\x00\x04\x00\x04\x00\x04", "\x50\x02\x00\x04\x00\x04\x00\x04", 4, 4, NoRTR, true},
		{"write or read rtr", "\x10\x02\x00\x04\x80\x04\xc0\x04", "\x10\x02\x00\x04\x80\x04\x80\x04", 4, 4, WriteRTR, false},
		{"read rtr", "\x10\x02\x00\x04\x80\x04\x40\x04", "\x10\x02\x00\x04\x80\x04\x40\x04", 4, 4, ReadRTR, false},
		{"revision 2 without depths", "\x00\x02\x00\x00", "\x00\x02\x00\x00", 128, 4, NoRTR, false},
		{"revision 1", "\x00\x01\x00\x00", "\x00\x01\x00\x00", 128, 4, NoRTR, false},
		{"revision 0", "\x00\x00\x00\x00", "\x00\x00\x00\x00", 128, 4, NoRTR, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Config{}
			require.NoError(t, cfg.resolve())
			req, _, err := parseSetup([]byte(requestKey+c.request), requestKey)
			require.NoError(t, err)
			require.NoError(t, refusal(&req))
			rep, a, err := reply(&cfg, &req, &onePair)
			require.NoError(t, err)
			require.Equal(t, replyKey+c.reply, string(appendSetup(nil, replyKey, &rep)))
			require.Equal(t, agreement{crc: c.crc, rtr: c.rtr, ird: c.ird, ord: c.ord}, a)
		})
	}
}

// A request that cannot be served is rejected, or the connection closed.
func TestRefusedRequests(t *testing.T) {
	nic := openNIC(t, Config{})
	lid, events := listen(t, nic, "127.0.0.1:0")
	defer lid.Destroy()
	for name, c := range map[string]struct {
		request string
		reject  bool
	}{
		"markers":               {requestKey + "\x90\x02\x00\x04\x00\x00\x00\x00", true},
		"send rtr alone":        {requestKey + "\x10\x02\x00\x04\xc0\x00\x00\x00", true},
		"no rtr":                {requestKey + "\x10\x02\x00\x04\x80\x00\x00\x00", true},
		"read rtr, no read":     {requestKey + "\x10\x02\x00\x04\x80\x00\x40\x00", true},
		"revision 3":            {requestKey + "\x10\x03\x00\x04\x00\x00\x00\x00", false},
		"revision 1, enhanced":  {requestKey + "\x10\x01\x00\x04\x00\x00\x00\x00", false},
		"depths missing":        {requestKey + "\x10\x02\x00\x03\x00\x00\x00", false},
		"private data too long": {requestKey + "\x00\x01\x02\x01" + strings.Repeat("x", 513), false},
		"a reply":               {replyKey + "\x10\x02\x00\x04\x00\x00\x00\x00", false},
		"a rejecting request":   {requestKey + "\x30\x02\x00\x04\x00\x00\x00\x00", false},
		"frames behind it":      {requestKey + "\x00\x01\x00\x00\x00\x0e\xc1\x40", false},
		"HTTP":                  {"GET / HTTP/1.1\r\n\r\n", false},
		"TLS":                   {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", false},
	} {
		t.Run(name, func(t *testing.T) {
			p := dialRaw(t, lid.LocalAddr())
			p.write([]byte(c.request))
			if c.reject {
				rep := p.readSetup(replyKey)
				require.True(t, rep.reject)
			}
			p.conn.SetReadDeadline(time.Now().Add(patience))
			_, err := p.conn.Read(make([]byte, 1))
			require.False(t, isTimeout(err))
			require.Error(t, err)
			p.conn.Close()
		})
	}
	select {
	case ev := <-events:
		t.Fatalf("%+v", ev)
	default:
	}
}

// An answer that is none, or that is too late, or that is a refusal.
func TestReplies(t *testing.T) {
	for _, c := range []struct {
		name   string
		reply  func(p *rawPeer)
		want   cm.EventType
		errno  syscall.Errno
		says   string
		timely bool
	}{
		{name: "reject", reply: func(p *rawPeer) {
			p.write([]byte(replyKey + "\x30\x02\x00\x06\x00\x00\x00\x00no"))
		}, want: cm.Rejected, errno: syscall.ECONNRESET},
		{name: "reject without depths", reply: func(p *rawPeer) {
			p.write([]byte(replyKey + "\x20\x02\x00\x02no"))
		}, want: cm.Rejected, errno: syscall.ECONNRESET},
		{name: "end of file", reply: func(p *rawPeer) { p.conn.Close() }, want: cm.Rejected, errno: syscall.ECONNRESET},
		{name: "reset", reply: func(p *rawPeer) { p.conn.SetLinger(0); p.conn.Close() }, want: cm.Rejected, errno: syscall.ECONNRESET},
		{name: "half a reply", reply: func(p *rawPeer) { p.write([]byte(replyKey[:9])); p.conn.Close() }, want: cm.ConnectError, errno: syscall.EPROTO},
		{name: "silence", reply: func(p *rawPeer) {}, want: cm.Unreachable, errno: syscall.ETIMEDOUT},
		{name: "rubbish", reply: func(p *rawPeer) { p.write([]byte("220 mail.example.org ESMTP\r\n")) }, want: cm.ConnectError, errno: syscall.EPROTO, says: "does not speak MPA"},
		{name: "markers", reply: func(p *rawPeer) {
			p.write([]byte(replyKey + "\x90\x02\x00\x04\x00\x00\x00\x00"))
		}, want: cm.ConnectError, errno: syscall.EPROTO, says: "markers"},
		{name: "revision 3", reply: func(p *rawPeer) {
			p.write([]byte(replyKey + "\x10\x03\x00\x04\x00\x00\x00\x00"))
		}, want: cm.ConnectError, errno: syscall.EPROTO, says: "revision 3"},
		{name: "revision 2 without depths", reply: func(p *rawPeer) {
			p.write([]byte(replyKey + "\x10\x02\x00\x00"))
		}, want: cm.ConnectError, errno: syscall.EPROTO, says: "missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			nic := openNIC(t, Config{ReplyTimeout: 200 * time.Millisecond})
			p, e, _ := acceptRaw(t, nic, onePair)
			c.reply(p)
			ev := e.next(c.want)
			require.Equal(t, -int(c.errno), ev.Status)
			if strings.HasPrefix(c.name, "reject") {
				require.Equal(t, "no", string(ev.Param.PrivateData))
			} else {
				require.ErrorContains(t, ev.Err, c.says)
			}
			e.destroy()
			p.conn.SetReadDeadline(time.Now().Add(patience))
			if c.name != "end of file" && c.name != "reset" && c.name != "half a reply" {
				_, err := p.conn.Read(make([]byte, 1))
				require.Error(t, err)
				require.False(t, isTimeout(err), "the connection is still there")
			}
		})
	}
}

func TestReject(t *testing.T) {
	nic := openNIC(t, Config{})
	lid, levents := listen(t, nic, "127.0.0.1:0")
	defer lid.Destroy()
	for _, data := range [][]byte{nil, []byte("why"), bytes.Repeat([]byte("x"), maxPrivateRev2)} {
		a := newEnd(t, nic, nil, verbs.QPAttr{})
		resolve(t, a.id, a.events, lid.LocalAddr())
		require.NoError(t, a.id.Connect(onePair))
		req := next(t, levents, cm.ConnectRequest)
		require.NoError(t, req.Request.Reject(data))
		require.NoError(t, req.Request.Destroy())
		ev := a.next(cm.Rejected)
		require.Equal(t, data, ev.Param.PrivateData)
		a.destroy()
	}
	// A request that is dropped without a word is refused too.
	a := newEnd(t, nic, nil, verbs.QPAttr{})
	resolve(t, a.id, a.events, lid.LocalAddr())
	require.NoError(t, a.id.Connect(onePair))
	req := next(t, levents, cm.ConnectRequest)
	require.NoError(t, req.Request.Destroy())
	a.next(cm.Rejected)
	a.destroy()
}

func TestPrivateData(t *testing.T) {
	for _, c := range []struct {
		cfg Config
		max int
	}{{Config{}, maxPrivateRev2}, {Config{Revision: 1}, maxPrivateRev1}} {
		nic := openNIC(t, c.cfg)
		lid, levents := listen(t, nic, "127.0.0.1:0")
		a := newEnd(t, nic, nil, verbs.QPAttr{})
		resolve(t, a.id, a.events, lid.LocalAddr())
		param := onePair
		param.PrivateData = bytes.Repeat([]byte("p"), c.max+1)
		require.ErrorIs(t, a.id.Connect(param), syscall.EINVAL)
		param.PrivateData = param.PrivateData[:c.max]
		require.NoError(t, a.id.Connect(param))
		req := next(t, levents, cm.ConnectRequest)
		require.Equal(t, param.PrivateData, req.Param.PrivateData)
		b := newEnd(t, nic, req.Request, verbs.QPAttr{})
		require.NoError(t, b.id.Accept(param))
		require.Equal(t, param.PrivateData, a.next(cm.Established).Param.PrivateData)
		b.next(cm.Established)
		disconnectPair(a, b)
		require.NoError(t, lid.Destroy())
	}
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := addrPort(l.Addr())
	l.Close()
	nic := openNIC(t, Config{})
	a := newEnd(t, nic, nil, verbs.QPAttr{})
	resolve(t, a.id, a.events, addr)
	require.NoError(t, a.id.Connect(onePair))
	ev := a.next(cm.Rejected)
	require.Equal(t, -int(syscall.ECONNREFUSED), ev.Status)
	a.destroy()
}

func TestAddrErrors(t *testing.T) {
	nic := openNIC(t, Config{})
	id := nic.newIdentifier()
	defer id.Destroy()
	dst := cm.Addr{AddrPort: netip.MustParseAddrPort("127.0.0.1:1")}
	err := id.ResolveAddr(cm.Addr{AddrPort: netip.MustParseAddrPort("203.0.113.77:0")}, dst, 1000)
	require.ErrorIs(t, err, syscall.EADDRNOTAVAIL)
	require.ErrorIs(t, id.ResolveAddr(cm.Addr{}, cm.Addr{IB: []byte{1}}, 1000), syscall.EAFNOSUPPORT)
	require.ErrorIs(t, id.ResolveRoute(1000), syscall.EINVAL)
	require.ErrorIs(t, id.Connect(onePair), syscall.EINVAL)
	_, err = id.Device()
	require.ErrorIs(t, err, syscall.ENODEV)
}

func TestListenErrors(t *testing.T) {
	nic := openNIC(t, Config{})
	lid, _ := listen(t, nic, "127.0.0.1:0")
	defer lid.Destroy()
	id := nic.newIdentifier()
	defer id.Destroy()
	require.ErrorIs(t, id.Listen(1), syscall.EINVAL)
	require.NoError(t, id.Bind(cm.Addr{AddrPort: lid.LocalAddr()}, false))
	require.ErrorIs(t, id.Listen(1), syscall.EADDRINUSE)
	require.NoError(t, id.Bind(cm.Addr{AddrPort: netip.MustParseAddrPort("203.0.113.77:0")}, false))
	require.ErrorIs(t, id.Listen(1), syscall.EADDRNOTAVAIL)
}

// An interrupted identifier can be destroyed at once, wherever it is.
func TestInterrupt(t *testing.T) {
	nic := openNIC(t, Config{})
	p, e, _ := acceptRaw(t, nic, onePair) // and no reply
	began := time.Now()
	e.id.Interrupt()
	e.destroy()
	require.Less(t, time.Since(began), time.Second)
	p.conn.SetReadDeadline(time.Now().Add(patience))
	_, err := p.conn.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err)
}

// The responder says nothing before the initiator's first frame.
func TestResponderIsSilent(t *testing.T) {
	for _, req := range []setupFrame{
		enhancedRequest, {revision: 1},
		{revision: 2, enhanced: true, ird: 1, ord: 1, peerToPeer: true, writeRTR: true},
	} {
		nic := openNIC(t, Config{})
		p, e := rawInitiator(t, nic, req, verbs.QPAttr{})
		copy(e.mr.Bytes(), "first")
		e.post(e.request(verbs.OpSend, 1, 0, 5))
		p.silent(100 * time.Millisecond)
		p.write(p.sign())
		e.want(1, verbs.WCSuccess, verbs.WCSend)
		h, payload := p.next()
		require.Equal(t, opSend, h.op)
		require.Equal(t, "first", string(payload))
		p.conn.Close()
		e.awaitDisconnected()
		e.destroy()
	}
}

// A Read as RTR is answered, and lets the responder speak.
func TestReadRTR(t *testing.T) {
	nic := openNIC(t, Config{})
	p, e := rawInitiator(t, nic, setupFrame{revision: 2, enhanced: true, ird: 1, ord: 1, peerToPeer: true, readRTR: true}, verbs.QPAttr{})
	copy(e.mr.Bytes(), "first")
	e.post(e.request(verbs.OpSend, 1, 0, 5))
	p.silent(50 * time.Millisecond)
	p.write(p.readRequest(1, readRequest{sinkSTag: 7, sinkTO: 8}))
	e.want(1, verbs.WCSuccess, verbs.WCSend)
	ops := map[opcode]header{}
	for range 2 {
		h, _, err := p.read()
		require.NoError(t, err)
		ops[h.op] = h
	}
	require.Equal(t, uint32(7), ops[opReadResponse].stag)
	require.Equal(t, uint64(8), ops[opReadResponse].to)
	require.True(t, ops[opReadResponse].last)
	require.Contains(t, ops, opSend)
	p.conn.Close()
	e.awaitDisconnected()
	e.destroy()
}

// The initiator goes on asking until the peer's first frame.
func TestNudges(t *testing.T) {
	nic := openNIC(t, Config{})
	p, e := rawResponder(t, nic)
	for range 4 {
		h, payload, err := p.read()
		require.NoError(t, err)
		require.Equal(t, opWrite, h.op)
		require.Empty(t, payload)
		require.Zero(t, h.stag)
	}
	p.write(p.sign())
	// Some may be on their way.
	p.conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	n, err := io.Copy(io.Discard, p.conn)
	require.True(t, isTimeout(err))
	require.LessOrEqual(t, n, int64(2*20))
	p.conn.Close()
	e.awaitDisconnected()
	e.destroy()
}

// Frames that came with the reply are not lost.
func TestReplyWithFrames(t *testing.T) {
	nic := openNIC(t, Config{})
	p, e, _ := acceptRaw(t, nic, onePair)
	e.postRecv(1, 0, 100)
	rep := setupFrame{revision: 2, enhanced: true, ird: 4, ord: 4}
	b := appendSetup(nil, replyKey, &rep)
	b = append(b, p.untagged(opSend, true, 1, 0, []byte("too early"))...)
	next := p.untagged(opSend, true, 2, 0, []byte("in two pieces"))
	p.write(append(b, next[:7]...))
	e.next(cm.Established)
	wc := e.want(1, verbs.WCSuccess, verbs.WCRecv)
	require.Equal(t, "too early", string(e.mr.Bytes()[:wc.ByteLen]))
	e.postRecv(2, 0, 100)
	p.write(next[7:])
	wc = e.want(2, verbs.WCSuccess, verbs.WCRecv)
	require.Equal(t, "in two pieces", string(e.mr.Bytes()[:wc.ByteLen]))
	p.conn.Close()
	e.awaitDisconnected()
	e.destroy()
}
