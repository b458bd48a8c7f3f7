package rsocket

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMessage(t *testing.T) {
	tests := []struct {
		m       message
		raw     uint32
		credits uint16
		text    string
	}{
		{newMessage(msgData, 65536), 0x00010000, 0, "data of 65536 bytes"},
		{newMessage(msgCredits, 384), 0x80000180, 384, "credits up to 384"},
		{newMessage(msgCredits, 0x10005), 0x80010005, 5, "credits up to 5"},
		{newMessage(msgIOMap, 3), 0xc0000003, 3, "direct placement entry 3"},
		{newMessage(msgControl, ctrlDisconnect), 0xe0000000, 0, "DISCONNECT"},
		{newMessage(msgControl, ctrlKeepAlive), 0xe0000001, 1, "KEEPALIVE"},
		{newMessage(msgControl, ctrlShutdown), 0xe0000002, 2, "SHUTDOWN"},
		{newMessage(msgControl, 77), 0xe000004d, 77, "control 77"},
		{message(0x20000001), 0x20000001, 1, "message type 1 with value 1"},
	}
	for _, test := range tests {
		require.Equal(t, test.raw, uint32(test.m))
		require.Equal(t, test.credits, test.m.credits())
		require.Equal(t, test.text, test.m.String())
	}
}

func FuzzMessage(f *testing.F) {
	for _, m := range []uint32{0, 0x00010000, 0x80000180, 0xc0000003, 0xe0000000, 0xffffffff} {
		f.Add(m)
	}
	f.Fuzz(func(t *testing.T, raw uint32) {
		m := message(raw)
		require.Equal(t, m, newMessage(m.typ(), m.value()))
		require.Less(t, m.typ(), uint32(8))
		require.LessOrEqual(t, m.value(), uint32(msgValueMask))
		require.NotEmpty(t, m.String())
	})
}

func FuzzEntry(f *testing.F) {
	var b [sglEntrySize]byte
	bigEndian.putEntry(b[:], Segment{Addr: 1 << 40, Key: 2, Len: 3})
	f.Add(b[:], true)
	f.Add(b[:], false)
	f.Fuzz(func(t *testing.T, b []byte, big bool) {
		if len(b) < sglEntrySize {
			return
		}
		order := endian(big)
		w := order.entry(b)
		var again [sglEntrySize]byte
		order.putEntry(again[:], w)
		require.Equal(t, b[:sglEntrySize], again[:])
		if checkWindow(w) == nil {
			require.NotZero(t, w.Len)
			require.GreaterOrEqual(t, w.Addr+uint64(w.Len), w.Addr)
		}
	})
}
