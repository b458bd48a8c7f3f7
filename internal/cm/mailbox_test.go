package cm

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever comes while handlers change is delivered once and in order.
func TestMailboxLosesNothing(t *testing.T) {
	const events = 10000
	var m Mailbox
	var got []int
	handler := func(ev Event) { got = append(got, ev.Status) }
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range events {
			require.True(t, m.Deliver(Event{Status: i}))
		}
	})
	for i := range 1000 {
		if i%2 == 0 {
			m.Handle(handler)
		} else {
			m.Handle(nil)
		}
	}
	wg.Wait()
	m.Handle(handler)
	require.Len(t, got, events)
	for i, n := range got {
		require.Equal(t, i, n)
	}
}

func TestMailboxClosed(t *testing.T) {
	var m Mailbox
	m.Deliver(Event{Type: AddrChange})
	m.Deliver(Event{Type: ConnectRequest, Request: fakeID{}})
	require.Equal(t, []ID{fakeID{}}, m.Close())
	require.False(t, m.Deliver(Event{}))
	m.Handle(func(Event) { t.Error("delivered after Close") })
	require.False(t, m.Deliver(Event{}))
	require.Empty(t, m.Close())
}

type fakeID struct{ ID }
