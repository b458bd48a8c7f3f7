package iwarp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// On Linux the sockets are os.Files from the beginning. To take them over from
// package net (see newSocket) means to duplicate the descriptor and to enter it
// into the poller again, which is a tenth of the time of a dial.

// A fileConn is a tcpConn that is an os.File.
type fileConn struct {
	*os.File
	local, remote netip.AddrPort
	keep          net.KeepAliveConfig // what has been set
}

var _ tcpConn = (*fileConn)(nil)

func (c *fileConn) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(c.local) }
func (c *fileConn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }

// newFileConn takes over a socket that is, or was, connected to remote, also if it
// fails. Of one that the peer has reset meanwhile the kernel no longer says to whom.
func newFileConn(file *os.File, remote unix.Sockaddr) (*fileConn, error) {
	c := &fileConn{File: file}
	var local unix.Sockaddr
	err := c.control(func(fd int) (err error) {
		local, err = unix.Getsockname(fd)
		return os.NewSyscallError("getsockname", err)
	})
	if err != nil {
		file.Close()
		return nil, err
	}
	c.local, c.remote = fromSockaddr(local), fromSockaddr(remote)
	return c, nil
}

// control runs f on the descriptor, which cannot be closed meanwhile.
func (c *fileConn) control(f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	if err := raw.Control(func(fd uintptr) { ferr = f(int(fd)) }); err != nil {
		return err
	}
	return ferr
}

func (c *fileConn) CloseWrite() error {
	return c.control(func(fd int) error { return os.NewSyscallError("shutdown", unix.Shutdown(fd, unix.SHUT_WR)) })
}

func (c *fileConn) SetKeepAliveConfig(cfg net.KeepAliveConfig) error {
	if cfg == c.keep {
		return nil
	}
	c.keep = cfg
	return c.control(func(fd int) error { return setKeepAlive(fd, cfg) })
}

// errReset is a connection that was reset before package net could take it over: it
// asks the kernel for the addresses, which then knows the peer's no more.
var errReset = fmt.Errorf("the peer reset the connection: %w", syscall.ECONNRESET)

// plain duplicates the socket: package net takes over no other.
func (c *fileConn) plain() (net.Conn, error) {
	conn, err := net.FileConn(c.File)
	if err == nil && (conn.LocalAddr() == nil || conn.RemoteAddr() == nil) {
		conn.Close()
		err = errReset
	}
	if err != nil {
		return nil, err
	}
	c.Close()
	return conn, nil
}

func (c *fileConn) ended() bool  { return c.poll(unix.POLLRDHUP) }
func (c *fileConn) unread() bool { return c.poll(unix.POLLIN) }

// poll reports whether one of the events is there, or the end of the connection.
func (c *fileConn) poll(events int16) (there bool) {
	_ = c.control(func(fd int) error { // fails if it is closed
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, 0)
		there = n > 0
		return err
	})
	return there
}

// setKeepAlive sets keepalive as package net does.
func setKeepAlive(fd int, cfg net.KeepAliveConfig) error {
	set := func(level, option, value int) error {
		return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, level, option, value))
	}
	if !cfg.Enable {
		return set(unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0)
	}
	seconds := func(d time.Duration) int {
		if d == 0 {
			d = 15 * time.Second
		}
		return int((d + time.Second - 1) / time.Second)
	}
	count := cfg.Count
	if count == 0 {
		count = 9
	}
	err := set(unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	for _, o := range []struct {
		option, value int
		skip          bool
	}{
		{unix.TCP_KEEPIDLE, seconds(cfg.Idle), cfg.Idle < 0},
		{unix.TCP_KEEPINTVL, seconds(cfg.Interval), cfg.Interval < 0},
		{unix.TCP_KEEPCNT, count, cfg.Count < 0},
	} {
		if err == nil && !o.skip {
			err = set(unix.IPPROTO_TCP, o.option, o.value)
		}
	}
	return err
}

// prepareTCP sets the options that package net sets.
func prepareTCP(fd int, keep net.KeepAliveConfig) error {
	err := os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
	if err == nil && keep.Enable {
		err = setKeepAlive(fd, keep)
	}
	return err
}

// selfTries is how often a dial that has reached itself is tried again: a port
// of this host that nobody listens on may be chosen as the local port of the dial
// to it, and TCP then connects the socket to itself.
const selfTries = 3

// dialTCP connects, until ctx ends, from src if that is valid.
func dialTCP(ctx context.Context, src, dst netip.AddrPort, keep net.KeepAliveConfig) (tcpConn, error) {
	for range selfTries {
		c, err := dialFile(ctx, src, dst, keep)
		if err != nil {
			return nil, err
		}
		if c.local != c.remote || src.Port() != 0 {
			return c, nil
		}
		c.Close()
	}
	return nil, os.NewSyscallError("connect", unix.ECONNREFUSED)
}

func dialFile(ctx context.Context, src, dst netip.AddrPort, keep net.KeepAliveConfig) (*fileConn, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	family := unix.AF_INET6
	if dst.Addr().Unmap().Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	err = prepareTCP(fd, keep)
	if err == nil && src.IsValid() {
		err = os.NewSyscallError("bind", unix.Bind(fd, sockaddr(family, src)))
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "tcp")
	peer := sockaddr(family, dst)
	if err := connectFile(ctx, file, peer); err != nil {
		file.Close()
		return nil, err
	}
	if named, err := unix.Getpeername(fd); err == nil { // it may have been chosen by the kernel
		peer = named
	}
	return newFileConn(file, peer)
}

// connectFile connects a socket, and waits for it until ctx ends.
func connectFile(ctx context.Context, file *os.File, dst unix.Sockaddr) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = file.SetWriteDeadline(longAgo) })
	begun := false
	var connectErr error
	err = raw.Write(func(fd uintptr) bool {
		for {
			connectErr = unix.Connect(int(fd), dst)
			switch connectErr {
			case unix.EINPROGRESS:
				if !begun { // on the same host it is done as soon as it has begun
					begun = true
					continue
				}
				return false
			case unix.EALREADY:
				return false
			case unix.EINTR:
				continue
			case unix.EISCONN:
				connectErr = nil
			}
			return true
		}
	})
	switch {
	case !stop():
		return ctx.Err()
	case err != nil:
		return err
	}
	return os.NewSyscallError("connect", connectErr)
}

// A fileListener is a tcpListener that is an os.File.
type fileListener struct {
	file *os.File
	raw  syscall.RawConn
	keep net.KeepAliveConfig
}

// newTCPListener takes over a listener, also if it fails.
func newTCPListener(l *net.TCPListener, keep net.KeepAliveConfig) (tcpListener, error) {
	defer l.Close()
	file, err := l.File()
	if err != nil {
		return nil, fmt.Errorf("duplicate listener: %w", err)
	}
	raw, err := file.SyscallConn()
	if err == nil {
		// Linux's sockets have the options of the listener that they come from.
		if cerr := raw.Control(func(fd uintptr) { err = prepareTCP(int(fd), keep) }); err == nil {
			err = cerr
		}
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return &fileListener{file, raw, keep}, nil
}

func (l *fileListener) accept() (tcpConn, error) {
	var fd int
	var peer unix.Sockaddr
	var acceptErr error
	err := l.raw.Read(func(lfd uintptr) bool {
		for {
			fd, peer, acceptErr = unix.Accept4(int(lfd), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			switch acceptErr {
			case unix.EINTR, unix.ECONNABORTED: // the next may be there
				continue
			}
			return acceptErr != unix.EAGAIN
		}
	})
	switch {
	case err != nil: // the file is closed: it has no deadline
		return nil, net.ErrClosed
	case acceptErr != nil:
		return nil, os.NewSyscallError("accept4", acceptErr)
	}
	c, err := newFileConn(os.NewFile(uintptr(fd), "tcp"), peer)
	if err != nil {
		return nil, err
	}
	c.keep = l.keep
	return c, nil
}

func (l *fileListener) close() error { return l.file.Close() }
