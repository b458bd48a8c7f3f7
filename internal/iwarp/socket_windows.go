package iwarp

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

func socketsSupported() error { return nil }

// A socket is a TCP socket in non-blocking mode. The overlapped operations of
// package net, which serve to wait, are not affected by that mode; WSARecv and
// WSASend without an OVERLAPPED obey it.
type socket struct {
	conn   *net.TCPConn
	raw    syscall.RawConn
	handle windows.Handle // used under the connection's locks: see wire
	closed atomic.Bool
}

var _ wire = (*socket)(nil)

// fionbio is FIONBIO of winsock2.h.
const fionbio = 0x8004667e

// newSocket takes over a connection, also if it fails.
func newSocket(conn tcpConn) (wire, error) {
	s := &socket{conn: conn.(netConn).TCPConn}
	var err error
	if s.raw, err = conn.SyscallConn(); err == nil {
		err = s.raw.Control(func(fd uintptr) { s.handle = windows.Handle(fd) })
	}
	if err == nil {
		on, returned := uint32(1), uint32(0)
		err = windows.WSAIoctl(s.handle, fionbio, (*byte)(unsafe.Pointer(&on)), uint32(unsafe.Sizeof(on)), nil, 0, &returned, nil, 0)
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{}) // those of the set-up
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("make socket non-blocking: %w", err)
	}
	return s, nil
}

func (s *socket) read(dst, spill []byte) (int, error) {
	if len(dst) == 0 {
		dst = spill
	}
	buf := windows.WSABuf{Len: uint32(len(dst)), Buf: &dst[0]}
	var n, flags uint32
	err := windows.WSARecv(s.handle, &buf, 1, &n, &flags, nil, nil)
	return end(wouldBlock(int(n), err))
}

func (s *socket) write(vec [][]byte, record bool) (int, error) {
	var bufs [maxVec]windows.WSABuf
	k := 0
	for _, b := range vec {
		if len(b) > 0 && k < maxVec {
			bufs[k] = windows.WSABuf{Len: uint32(len(b)), Buf: &b[0]}
			k++
		}
	}
	var n uint32
	err := windows.WSASend(s.handle, &bufs[0], uint32(k), &n, 0, nil, nil)
	return wouldBlock(int(n), err)
}

func (s *socket) waitReadable(try func(uintptr) bool) error { return s.raw.Read(try) }

// waitWritable tries again and again: neither Windows' completion ports nor
// package net tell when a socket has room.
func (s *socket) waitWritable(try func(uintptr) bool) error {
	const first, longest = 100 * time.Microsecond, 5 * time.Millisecond
	for pause := first; !try(0); pause = min(2*pause, longest) {
		if s.closed.Load() {
			return net.ErrClosed
		}
		time.Sleep(pause)
	}
	return nil
}

func (s *socket) setReadDeadline(t time.Time) error { return s.conn.SetReadDeadline(t) }

func (s *socket) finish() error      { return s.conn.CloseWrite() }
func (s *socket) unsent() bool       { return false }
func (s *socket) acknowledged() bool { return false }

func (s *socket) silence() (time.Duration, bool) { return 0, false }
func (s *socket) segmentSize() int               { return 0 }

func (s *socket) close() error {
	s.closed.Store(true)
	return s.conn.Close()
}

func wouldBlock(n int, err error) (int, error) {
	if err == windows.WSAEWOULDBLOCK {
		return 0, errAgain
	}
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	return n, nil
}
