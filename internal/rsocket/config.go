package rsocket

import (
	"fmt"
	"net"
	"runtime"
	"time"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// Config says how a Stream is made. The zero value is good.
type Config struct {
	// ReadBuffer and WriteBuffer are the sizes of the rings, in bytes: what
	// the peer may send before it is read, and what may be on its way to the
	// peer. 0 is for the default; others are rounded up to 16 KiB, and at
	// most 1 GiB.
	ReadBuffer, WriteBuffer int

	// SendDepth and RecvDepth are the depths of the queue pair's queues, in
	// work requests. 0 is for the default; the device's limit shrinks them.
	SendDepth, RecvDepth int

	// MaxInline is up to how many bytes a write is handed to the device as
	// part of the work request. 0 is for the default, less for none.
	MaxInline int

	// Spin is how long a wait polls before it sleeps, while that mostly finds
	// something. 0 is for the default, less for none; with GOMAXPROCS 1
	// there is none. On a device that works in its caller, where each look
	// is a system call and the peer may want this very processor, the
	// default is none.
	Spin time.Duration

	// Acceptor says that this side accepted the connection.
	Acceptor bool

	// KeepAlive is as in package net: if enabled, a peer that is silent for
	// Idle is probed, and is given up when it has not answered for Interval
	// times Count. 0 and less are for net's defaults, 15 s, 15 s and 9.
	KeepAlive net.KeepAliveConfig

	// BigEndian makes the stream behave as on a big-endian host. It is for
	// tests.
	BigEndian bool
}

// The defaults and bounds of Config. docs/design.md says how they were chosen.
const (
	defaultBuffer = 512 << 10

	// callerReadBuffer is larger, since there a message takes up to a quarter
	// of it and costs a system call; its memory is not locked.
	callerReadBuffer = 1 << 20
	minBuffer        = 16 << 10
	maxBuffer        = 1 << 30
	bufferUnit       = 16 << 10 // four pages, so that half of a ring is whole pages

	defaultSendDepth = 256
	defaultRecvDepth = 384
	minDepth         = 32
	maxDepth         = 1 << 14

	defaultInline = 64
	maxInline     = 256

	// defaultSpin is somewhat more than a round trip between two hosts
	// takes, and about what going to sleep and being woken costs.
	defaultSpin = 20 * time.Microsecond

	// spareReceives are posted beyond those that the peer is told of, for
	// its grants and control messages, and because receives are posted again
	// only in batches of repostBatch.
	spareReceives = 32
	repostBatch   = 16

	defaultKeepAliveTime  = 15 * time.Second
	defaultKeepAliveCount = 9
)

// resolve fills in the defaults and fits the result to a device.
func (c *Config) resolve(dev verbs.DeviceInfo) error {
	if c.ReadBuffer <= 0 && dev.CallerDriven {
		c.ReadBuffer = callerReadBuffer
	}
	c.ReadBuffer = fitBuffer(c.ReadBuffer)
	c.WriteBuffer = fitBuffer(c.WriteBuffer)
	limit := maxDepth
	if dev.MaxQPWR > 0 {
		limit = min(limit, dev.MaxQPWR)
	}
	if dev.MaxCQE > 0 {
		limit = min(limit, dev.MaxCQE/2)
	}
	if limit < minDepth+spareReceives {
		return fmt.Errorf("device %s takes %d work requests in a queue, and a stream needs %d", dev.Name, limit, minDepth+spareReceives)
	}
	c.SendDepth = fitDepth(c.SendDepth, defaultSendDepth, limit)
	c.RecvDepth = fitDepth(c.RecvDepth, defaultRecvDepth, limit-spareReceives)
	switch {
	case c.MaxInline == 0:
		c.MaxInline = defaultInline
	case c.MaxInline < 0:
		c.MaxInline = 0
	}
	c.MaxInline = min(c.MaxInline, maxInline)
	switch {
	case runtime.GOMAXPROCS(0) == 1 || c.Spin < 0 || c.Spin == 0 && dev.CallerDriven:
		c.Spin = 0
	case c.Spin == 0:
		c.Spin = defaultSpin
	}
	if c.KeepAlive.Idle <= 0 {
		c.KeepAlive.Idle = defaultKeepAliveTime
	}
	if c.KeepAlive.Interval <= 0 {
		c.KeepAlive.Interval = defaultKeepAliveTime
	}
	if c.KeepAlive.Count <= 0 {
		c.KeepAlive.Count = defaultKeepAliveCount
	}
	return nil
}

func fitBuffer(n int) int {
	if n <= 0 {
		return defaultBuffer
	}
	n = min(max(n, minBuffer), maxBuffer)
	return (n + bufferUnit - 1) / bufferUnit * bufferUnit
}

func fitDepth(n, def, limit int) int {
	if n <= 0 {
		n = def
	}
	return min(max(n, minDepth), limit)
}
