//go:build darwin || linux || openbsd

package iwarp

import "golang.org/x/sys/unix"

func (s *socket) read(dst, spill []byte) (n int, err error) {
	for {
		if len(dst) == 0 {
			n, err = unix.Read(s.fd, spill)
		} else {
			n, err = unix.Readv(s.fd, [][]byte{dst, spill})
		}
		if err != unix.EINTR {
			return end(wouldBlock(n, err))
		}
	}
}

func (s *socket) write(vec [][]byte, record bool) (n int, err error) {
	for {
		switch {
		case record && recordFlag != 0 && !raceEnabled:
			n, err = unix.SendmsgBuffers(s.fd, vec, nil, nil, recordFlag)
		case len(vec) == 1:
			n, err = unix.Write(s.fd, vec[0])
		default:
			n, err = unix.Writev(s.fd, vec)
		}
		if err != unix.EINTR {
			return wouldBlock(n, err)
		}
	}
}
