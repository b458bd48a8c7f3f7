package iwarp

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

// The wire format, byte by byte.
func TestFrameBytes(t *testing.T) {
	var b [maxHeader]byte
	for _, c := range []struct {
		name string
		n    int
		want string
	}{
		{"write", putTagged(b[:], 64, true, opWrite, 0x11223344, 0x0102030405060708),
			"004e c1 40 11223344 0102030405060708"},
		{"first segment of a response", putTagged(b[:], 1, false, opReadResponse, 1, 2),
			"000f 81 42 00000001 0000000000000002"},
		{"send", putUntagged(b[:], 4, true, opSend, 5, 0),
			"0016 41 43 00000000 00000000 00000005 00000000"},
		{"segment of a solicited send", putUntagged(b[:], 100, false, opSendSolicited, 5, 1000),
			"0076 01 45 00000000 00000000 00000005 000003e8"},
		{"read request", putReadRequest(b[:], 3, &readRequest{1, 2, 3, 4, 5}),
			"002e 41 41 00000000 00000001 00000003 00000000 00000001 0000000000000002 00000003 00000004 0000000000000005"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := unhex(c.want)
			require.Len(t, want, c.n)
			h, v := parseHeader(want)
			require.Nil(t, v)
			switch {
			case h.op.tagged():
				putTagged(b[:], h.payload, h.last, h.op, h.stag, h.to)
			case h.op == opReadRequest:
				putReadRequest(b[:], h.msn, &h.read)
			default:
				putUntagged(b[:], h.payload, h.last, h.op, h.msn, h.mo)
			}
			require.Equal(t, want, b[:c.n])
		})
	}
}

func TestPadding(t *testing.T) {
	for ulpdu, want := range map[int]int{14: 0, 15: 3, 16: 2, 17: 1, 18: 0, 65535: 3} {
		require.Equal(t, want, padding(ulpdu), "%d", ulpdu)
	}
	require.Equal(t, maxFrame, lengthSize+maxULPDU+trailer(maxULPDU))
}

// The check value of CRC32c, stored the way that siw has it.
func TestCRC(t *testing.T) {
	frame := append([]byte("123456789"), 0, 0, 0, 0)
	putCRC(frame[9:], addCRC(0, frame[:9]))
	require.Equal(t, unhex("839206e3"), frame[9:])
	require.True(t, crcMatches(frame))
	frame[0]++
	require.False(t, crcMatches(frame))
}

// What siw on x86 sends, and what the RFC says.
func TestTerminateOrders(t *testing.T) {
	for in, want := range map[string]termination{
		"21030300": {1, 2, 3}, "11000300": {1, 1, 0}, "02020000": {2, 0, 2}, // siw
		"1203c000": {1, 2, 3}, "1100c000": {1, 1, 0}, "20020000": {2, 0, 2}, // the RFC
		"0100e000": {0, 1, 0}, "10000700": {0, 1, 0}, "00000000": {0, 0, 0},
	} {
		got := parseTerminate(unhex(in))
		require.Equal(t, want, got, in)
		require.NotContains(t, got.String(), "code", in)
	}
	require.Equal(t, "DDP tagged buffer error: invalid STag", termination{1, 1, 0}.String())
	require.Contains(t, termination{9, 9, 9}.String(), "unknown layer")
}

func TestTerminateQuotes(t *testing.T) {
	var b [maxTerminate]byte
	rr := make([]byte, readRequestSize)
	putReadRequest(rr, 1, &readRequest{1, 2, 3, 4, 5})
	n := putTerminate(b[:], termination{layerRDMAP, rdmapProtection, 0}, rr)
	require.Equal(t, maxTerminate-lengthSize, n) // the length counts in the quoted headers
	require.True(t, terminatedRead(b[untaggedSize:n]))
	require.Equal(t, rr, b[untaggedSize+terminateControlSize:n])
	h, v := parseHeader(b[:n])
	require.Nil(t, v)
	require.Equal(t, opTerminate, h.op)

	n = putTerminate(b[:], termination{layerDDP, ddpTaggedBuffer, 0}, rr[:10])
	require.Equal(t, untaggedSize+terminateControlSize, n)
	require.False(t, terminatedRead(b[untaggedSize:n]))
}

func TestSetupRoundTrip(t *testing.T) {
	for _, f := range []setupFrame{
		{revision: 1},
		{revision: 1, crc: true, private: bytes.Repeat([]byte("x"), maxPrivate)},
		{revision: 2, enhanced: true, ird: depthMask, ord: 1, private: []byte("hi")},
		{revision: 2, enhanced: true, peerToPeer: true, sendRTR: true},
		{revision: 2, enhanced: true, peerToPeer: true, writeRTR: true, readRTR: true, reject: true, markers: true},
	} {
		b := appendSetup(nil, replyKey, &f)
		for n := range len(b) {
			_, _, err := parseSetup(b[:n], replyKey)
			require.Equal(t, errShort, err)
		}
		got, size, err := parseSetup(append(b, "behind"...), replyKey)
		require.NoError(t, err)
		require.Equal(t, len(b), size)
		if len(got.private) == 0 {
			got.private = nil
		}
		require.Equal(t, f, got)
	}
}

func FuzzSetup(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte, isReply bool) {
		key := requestKey
		if isReply {
			key = replyKey
		}
		frame, size, err := parseSetup(b, key)
		if err != nil {
			if err == errShort && len(b) >= maxSetupFrame {
				t.Fatal("a frame of any length is not long enough")
			}
			return
		}
		if got := appendSetup(nil, key, &frame); len(got) != size || !bytes.Equal(got[18:], b[18:size]) {
			t.Fatalf("% x became % x", b[:size], got)
		}
		cfg := Config{}
		_ = cfg.resolve()
		if refusal(&frame) == nil {
			rep, a, err := reply(&cfg, &frame, &onePair)
			if err != nil || a.ird < 0 || a.ird > maxReads || a.ord < 0 || a.ord > maxReads {
				t.Fatalf("%+v %+v %v", rep, a, err)
			}
		}
		req, _ := request(&cfg, &onePair)
		if a, err := agree(&cfg, &req, &frame, &onePair); err == nil && (a.ird > maxReads || a.ord > int(onePair.InitiatorDepth)) {
			t.Fatalf("%+v", a)
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 4 {
			return
		}
		size, v := sizeOf(b)
		if v != nil || size > len(b) {
			return
		}
		h, v := parseHeader(b)
		if v != nil {
			var term [maxTerminate]byte
			putTerminate(term[:], v.termination, b[:min(len(b), maxHeader)])
			return
		}
		if h.payload < 0 || size+h.payload != lengthSize+h.ulpdu {
			t.Fatalf("%+v", h)
		}
		if h.op == opTerminate {
			_ = parseTerminate(b[untaggedSize:size]).String()
			terminatedRead(b[untaggedSize:size])
		}
	})
}
