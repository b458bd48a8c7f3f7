//go:build linux && cgo

package rdmacore

import (
	"encoding/binary"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// wakeTime is how long a thread of this process that sleeps, with its processor,
// takes to be woken by one that goes on running, as devices do. It is found out
// once, when somebody first asks, and in the background.
var wakeTime struct {
	once  sync.Once
	nanos atomic.Int64
}

func (cq *completionQueue) WakeTime() time.Duration {
	wakeTime.once.Do(func() {
		go func() { wakeTime.nanos.Store(int64(measureWake())) }()
	})
	return time.Duration(wakeTime.nanos.Load())
}

const (
	wakeTurns = 9
	wakePause = 200 * time.Microsecond // in which the processor falls asleep
	wakeBound = 2 * time.Millisecond   // of a turn: the machine is busy with other things
)

// measureWake is the first quartile of some turns, since what disturbs them only makes
// them longer; 0 if there is no descriptor left.
func measureWake() time.Duration {
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_SEMAPHORE)
	if err != nil {
		return 0
	}
	defer unix.Close(bell)
	var turn atomic.Int32 // how often the sleeper has been woken
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range wakeTurns {
			awaitBell(bell)
			turn.Add(1)
		}
	}()
	took := make([]time.Duration, wakeTurns)
	for i := range took {
		time.Sleep(wakePause)
		start := time.Now()
		ring(bell)
		for took[i] == 0 || turn.Load() <= int32(i) && took[i] < wakeBound {
			runtime.Gosched() // the sleeper may need this very processor of Go's
			took[i] = time.Since(start)
		}
	}
	<-done
	slices.Sort(took)
	return took[wakeTurns/4]
}

func ring(bell int) {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(bell, one[:]) // an eventfd of our own takes it
}

// awaitBell returns once for each ring.
func awaitBell(bell int) {
	var count [8]byte
	for {
		if _, err := unix.Read(bell, count[:]); err != unix.EINTR {
			return
		}
	}
}
