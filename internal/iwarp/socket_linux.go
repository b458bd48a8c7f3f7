package iwarp

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func fileOf(conn tcpConn) (*os.File, error) { return conn.(*fileConn).File, nil }

// recordFlag keeps TCP from putting what is written later into the same buffer.
const recordFlag = unix.MSG_EOR

func (s *socket) unsent() bool {
	n, err := unix.IoctlGetInt(s.fd, unix.SIOCOUTQNSD)
	return err == nil && n > 0
}

func (s *socket) silence() (time.Duration, bool) {
	info, err := unix.GetsockoptTCPInfo(s.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, false
	}
	if info.Unacked == 0 && info.Probes == 0 && s.unsent() {
		// The peer's window is closed, and the last probe of it was answered. The
		// next may be long in coming: each waits twice as long as the one before.
		return 0, true
	}
	return time.Duration(info.Last_ack_recv) * time.Millisecond, true
}

func (s *socket) acknowledged() bool {
	const finWait2, timeWait, closed = 5, 6, 7 // include/net/tcp_states.h
	info, err := unix.GetsockoptTCPInfo(s.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	return err == nil && (info.State == finWait2 || info.State == timeWait || info.State == closed)
}
