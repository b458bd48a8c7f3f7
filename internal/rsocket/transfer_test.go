package rsocket

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/simqp"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// A pattern is an endless stream of bytes that tells its position, but for a
// multiple of its period, which is prime.
type pattern struct{ pos int }

const period = 65521

var patternBytes = func() (b [period]byte) {
	r := rand.New(rand.NewPCG(1, 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}()

func (p *pattern) fill(b []byte) {
	for len(b) > 0 {
		n := copy(b, patternBytes[p.pos%period:])
		p.pos += n
		b = b[n:]
	}
}

// check reports the position of the first byte that does not belong there.
func (p *pattern) check(b []byte) error {
	read := len(b)
	for len(b) > 0 {
		want := patternBytes[p.pos%period:]
		want = want[:min(len(want), len(b))]
		if !bytes.Equal(want, b[:len(want)]) {
			for i := range want {
				if b[i] != want[i] {
					return fmt.Errorf("byte %d is %#x, want %#x (%d of %d bytes before the end of this read)", p.pos+i, b[i], want[i], len(b)-i, read)
				}
			}
		}
		p.pos += len(want)
		b = b[len(want):]
	}
	return nil
}

// writeSizes writes total bytes of the pattern in pieces whose sizes come from
// size.
func writeSizes(w io.Writer, total int, size func() int) error {
	var p pattern
	buf := make([]byte, 8<<20)
	for left := total; left > 0; {
		n := min(size(), left, len(buf))
		p.fill(buf[:n])
		m, err := w.Write(buf[:n])
		if err == nil && m != n {
			err = io.ErrShortWrite
		}
		if err != nil {
			return fmt.Errorf("after %d bytes: %w", total-left+m, err)
		}
		left -= n
	}
	return nil
}

// readSizes reads the pattern to the end of the stream and returns how much it was.
func readSizes(r io.Reader, size func() int) (int, error) {
	var p pattern
	buf := make([]byte, 8<<20)
	for {
		n, err := r.Read(buf[:min(size(), len(buf))])
		if e := p.check(buf[:n]); e != nil {
			return p.pos, e
		}
		if err == io.EOF {
			return p.pos, nil
		}
		if err != nil {
			return p.pos, err
		}
	}
}

func fixed(n int) func() int { return func() int { return n } }

func random(seed uint64, most int) func() int {
	r := rand.New(rand.NewPCG(seed, 7))
	return func() int {
		if r.IntN(3) == 0 {
			return 1 + r.IntN(most)
		}
		return 1 + r.IntN(min(most, 200))
	}
}

// TestSizes writes in pieces of one size and reads in pieces of another, with
// buffers and depths large and small.
func TestSizes(t *testing.T) {
	configs := []struct {
		name string
		cfg  Config
	}{
		{"default", Config{}},
		{"small", Config{ReadBuffer: 16 << 10, WriteBuffer: 16 << 10, SendDepth: 32, RecvDepth: 32}},
		{"no inline", Config{MaxInline: -1}},
	}
	sizes := []struct{ write, read, total int }{
		{1, 4096, 20_000},
		{7, 64, 50_000},
		{64, 7, 100_000},
		{4096, 65537, 4 << 20},
		{65537, 4096, 8 << 20},
		{8 << 20, 1 << 20, 24 << 20},
		{1 << 20, 8 << 20, 24 << 20},
	}
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		for _, c := range configs {
			for _, size := range sizes {
				t.Run(fmt.Sprintf("%s/%d-%d", c.name, size.write, size.read), func(t *testing.T) {
					l := newLab(t, simqp.Options{Transport: tr})
					a, b := l.pair(c.cfg)
					go func() {
						if err := writeSizes(a, size.total, fixed(size.write)); err != nil {
							t.Error(err)
						}
						if err := a.CloseWrite(); err != nil {
							t.Error(err)
						}
					}()
					n, err := readSizes(b, fixed(size.read))
					require.NoError(t, err)
					require.Equal(t, size.total, n)
				})
			}
		}
	})
}

// TestBothWays moves 64 MiB each way at once.
func TestBothWays(t *testing.T) {
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		l := newLab(t, simqp.Options{Transport: tr})
		a, b := l.pair(Config{})
		total := 64 << 20
		if raceEnabled || testing.Short() {
			total = 8 << 20
		}
		var wg sync.WaitGroup
		for i, e := range []*end{a, b} {
			wg.Go(func() {
				if err := writeSizes(e, total, random(uint64(i), 1<<20)); err != nil {
					t.Errorf("end %d: write: %v", i, err)
				}
				if err := e.CloseWrite(); err != nil {
					t.Errorf("end %d: close write: %v", i, err)
				}
			})
			wg.Go(func() {
				n, err := readSizes(e, random(uint64(i)+10, 1<<20))
				if err != nil || n != total {
					t.Errorf("end %d: read %d bytes: %v", i, n, err)
				}
			})
		}
		within(t, 2*time.Minute, wg.Wait)
	})
}

// TestRandomSchedules moves data both ways while everything is delayed at random
// and the buffers are small; then, in half of the runs, one end is closed or
// broken somewhere in between. What comes out is a prefix of what went in, and
// all of it after a clean close.
func TestRandomSchedules(t *testing.T) {
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		runs := 30
		if testing.Short() {
			runs = 5
		}
		base := rand.Uint64()
		for i := range runs {
			seed := base + uint64(i)
			t.Run(fmt.Sprint(seed), func(t *testing.T) { runSchedule(t, tr, seed) })
		}
	})
}

func runSchedule(t *testing.T, tr verbs.Transport, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 3))
	l := newLab(t, simqp.Options{Transport: tr, Seed: seed, Delay: 200 * time.Microsecond})
	config := func() Config {
		c := Config{ReadBuffer: 16 << 10 << r.IntN(4), WriteBuffer: 16 << 10 << r.IntN(4), BigEndian: r.IntN(2) == 0}
		if r.IntN(2) == 0 {
			c.SendDepth, c.RecvDepth = 32<<r.IntN(3), 32<<r.IntN(3)
		}
		if r.IntN(3) == 0 {
			c.MaxInline = -1
		}
		return c
	}
	a, b := l.pairOf(config(), config())
	total := 1 + r.IntN(400_000)
	breakAt := time.Duration(-1)
	if r.IntN(2) == 0 {
		breakAt = time.Duration(r.Int64N(int64(20 * time.Millisecond)))
	}
	how := r.IntN(3)

	var wg sync.WaitGroup
	for i, e := range []*end{a, b} {
		w, rd := random(seed+uint64(i), 40_000), random(seed+uint64(i)+2, 40_000)
		wg.Go(func() {
			err := writeSizes(e, total, w)
			if breakAt < 0 && err != nil {
				t.Errorf("end %d: write: %v", i, err)
			}
			_ = e.CloseWrite()
		})
		wg.Go(func() {
			n, err := readSizes(e, rd)
			switch {
			case n > total:
				t.Errorf("end %d: %d bytes of %d", i, n, total)
			case breakAt < 0 && (n != total || err != nil):
				t.Errorf("end %d: read %d of %d bytes: %v", i, n, total, err)
			}
			if breakAt >= 0 && err == nil && n != total && how == 1 {
				t.Errorf("end %d: end of file after %d of %d bytes of a broken connection", i, n, total)
			}
		})
	}
	if breakAt >= 0 {
		time.Sleep(breakAt)
		switch how {
		case 0:
			if err := a.Close(10 * time.Second); err != nil {
				t.Error(err)
			}
			a.qp.Disconnect()
		case 1:
			a.qp.Disconnect()
		case 2:
			_ = b.Release()
			a.Disconnected(nil)
		}
	}
	within(t, time.Minute, wg.Wait)
}

// TestHalfClose checks that the other direction goes on.
func TestHalfClose(t *testing.T) {
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		l := newLab(t, simqp.Options{Transport: tr})
		a, b := l.pair(Config{})
		_, err := a.Write([]byte("question"))
		require.NoError(t, err)
		require.NoError(t, a.CloseWrite())
		require.NoError(t, a.CloseWrite(), "the second time")
		_, err = a.Write([]byte("more"))
		require.Error(t, err)

		got, err := io.ReadAll(b)
		require.NoError(t, err)
		require.Equal(t, "question", string(got))
		answer := bytes.Repeat([]byte("answer"), 1<<20)
		go func() {
			if _, err := b.Write(answer); err != nil {
				t.Error(err)
			}
			if err := b.CloseWrite(); err != nil {
				t.Error(err)
			}
		}()
		got, err = io.ReadAll(a)
		require.NoError(t, err)
		require.Equal(t, sha256.Sum256(answer), sha256.Sum256(got))
		require.NoError(t, a.Close(time.Second))
		require.NoError(t, b.Close(time.Second))
	})
}

// TestCloseRead checks that a peer can go on writing to an end that has closed
// its reading side, driven or not.
func TestCloseRead(t *testing.T) {
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		l := newLab(t, simqp.Options{Transport: tr})
		a, b := l.pair(Config{ReadBuffer: 64 << 10})
		_, err := a.Write([]byte("lost"))
		require.NoError(t, err)
		blocked := make(chan error)
		require.NoError(t, b.CloseRead())
		go func() {
			_, err := b.Read(make([]byte, 1))
			blocked <- err
		}()
		require.Equal(t, io.EOF, <-blocked)
		// The sweeper alone takes what comes.
		within(t, 30*time.Second, func() {
			_, err = a.Write(make([]byte, 1<<20))
			require.NoError(t, err)
		})
		_, err = b.Write([]byte("still"))
		require.NoError(t, err)
		p := make([]byte, 5)
		_, err = io.ReadFull(a, p)
		require.NoError(t, err)
	})
}

// TestWriteBuffers checks that a vector is written as one and taken as far as
// it was written.
func TestWriteBuffers(t *testing.T) {
	eachTransport(t, func(t *testing.T, tr verbs.Transport) {
		l := newLab(t, simqp.Options{Transport: tr})
		a, b := l.pair(Config{ReadBuffer: 16 << 10, WriteBuffer: 16 << 10})
		var all []byte
		var v net.Buffers
		r := rand.New(rand.NewPCG(1, 2))
		for range 300 {
			p := make([]byte, r.IntN(3)*r.IntN(2000))
			for i := range p {
				p[i] = byte(r.Uint32())
			}
			v = append(v, p)
			all = append(all, p...)
		}
		go func() {
			n, err := a.WriteBuffers(&v)
			if err != nil || int(n) != len(all) || len(v) != 0 {
				t.Errorf("wrote %d of %d bytes, %d buffers left: %v", n, len(all), len(v), err)
			}
			if err := a.CloseWrite(); err != nil {
				t.Error(err)
			}
		}()
		got, err := io.ReadAll(b)
		require.NoError(t, err)
		require.True(t, bytes.Equal(all, got))

		// A deadline in the middle: what is left is what was not written.
		require.NoError(t, b.SetWriteDeadline(time.Now().Add(20*time.Millisecond)))
		v = net.Buffers{make([]byte, 10_000), make([]byte, 10_000), make([]byte, 10_000)}
		n, err := b.WriteBuffers(&v)
		require.Error(t, err)
		left := 0
		for _, p := range v {
			left += len(p)
		}
		require.Equal(t, 30_000, left+int(n))
		require.Positive(t, n)
	})
}
