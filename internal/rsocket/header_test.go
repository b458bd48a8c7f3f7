package rsocket

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sample is what a little-endian C program with librdmacm's defaults sends.
var sample = Header{
	IOMap:   true,
	Credits: 384,
	SGL:     Segment{Addr: 0x00007f0102030405, Key: 0x11223344, Len: 2},
	Data:    Segment{Addr: 0x00007f0a0b0c0d0e, Key: 0x55667788, Len: 64 << 10},
}

const sampleHex = "01020180" + "00000000" +
	"00007f0102030405" + "11223344" + "00000002" +
	"00007f0a0b0c0d0e" + "55667788" + "00010000"

func TestHeader(t *testing.T) {
	b := sample.Append(nil)
	require.Equal(t, sampleHex, hex.EncodeToString(b))
	require.Len(t, b, HeaderLen)

	for _, padded := range []int{0, 16, 156} {
		h, err := ParseHeader(append(b, make([]byte, padded)...), false)
		require.NoError(t, err)
		require.Equal(t, sample, h)
	}

	b = sample.AppendRequest(nil, true)
	require.Len(t, b, 36+HeaderLen)
	h, err := ParseHeader(b, true)
	require.NoError(t, err)
	require.Equal(t, sample, h)

	be := sample
	be.BigEndian, be.IOMapScale = true, 0x82
	h, err = ParseHeader(be.Append(nil), false)
	require.NoError(t, err)
	require.Equal(t, be, h)
	require.Equal(t, 512, h.IOMapEntries())
	h.IOMapScale = 0x80
	require.Equal(t, 128, h.IOMapEntries())
}

func TestHeaderRefused(t *testing.T) {
	change := func(f func(*Header)) []byte {
		h := sample
		f(&h)
		return h.Append(nil)
	}
	good := sample.Append(nil)
	version2 := append([]byte{2}, good[1:]...)
	tests := []struct {
		name    string
		private []byte
		ib      bool
		wants   string
	}{
		{"nothing", nil, false, "0 bytes"},
		{"short", good[:39], false, "39 bytes"},
		{"short behind the AF_IB header", append(make([]byte, 36), good[:39]...), true, "39 bytes"},
		{"shorter than the AF_IB header", good[:35], true, "35 bytes"},
		{"version 0", make([]byte, 56), false, "version 0"},
		{"version 2", version2, false, "version 2"},
		{"no credits", change(func(h *Header) { h.Credits = 0 }), false, "no receives"},
		{"no window", change(func(h *Header) { h.Data.Len = 0 }), false, "window of no bytes"},
		{"absurd window", change(func(h *Header) { h.Data.Len = math.MaxUint32 }), false, "window of 4294967295 bytes"},
		{"window that wraps", change(func(h *Header) { h.Data.Addr = math.MaxUint64 - 1 }), false, "end of memory"},
		{"one SGL entry", change(func(h *Header) { h.SGL.Len = 1 }), false, "1 entries"},
		{"many SGL entries", change(func(h *Header) { h.SGL.Len = 1 << 30 }), false, "entries"},
		{"SGL that wraps", change(func(h *Header) { h.SGL.Addr = math.MaxUint64 - 16 }), false, "end of memory"},
		{"HTTP", []byte("GET / HTTP/1.1\r\nHost: example.com\r\nAccept: */*\r\n\r\n"), false, "version 71"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := ParseHeader(test.private, test.ib)
			var e *HeaderError
			require.ErrorAs(t, err, &e)
			require.Contains(t, err.Error(), test.wants)
			require.True(t, strings.HasPrefix(err.Error(), "the peer speaks RDMA, but not rsockets: "))
		})
	}
}

func FuzzParseHeader(f *testing.F) {
	f.Add(sample.Append(nil), false)
	f.Add(sample.AppendRequest(nil, true), true)
	f.Add(append(sample.Append(nil), make([]byte, 16)...), false)
	f.Fuzz(func(t *testing.T, private []byte, ib bool) {
		h, err := ParseHeader(private, ib)
		if err != nil {
			require.Zero(t, h)
			return
		}
		// What is accepted can be used without a further check, and
		// survives a round trip.
		require.NotZero(t, h.Credits)
		require.NotZero(t, h.Data.Len)
		require.GreaterOrEqual(t, h.Data.Addr+uint64(h.Data.Len), h.Data.Addr)
		require.LessOrEqual(t, h.IOMapEntries(), 0x7f<<8)
		again, err := ParseHeader(h.AppendRequest(nil, ib), ib)
		require.NoError(t, err)
		require.Equal(t, h, again)
	})
}
