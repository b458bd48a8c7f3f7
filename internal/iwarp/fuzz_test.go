package iwarp

import (
	"bytes"
	"encoding/binary"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// A scriptedWire is a wire whose input is a byte string that comes in given
// pieces, and whose output is kept.
type scriptedWire struct {
	mu     sync.Mutex
	input  []byte
	pieces []byte // the sizes of the pieces, and now and then nothing (0)
	turn   int
	output []byte
	writes int
	fin    bool
	closed chan struct{}
}

func (w *scriptedWire) size() int {
	if len(w.pieces) == 0 {
		return len(w.input)
	}
	w.turn++
	return int(w.pieces[w.turn%len(w.pieces)])
}

func (w *scriptedWire) read(dst, spill []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.input) == 0 {
		return 0, io.EOF
	}
	n := w.size()
	if n == 0 {
		return 0, errAgain
	}
	from := w.input[:min(n, len(w.input))]
	n = copy(dst, from)
	n += copy(spill, from[n:])
	w.input = w.input[n:]
	return n, nil
}

func (w *scriptedWire) write(vec [][]byte, record bool) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes++
	n := 0
	for _, b := range vec {
		w.output = append(w.output, b...)
		n += len(b)
	}
	return n, nil
}

func (w *scriptedWire) waitReadable(try func(uintptr) bool) error {
	for !try(0) {
	}
	return nil
}

func (w *scriptedWire) waitWritable(try func(uintptr) bool) error {
	for !try(0) {
	}
	return nil
}

func (w *scriptedWire) setReadDeadline(time.Time) error { return nil }
func (w *scriptedWire) finish() error                   { w.fin = true; return nil }
func (w *scriptedWire) unsent() bool                    { return false }
func (w *scriptedWire) acknowledged() bool              { return false }
func (w *scriptedWire) unconfirmed() (some, known bool) { return false, false }
func (w *scriptedWire) silence() (time.Duration, bool)  { return 0, false }
func (w *scriptedWire) segmentSize() int                { return 1000 }

func (w *scriptedWire) close() error {
	close(w.closed)
	return nil
}

// What a fuzzed peer knows: one region that it may write and read, its rights
// and address fixed, in the middle of others that it may not touch.
const (
	fuzzSTag = 0x00070007
	fuzzBase = 0x10000
	fuzzSize = 4096
)

func fuzzRegion(nic *NIC, pd verbs.PD, stag uint32, base uint64, access verbs.Access) *region {
	r := &region{pd: pd.(*protectionDomain), mem: bytes.Repeat([]byte{0xEE}, fuzzSize), base: base, stag: stag, access: access}
	nic.regions.mu.Lock()
	defer nic.regions.mu.Unlock()
	if nic.regions.of == nil {
		nic.regions.of = make(map[uint32]*region)
	}
	nic.regions.of[stag] = r
	return r
}

// Whatever a peer sends, in whatever pieces: nothing panics or hangs, nothing is
// placed where it must not be, what is said in answer is frames, and every
// request and receive completes once.
func FuzzReceive(f *testing.F) {
	f.Fuzz(func(t *testing.T, input, pieces []byte, crc, initiator bool) {
		nothing := true
		for _, p := range pieces {
			nothing = nothing && p == 0
		}
		if nothing {
			pieces = nil
		}
		nic, err := Open(Config{CloseTimeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		pd, _ := nic.AllocPD()
		cq, _ := nic.NewCQ(64)
		const all = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead
		target := fuzzRegion(nic, pd, fuzzSTag, fuzzBase, all)
		others := []*region{
			fuzzRegion(nic, pd, fuzzSTag-1, fuzzBase-fuzzSize, verbs.LocalWrite),
			fuzzRegion(nic, pd, fuzzSTag+1, fuzzBase+fuzzSize, 0),
		}
		receives := fuzzRegion(nic, pd, 99, 1<<20, verbs.LocalWrite)
		id := nic.newIdentifier()
		over := make(chan struct{})
		id.Handle(func(ev cm.Event) {
			if ev.Type == cm.Disconnected {
				close(over)
			}
		})
		qp, err := id.CreateQP(pd, cq, verbs.QPAttr{SendDepth: 8, RecvDepth: 8})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 8 {
			wr := verbs.RecvWR{ID: uint64(i), SGE: verbs.SGE{Addr: receives.base + 512*uint64(i), Length: 256, LKey: receives.stag}}
			if _, err := qp.PostRecv([]verbs.RecvWR{wr}); err != nil {
				t.Fatal(err)
			}
		}
		w := &scriptedWire{input: input, pieces: pieces, closed: make(chan struct{})}
		q := qp.(*queuePair)
		if err := q.start(w, agreement{crc: crc, initiator: initiator, ird: 2, ord: 2}, nil, cm.Event{Type: cm.Established}); err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			wr := verbs.SendWR{ID: uint64(100 + i), Opcode: verbs.OpRead, Flags: verbs.FlagSignaled, NumSGE: 1}
			wr.SGE[0] = verbs.SGE{Addr: fuzzBase + 100*uint64(i), Length: 100, LKey: fuzzSTag}
			if _, err := qp.PostSend([]verbs.SendWR{wr}); err != nil {
				t.Fatal(err)
			}
		}
		seen := map[uint64]bool{}
		var wc [4]verbs.WC
		poll := func() {
			n, err := cq.Poll(wc[:])
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range wc[:n] {
				if seen[c.ID] {
					t.Fatalf("%d has completed twice", c.ID)
				}
				seen[c.ID] = true
			}
		}
		for ended := false; !ended; {
			poll()
			select {
			case <-over:
				ended = true
			default:
			}
		}
		<-w.closed
		for range 8 {
			poll()
		}
		if len(seen) != 12 {
			t.Fatalf("%d completions of 12", len(seen))
		}
		for _, r := range others {
			if !bytes.Equal(r.mem, bytes.Repeat([]byte{0xEE}, fuzzSize)) {
				t.Fatal("a byte was placed in another region")
			}
		}
		for i := range 8 {
			if !bytes.Equal(receives.mem[512*i+256:512*(i+1)], bytes.Repeat([]byte{0xEE}, 256)) {
				t.Fatal("a byte was placed behind a receive")
			}
		}
		_ = target
		for b := w.output; len(b) > 0; {
			h, v := parseHeader(b)
			if v != nil {
				t.Fatalf("sent % x: %v", b, v)
			}
			n := lengthSize + h.ulpdu + trailer(int(binary.BigEndian.Uint16(b)))
			if n > len(b) || crc && !crcMatches(b[:n]) {
				t.Fatalf("sent % x", b)
			}
			b = b[n:]
		}
		if err := qp.Destroy(); err != nil {
			t.Fatal(err)
		}
	})
}
