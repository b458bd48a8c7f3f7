package rdmanet

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
)

// autoSlack is how much longer than FallbackDelay and the way of the one that wins
// a dial with Auto may take.
const autoSlack = 500 * time.Millisecond

// autoDials is how often Auto dials each listener. The median counts: a machine may
// be busy.
const autoDials = 5

// An autoCase is what a dial with Auto may meet.
type autoCase struct {
	name     string
	listen   func(t *testing.T, on target) (address string)
	fallback bool
	winner   func(on target) string // "" for nobody
}

const (
	plainName  = "plain TCP"
	plainWaits = "plain TCP that waits"
)

// siwReply is how long siw waits for the answer to a connect request. A connect that
// is abandoned before keeps its queue pair so long: the kernel lets nobody destroy it.
const siwReply = 10 * time.Second

func autoCases() []autoCase {
	rdma := func(lc ListenConfig) func(*testing.T, target) string {
		return func(t *testing.T, on target) string {
			l, err := lc.Listen(t.Context(), "rdma", port0(on.addr4))
			require.NoError(t, err)
			t.Cleanup(func() { l.Close() })
			go echoServer(l)
			return l.Addr().String()
		}
	}
	plain := func(serve func(net.Conn)) func(*testing.T, target) string {
		return func(t *testing.T, on target) string {
			l, err := net.Listen("tcp", port0(on.addr4))
			require.NoError(t, err)
			t.Cleanup(func() { l.Close() })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					go serve(c)
				}
			}()
			return l.Addr().String()
		}
	}
	device := func(on target) string { return on.provider.String() }
	return []autoCase{
		{"Verbs", rdma(ListenConfig{Provider: Verbs}), false, device},
		{"Software", rdma(ListenConfig{Provider: Software}), false, func(on target) string {
			if on.iwarp {
				return device(on) // which speaks to a software NIC as to its like
			}
			return Software.String()
		}},
		{"Auto", rdma(ListenConfig{}), false, device},
		{"Auto, with Fallback", rdma(ListenConfig{}), true, device},
		{"Auto, AcceptPlain", rdma(ListenConfig{AcceptPlain: true}), true, device},
		{"plain TCP that closes", plain(echoPlain), true, func(target) string { return plainName }},
		{plainWaits, plain(echoLater), true, func(target) string { return plainName }},
		{"plain TCP, no Fallback", plain(echoPlain), false, func(target) string { return "" }},
		{"nobody", nobody, false, func(target) string { return "" }},
		{"nobody, with Fallback", nobody, true, func(target) string { return "" }},
	}
}

// nobody is an address at which nothing listens.
func nobody(_ *testing.T, on target) string { return on.addr4.String() + ":9" }

// echoLater is echoPlain for a server that waits for more of what it does not
// understand.
func echoLater(c net.Conn) {
	b := make([]byte, 3)
	if n, err := c.Read(b); err == nil && string(b[:n]) != "MPA" {
		if _, err := c.Write(b[:n]); err == nil {
			echoPlain(c)
			return
		}
	}
	for { // until the other end has gone
		if _, err := c.Read(b); err != nil {
			c.Close()
			return
		}
	}
}

// TestAutoDial: against listeners of each kind, who wins, after how long, and that
// nothing of the losers is left.
func TestAutoDial(t *testing.T) { eachTarget(t, testAutoDial) }

func testAutoDial(t *testing.T, on target) {
	if on.provider == Software {
		if _, err := manager(t.Context(), Verbs); err == nil {
			t.Skip("this machine has a device")
		}
	}
	l, err := Listen("rdma", port0(on.addr4))
	require.NoError(t, err)
	go echoServer(l)
	warm, err := DialTimeout("rdma", l.Addr().String(), 30*time.Second)
	require.NoError(t, err)
	require.NoError(t, errors.Join(echoOnce(warm, 20_000, 1), warm.Close(), l.Close()))
	letGo := func() { // of memory, which the kernel counts and which is kept for a while
		if on.provider == Verbs {
			time.Sleep(5 * time.Second)
		}
	}
	letGo()
	atFirst := settled(t, on)

	table := &bytes.Buffer{}
	w := tabwriter.NewWriter(table, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "listener\twinner\tthe winner alone\tAuto, median of %d\tslowest\tmay take\tnothing left after\n", autoDials)
	defer func() {
		w.Flush()
		t.Logf("Auto on %s:\n%s", on.device, table)
	}()
	for _, tc := range autoCases() {
		if tc.name == "Verbs" && on.provider != Verbs {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			address := tc.listen(t, on)
			winner := tc.winner(on)
			d := Dialer{Timeout: 30 * time.Second}
			if tc.fallback {
				d.Fallback = (&net.Dialer{}).DialContext
			}
			late := 0
			auto := func() time.Duration {
				carriers.forget() // each dial without what the last has learnt
				begin := time.Now()
				c, err := d.Dial("rdma", address)
				took := time.Since(begin)
				if winner == "" {
					require.Error(t, err)
					if tc.name != "plain TCP, no Fallback" {
						require.ErrorIs(t, err, syscall.ECONNREFUSED)
						require.False(t, requireOpError(t, err, "dial").Timeout())
					}
					return took
				}
				require.NoError(t, err)
				if name := nameOf(c); name != winner && winner != plainName && took > cm.DefaultFallbackDelay {
					// A busy machine may be slower than the others' head start.
					t.Logf("%s won after %v", name, took)
					late++
				} else {
					require.Equal(t, winner, name)
				}
				require.NoError(t, echoOnce(c, 20_000, 1))
				require.NoError(t, c.Close())
				return took
			}
			auto()
			before := settled(t, on)
			var own, took []time.Duration
			for range autoDials {
				own = append(own, ownTime(t, on, winner, address))
				took = append(took, auto())
			}
			require.LessOrEqual(t, late, autoDials/2, "dials that %s did not win", winner)
			slices.Sort(own)
			slices.Sort(took)
			bound := own[autoDials/2] + cm.DefaultFallbackDelay + autoSlack
			round := func(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
			begin := time.Now()
			defer func() {
				fmt.Fprintf(w, "%s\t%s\t%v\t%v\t%v\t%v\t%v\n", tc.name, winner,
					round(own[autoDials/2]), round(took[autoDials/2]), round(took[autoDials-1]), round(bound), round(time.Since(begin)))
			}()
			require.Less(t, took[autoDials/2], bound, "%v, of which the winner needs %v", took, own)
			limit := 5 * time.Second
			if on.iwarp && on.provider == Verbs && tc.name == plainWaits {
				limit += siwReply
			}
			requireNoLeakAfter(t, on, before, limit)
		})
	}
	letGo()
	requireNoLeak(t, on, atFirst)
}

// nameOf says what carries a connection.
func nameOf(c net.Conn) string {
	if info, ok := InfoOf(c); ok {
		return info.Provider.String()
	}
	return plainName
}

// ownTime is how long the winner takes without a race, or all of them, one after
// the other, where nobody wins.
func ownTime(t *testing.T, on target, winner, address string) time.Duration {
	t.Helper()
	dial := func(p Provider) func() (net.Conn, error) {
		return func() (net.Conn, error) {
			return (&Dialer{Provider: p, Timeout: 30 * time.Second}).Dial("rdma", address)
		}
	}
	dials := map[string]func() (net.Conn, error){
		Verbs.String(): dial(Verbs), Software.String(): dial(Software),
		plainName: func() (net.Conn, error) { return net.DialTimeout("tcp", address, 30*time.Second) },
	}
	if winner == "" {
		delete(dials, plainName)
		if on.provider != Verbs {
			delete(dials, Verbs.String())
		}
	} else {
		dials = map[string]func() (net.Conn, error){winner: dials[winner]}
	}
	begin := time.Now()
	for _, dial := range dials {
		c, err := dial()
		if winner == "" {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err)
		defer c.Close()
	}
	return time.Since(begin)
}
