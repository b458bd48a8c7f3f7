package cm

import (
	"errors"
	"syscall"
	"time"
)

// rejectReasons are the reject reasons of the InfiniBand communication manager
// (InfiniBand Architecture, volume 1, 12.6.7.2), which come from peers with
// InfiniBand and RoCE: in words, as an errno, and whether the next attempt, with
// identifiers and a queue pair of its own, is likely to pass. What has no errno of
// its own is a refusal, ECONNREFUSED.
//
//	1, 2, 3   the peer lacks resources: temporary, EAGAIN. The caller decides
//	          whether to wait, or to go to another address.
//	4         a part of the handshake was lost: nobody answers, ETIMEDOUT
//	10, 30    the peer still knows a queue pair or an identifier of ours by a
//	          connection that has gone: temporary, EAGAIN; tried again
var rejectReasons = [...]struct {
	text   string
	errno  syscall.Errno
	passes bool
}{
	1:  {text: "no queue pair available", errno: syscall.EAGAIN},
	2:  {text: "no end-to-end context available", errno: syscall.EAGAIN},
	3:  {text: "no resources available", errno: syscall.EAGAIN},
	4:  {text: "the peer's communication manager timed out", errno: syscall.ETIMEDOUT},
	5:  {text: "unsupported request"},
	6:  {text: "invalid communication ID"},
	7:  {text: "invalid communication instance"},
	8:  {text: "nobody listens there"},
	9:  {text: "invalid transport service type"},
	10: {text: "stale connection, which passes by itself: try again", errno: syscall.EAGAIN, passes: true},
	11: {text: "reliable datagram domain does not exist"},
	12: {text: "primary port GID rejected"},
	13: {text: "primary port LID rejected"},
	14: {text: "invalid primary service level"},
	15: {text: "invalid primary traffic class"},
	16: {text: "invalid primary hop limit"},
	17: {text: "invalid primary packet rate"},
	18: {text: "alternate port GID rejected"},
	19: {text: "alternate port LID rejected"},
	20: {text: "invalid alternate service level"},
	21: {text: "invalid alternate traffic class"},
	22: {text: "invalid alternate hop limit"},
	23: {text: "invalid alternate packet rate"},
	24: {text: "port and communication manager redirected"},
	25: {text: "port redirected"},
	26: {text: "invalid path MTU"},
	27: {text: "insufficient responder resources"},
	28: {text: "rejected by the application"},
	29: {text: "receiver-not-ready retry count rejected"},
	30: {text: "duplicate local communication ID, which passes by itself: try again", errno: syscall.EAGAIN, passes: true},
	31: {text: "invalid class version"},
	32: {text: "invalid primary flow label"},
	33: {text: "invalid alternate flow label"},
	35: {text: "vendor option not supported"},
}

// rejectReason is the reject reason of an event's status in words.
func rejectReason(status int) string {
	if status > 0 && status < len(rejectReasons) && rejectReasons[status].text != "" {
		return rejectReasons[status].text
	}
	return "unknown"
}

// rejectErrno is what a reject stands for. iWARP has no reasons: its status is a
// negated errno that says how the peer closed TCP, which is a refusal.
func rejectErrno(status int) syscall.Errno {
	if status > 0 && status < len(rejectReasons) && rejectReasons[status].errno != 0 {
		return rejectReasons[status].errno
	}
	return syscall.ECONNREFUSED
}

// passes reports whether an attempt failed by a reject that passes by itself.
func passes(err error) bool {
	var e *StageError
	return errors.As(err, &e) && e.Event == Rejected && e.Status > 0 && e.Status < len(rejectReasons) && rejectReasons[e.Status].passes
}

// The pauses before another attempt after such a reject: each is twice the last.
const (
	firstRejectPause = 50 * time.Millisecond
	maxRejectPause   = time.Second
)
