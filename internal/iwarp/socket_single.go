//go:build unix && !(darwin || linux || openbsd)

package iwarp

import "golang.org/x/sys/unix"

// Where golang.org/x/sys has no vectors, small slices are joined into one write,
// and a read does without the second slice.

func (s *socket) read(dst, spill []byte) (n int, err error) {
	if len(dst) == 0 {
		dst = spill
	}
	for {
		n, err = unix.Read(s.fd, dst)
		if err != unix.EINTR {
			return end(wouldBlock(n, err))
		}
	}
}

func (s *socket) write(vec [][]byte, record bool) (n int, err error) {
	var joined [joinLimit]byte
	b := join(joined[:0], vec)
	for {
		n, err = unix.Write(s.fd, b)
		if err != unix.EINTR {
			return wouldBlock(n, err)
		}
	}
}

// joinLimit is up to how many bytes slices are joined for one write.
const joinLimit = 32 << 10

// join returns the first slices as one, as many as there is room for in buf, or
// the first alone if it has no use for room.
func join(buf []byte, vec [][]byte) []byte {
	if len(vec) == 1 || len(vec[0]) >= cap(buf) {
		return vec[0]
	}
	for _, b := range vec {
		n := min(len(b), cap(buf)-len(buf))
		buf = append(buf, b[:n]...)
		if n < len(b) {
			break
		}
	}
	return buf
}
