package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// forget forgets everything.
func (m *carrierMemory) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of = nil
}

// A carrierDial is one dial with a memory, against what the runners do.
func carrierDial(t *testing.T, m *carrierMemory, key carrierKey, does map[string]error) (winner string, took time.Duration) {
	t.Helper()
	hangs := errors.New("hangs")
	var preferred []runner
	for _, name := range []string{"verbs", "software", "fallback"} {
		err, ok := does[name]
		preferred = append(preferred, runner{name, func(ctx context.Context) (net.Conn, error) {
			switch {
			case !ok:
				<-ctx.Done()
				return nil, hangs
			case err != nil:
				return nil, err
			}
			winner = name
			return &net.TCPConn{}, nil
		}})
	}
	began := time.Now()
	order := m.order(key, preferred)
	_, won, failed := cm.Race(t.Context(), 0, ways(order), discardConn)
	require.GreaterOrEqual(t, won, 0)
	m.won(key, preferred, order, won, failed)
	return winner, time.Since(began)
}

// What carried the last connection is tried first for a while, and what the peer has
// learnt meanwhile is found after it.
func TestCarrierRemembered(t *testing.T) {
	const ms = time.Millisecond
	unavailable := fmt.Errorf("no device: %w", errUnavailable)
	refused := error(syscall.ECONNREFUSED)
	synctest.Test(t, func(t *testing.T) {
		var m carrierMemory
		key := carrierKey{network: "tcp", address: "peer:80"}
		dial := func(does map[string]error, winner string, took time.Duration) {
			t.Helper()
			name, d := carrierDial(t, &m, key, does)
			require.Equal(t, winner, name)
			require.Equal(t, took, d)
		}
		waits := map[string]error{"verbs": unavailable, "fallback": nil}
		dial(waits, "fallback", 300*ms)
		dial(waits, "fallback", 0)
		other := key
		other.local = "10.0.0.1:0"
		name, took := carrierDial(t, &m, other, waits)
		require.Equal(t, "fallback", name)
		require.Equal(t, 300*ms, took, "another local address")

		// It learns RDMA. That is found when the time is over, however often it
		// is dialed before.
		learnt := map[string]error{"verbs": unavailable, "software": nil, "fallback": nil}
		for range 3 {
			time.Sleep(carrierTime / 4)
			dial(learnt, "fallback", 0)
		}
		time.Sleep(carrierTime / 4)
		dial(learnt, "software", 0)
		require.NotContains(t, m.of, key, "the first of what this machine has")

		// What is remembered fails, or hangs: the others are tried as before.
		dial(waits, "fallback", 300*ms)
		dial(map[string]error{"verbs": unavailable, "software": nil, "fallback": refused}, "software", 0)
		require.NotContains(t, m.of, key)
		dial(waits, "fallback", 300*ms)
		dial(map[string]error{"verbs": unavailable, "software": nil}, "software", 300*ms)
		dial(map[string]error{"verbs": unavailable, "software": nil}, "software", 0)

		// A RoCE device hangs towards a host without one.
		m.forget()
		dial(map[string]error{"software": nil}, "software", 300*ms)
		dial(map[string]error{"software": nil}, "software", 0)
		dial(map[string]error{"verbs": nil, "software": refused}, "verbs", 0)
		dial(map[string]error{"verbs": nil, "software": nil}, "verbs", 0)
	})
}

// Behind a dial that Fallback has carried, RDMA is tried again, though not behind each:
// a server that speaks RDMA takes TCP's connections, too, and serves none of them.
func TestFallbackRechecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m carrierMemory
		key := carrierKey{network: "tcp", address: "peer:80"}
		tries, answer := 0, error(syscall.ECONNREFUSED)
		rdma := []runner{{"software", func(context.Context) (net.Conn, error) {
			tries++
			return &net.TCPConn{}, answer
		}}}
		recheck := func() {
			m.recheck(key, rdma)
			synctest.Wait()
		}
		recheck()
		require.Zero(t, tries, "nothing is remembered")
		m.put(key, carrier{name: "fallback", when: time.Now()})
		recheck()
		recheck()
		require.Equal(t, 1, tries)
		require.Contains(t, m.of, key)
		time.Sleep(recheckEvery)
		answer = nil
		recheck()
		require.Equal(t, 2, tries)
		require.NotContains(t, m.of, key)
	})
}

// The memory is bounded, and forgets the oldest first.
func TestCarrierMemoryBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m carrierMemory
		key := func(n int) carrierKey { return carrierKey{address: fmt.Sprint(n)} }
		for n := range 3 * maxCarriers {
			time.Sleep(time.Millisecond)
			m.put(key(n), carrier{name: "fallback", when: time.Now()})
			require.LessOrEqual(t, len(m.of), maxCarriers)
		}
		require.NotContains(t, m.of, key(2*maxCarriers-1))
		require.Contains(t, m.of, key(2*maxCarriers))
	})
}

// A plain server that waits for more costs FallbackDelay once, and not with every
// dial.
func TestFallbackRemembered(t *testing.T) {
	carriers.forget()
	t.Cleanup(carriers.forget)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go echoLater(c)
		}
	}()
	d := Dialer{Provider: Software, FallbackDelay: 2 * time.Second, Fallback: (&net.Dialer{}).DialContext, Timeout: time.Minute}
	for n := range 3 {
		begin := time.Now()
		c, err := d.Dial("tcp", l.Addr().String())
		took := time.Since(begin)
		require.NoError(t, err)
		require.Equal(t, plainName, nameOf(c))
		require.NoError(t, c.Close())
		if n == 0 {
			require.GreaterOrEqual(t, took, d.FallbackDelay)
		} else {
			require.Less(t, took, d.FallbackDelay)
		}
	}
}
