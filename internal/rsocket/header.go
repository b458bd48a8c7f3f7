package rsocket

import (
	"encoding/binary"
	"fmt"
	"math"
	"syscall"
)

// HeaderLen is the length of a Header in the private data of a connect request
// and of its answer.
const HeaderLen = 40

// ibHeaderLen is the length of what comes before the Header in a connect
// request between InfiniBand addresses (AF_IB). Its content means nothing.
const ibHeaderLen = 36

const headerVersion = 1

// The bits of the header's flags.
const (
	flagBigEndian = 1 << 0
	flagIOMap     = 1 << 1
)

// maxWindow is the largest window that a peer may grant: half of the largest
// receive buffer that a C program can set, with SO_RCVBUF's int.
const maxWindow = math.MaxInt32

// sglEntries is the number of entries of a target SGL: rsockets knows no other.
const sglEntries = 2

// A Segment is a piece of the peer's memory: an address, the key of the region
// that holds it, and a length. The unit of Len depends on the segment.
type Segment struct {
	Addr uint64
	Key  uint32
	Len  uint32
}

// A Header is what each side tells the other, once, in the private data of the
// connection: where it may be written to, and how many messages it can take.
type Header struct {
	BigEndian bool // the byte order of the sender, and so of its target SGL
	IOMap     bool // the sender understands direct placement

	Credits    uint16 // data messages that may be sent before the first grant
	IOMapScale uint8  // number of direct placement entries, scaled: see IOMapEntries

	SGL  Segment // the sender's target SGL; Len counts its entries
	Data Segment // the first window; Len is in bytes
}

// IOMapEntries is the number of direct placement entries that the sender has
// room for: small numbers as they are, larger ones in units of 256.
func (h *Header) IOMapEntries() int {
	if h.IOMapScale <= 0x80 {
		return int(h.IOMapScale)
	}
	return int(h.IOMapScale&0x7f) << 8
}

// Append appends the header's wire form, HeaderLen bytes, to b.
func (h *Header) Append(b []byte) []byte {
	var flags byte
	if h.BigEndian {
		flags |= flagBigEndian
	}
	if h.IOMap {
		flags |= flagIOMap
	}
	b = append(b, headerVersion, flags)
	b = binary.BigEndian.AppendUint16(b, h.Credits)
	b = append(b, 0, 0, 0, h.IOMapScale)
	for _, s := range [...]Segment{h.SGL, h.Data} {
		b = binary.BigEndian.AppendUint64(b, s.Addr)
		b = binary.BigEndian.AppendUint32(b, s.Key)
		b = binary.BigEndian.AppendUint32(b, s.Len)
	}
	return b
}

// AppendRequest appends the private data of a connect request: the header, and
// between InfiniBand addresses (ib) the room before it.
func (h *Header) AppendRequest(b []byte, ib bool) []byte {
	if ib {
		b = append(b, make([]byte, ibHeaderLen)...)
	}
	return h.Append(b)
}

// ParseHeader reads a peer's header from private data, which may be padded. ib
// says that it is the private data of a connect *request* between InfiniBand
// addresses. All that a peer could not have meant is an error, a *HeaderError.
func ParseHeader(private []byte, ib bool) (Header, error) {
	if ib {
		if len(private) < ibHeaderLen {
			return Header{}, headerErrorf("%d bytes of private data; the AF_IB header alone has %d", len(private), ibHeaderLen)
		}
		private = private[ibHeaderLen:]
	}
	if len(private) == 0 {
		return Header{}, headerErrorf("no private data, want %d bytes", HeaderLen)
	}
	if len(private) < HeaderLen {
		return Header{}, headerErrorf("%d bytes of private data, want %d", len(private), HeaderLen)
	}
	if private[0] != headerVersion {
		return Header{}, headerErrorf("version %d, want %d", private[0], headerVersion)
	}
	h := Header{
		BigEndian:  private[1]&flagBigEndian != 0,
		IOMap:      private[1]&flagIOMap != 0,
		Credits:    binary.BigEndian.Uint16(private[2:]),
		IOMapScale: private[7],
		SGL:        parseSegment(private[8:]),
		Data:       parseSegment(private[24:]),
	}
	switch {
	case h.Credits == 0:
		return Header{}, headerErrorf("it has posted no receives")
	case h.SGL.Len != sglEntries:
		return Header{}, headerErrorf("a target SGL of %d entries, want %d", h.SGL.Len, sglEntries)
	case h.SGL.Addr > math.MaxUint64-sglEntries*sglEntrySize:
		return Header{}, headerErrorf("a target SGL beyond the end of memory")
	}
	if err := checkWindow(h.Data); err != nil {
		return Header{}, headerErrorf("%v", err)
	}
	return h, nil
}

func parseSegment(b []byte) Segment {
	return Segment{
		Addr: binary.BigEndian.Uint64(b),
		Key:  binary.BigEndian.Uint32(b[8:]),
		Len:  binary.BigEndian.Uint32(b[12:]),
	}
}

// checkWindow says what is wrong with a window granted by the peer.
func checkWindow(w Segment) error {
	switch {
	case w.Len == 0:
		return fmt.Errorf("a window of no bytes")
	case w.Len > maxWindow:
		return fmt.Errorf("a window of %d bytes, more than %d", w.Len, maxWindow)
	case w.Addr > math.MaxUint64-uint64(w.Len):
		return fmt.Errorf("a window of %d bytes at %#x, beyond the end of memory", w.Len, w.Addr)
	}
	return nil
}

// A HeaderError says why private data is not that of an rsockets peer.
type HeaderError struct{ Reason string }

func headerErrorf(format string, args ...any) error {
	return &HeaderError{fmt.Sprintf(format, args...)}
}

func (e *HeaderError) Error() string { return "the peer speaks RDMA, but not rsockets: " + e.Reason }

// Unwrap makes it an EPROTO for errors.Is.
func (e *HeaderError) Unwrap() error { return syscall.EPROTO }
