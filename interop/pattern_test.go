//go:build linux

package interop

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
)

// period is the length of the pattern: a prime, so that it fits no ring, window,
// or page, and nothing that is moved by one of those looks right.
const period = 1_048_573

// periodBytes is the pattern, twice in a row, so that any run of up to a period
// is one slice.
var periodBytes = sync.OnceValue(func() []byte {
	b := make([]byte, 2*period)
	rand.NewChaCha8([32]byte{7}).Read(b[:period])
	copy(b[period:], b)
	return b
})

// A pattern is a stream of bytes of which each is known by its position. It is
// read to get what to send; what is written to it is compared. The two ways of a
// connection get patterns that begin in different places.
type pattern struct {
	start int64
	pos   int64 // bytes read or compared so far
	size  int64 // what Read gives; Write takes whatever is right
}

var (
	_ io.Reader = (*pattern)(nil)
	_ io.Writer = (*pattern)(nil)
)

func newPattern(seed, size int64) *pattern { return &pattern{start: seed * 7919, size: size} }

// next is the pattern's next bytes, at most n.
func (p *pattern) next(n int) []byte {
	at := (p.start + p.pos) % period
	return periodBytes()[at:][:min(n, period)]
}

func (p *pattern) Read(b []byte) (int, error) {
	left := p.size - p.pos
	if left == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.next(int(min(left, int64(len(b))))))
	p.pos += int64(n)
	return n, nil
}

// Write compares b and fails at the first byte that is not what it should be.
func (p *pattern) Write(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		want := p.next(len(b) - n)
		got := b[n:][:len(want)]
		if !bytes.Equal(want, got) {
			i := 0
			for want[i] == got[i] {
				i++
			}
			return n + i, fmt.Errorf("byte %d is %#02x, want %#02x", p.pos+int64(i), got[i], want[i])
		}
		n += len(want)
		p.pos += int64(len(want))
	}
	return n, nil
}

// complete is an error unless just the whole pattern has passed.
func (p *pattern) complete() error {
	if p.pos != p.size {
		return fmt.Errorf("%d bytes came, want %d", p.pos, p.size)
	}
	return nil
}

// send writes the pattern in pieces. It copies by hand, so that neither end's
// ReadFrom or WriteTo is used.
func (p *pattern) send(w io.Writer, piece int) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{p}, make([]byte, piece))
	return err
}

// receive compares what comes from r, until its end.
func (p *pattern) receive(r io.Reader, piece int) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{p}, struct{ io.Reader }{r}, make([]byte, piece))
	if err != nil {
		return fmt.Errorf("after %d of %d bytes: %w", p.pos, p.size, err)
	}
	return p.complete()
}
