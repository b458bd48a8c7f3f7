package rsocket

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/simqp"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// quiet reports whether the one who drives is in the queue's Wait, and sleeps through
// completions of sends.
func (s *Stream) quiet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asleep && !s.lingering && s.muted
}

// quietReader makes a connection on which a Read of x drives and sleeps through
// completions of sends, and no sweep and no
// nudge helps.
func quietReader(t *testing.T, cfg Config) (x, y *end) {
	l := newLab(t, simqp.Options{Transport: verbs.IWARP, Seed: 1, Delay: 20 * time.Millisecond})
	x, y = l.pairOf(cfg, Config{ReadBuffer: 1 << 20})
	sweeper.remove(x.Stream)
	sweeper.remove(y.Stream)
	x.mu.Lock()
	x.nudge.Stop()
	x.mu.Unlock()
	go x.Read(make([]byte, 1)) // until Release
	require.Eventually(t, x.quiet, 10*time.Second, time.Millisecond)
	return x, y
}

// A Write that finds the write ring full while the peer's window is open waits for
// completions of sends, also if who drives has been sleeping through them.
func TestWriteWakesQuietReader(t *testing.T) {
	for _, cfg := range []Config{{WriteBuffer: minBuffer}, {SendDepth: minDepth}} {
		x, y := quietReader(t, cfg)
		const size = 256 << 10 // the peer grants more from the beginning
		within(t, 20*time.Second, func() {
			_, err := x.Write(make([]byte, size))
			require.NoError(t, err)
		})
		_, err := io.CopyN(io.Discard, y, size)
		require.NoError(t, err)
	}
}

// What keepalive asks for is heard as well.
func TestProbeWakesQuietReader(t *testing.T) {
	x, _ := quietReader(t, Config{})
	x.mu.Lock()
	x.probe.outstanding = true
	x.probe.id = x.postEmpty(verbs.OpRead)
	x.mu.Unlock()
	require.Eventually(t, func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return !x.probe.outstanding
	}, 10*time.Second, time.Millisecond)
}
