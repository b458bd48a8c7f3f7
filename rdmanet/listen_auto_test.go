package rdmanet

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/cm/scripted"
	"github.com/rdmanet/rdmanet/internal/rdmacore"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

func autoRequest(host string) cm.ListenRequest {
	return cm.ListenRequest{Network: cm.IPv4, Host: host, NewEndpoint: func() cm.Endpoint { return newEndpoint(endpointConfig{}) }}
}

// listenAuto listens with the software NIC and devices that do what a script says.
func listenAuto(t *testing.T, ctx context.Context, devices *scripted.Provider, host string) (acceptor, error) {
	t.Helper()
	software, err := manager(t.Context(), Software)
	require.NoError(t, err)
	l, err := listenBoth(ctx, software, cm.NewManager(devices), autoRequest(host))
	if err == nil {
		t.Cleanup(func() { l.Close() })
	}
	return l, err
}

// TestAutoListenLookup: an address that is no device's is the software NIC's alone;
// that it cannot be found out is an error.
func TestAutoListenLookup(t *testing.T) {
	for name, tc := range map[string]struct {
		script scripted.Script
		err    error // of Listen; nil: the software NIC listens alone
	}{
		"no device":              {scripted.Script{scripted.Bind: {scripted.Fail(syscall.ENODEV)}}, nil},
		"no device behind it":    {scripted.Script{scripted.Device: {scripted.Fail(syscall.ENODEV)}}, nil},
		"no address of devices'": {scripted.Script{scripted.Bind: {scripted.Fail(syscall.EADDRNOTAVAIL)}}, nil},
		"family":                 {scripted.Script{scripted.Bind: {scripted.Fail(syscall.EAFNOSUPPORT)}}, nil},
		"no permission": {scripted.Script{scripted.NewID: {func(*scripted.ID) error {
			return &rdmacore.UnavailableError{Reason: "no permission", Err: syscall.EACCES}
		}}}, nil},
		"no descriptors":          {scripted.Script{scripted.NewID: {scripted.Fail(syscall.EMFILE)}}, syscall.EMFILE},
		"no descriptors to bind":  {scripted.Script{scripted.Bind: {scripted.Fail(syscall.ENFILE)}}, syscall.ENFILE},
		"no memory":               {scripted.Script{scripted.Bind: {scripted.Fail(syscall.ENOMEM)}}, syscall.ENOMEM},
		"no memory for a device":  {scripted.Script{scripted.Device: {scripted.Fail(syscall.ENOMEM)}}, syscall.ENOMEM},
		"something else":          {scripted.Script{scripted.Bind: {scripted.Fail(syscall.EIO)}}, syscall.EIO},
		"unavailable for a while": {scripted.Script{scripted.NewID: {func(*scripted.ID) error { return &rdmacore.UnavailableError{Err: syscall.EMFILE} }}}, syscall.EMFILE},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := listenAuto(t, t.Context(), scripted.NewProvider(tc.script), "127.0.0.1")
			if tc.err != nil {
				require.ErrorIs(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.IsType(t, &cm.Listener{}, l)
		})
	}
}

// TestAutoListenContext: so is a context that ends during the look-up.
func TestAutoListenContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	returned := make(chan struct{})
	p := scripted.NewProvider(scripted.Script{scripted.Bind: {func(*scripted.ID) error {
		cancel()
		<-returned
		return syscall.EINTR
	}}})
	_, err := listenAuto(t, ctx, p, "127.0.0.1")
	close(returned)
	require.ErrorIs(t, err, context.Canceled)
}

// TestListenApartLookup: the same for each address where devices listen one by one.
func TestListenApartLookup(t *testing.T) {
	for _, tc := range []struct{ errno, want syscall.Errno }{{syscall.ENODEV, 0}, {syscall.EADDRNOTAVAIL, 0}, {syscall.EMFILE, syscall.EMFILE}, {syscall.ENOMEM, syscall.ENOMEM}} {
		p := scripted.NewProvider(scripted.Script{scripted.Bind: {scripted.Fail(tc.errno)}})
		software, err := manager(t.Context(), Software)
		require.NoError(t, err)
		tcp, err := software.Listen(t.Context(), autoRequest("127.0.0.1"))
		require.NoError(t, err)
		ips, err := interfaceAddrs(cm.IPv4)
		require.NoError(t, err)
		l, err := listenApart(t.Context(), tcp, cm.NewManager(p), autoRequest(""))
		if tc.want == 0 || len(ips) == 0 {
			require.NoError(t, err)
			require.NoError(t, l.Close())
			continue
		}
		require.ErrorIs(t, err, tc.want)
		require.ErrorIs(t, tcp.Close(), net.ErrClosed, "it is closed with the rest")
	}
}

// TestScarceIsNotUnavailable: a provider that cannot be opened for a while is not one
// that this machine does not have.
func TestScarceIsNotUnavailable(t *testing.T) {
	passing := &providerError{Verbs, &rdmacore.UnavailableError{Reason: "too many open files", Err: syscall.EMFILE}}
	require.False(t, noDevice(passing))
	require.True(t, passing.Temporary())
	require.NotErrorIs(t, passing, errUnavailable)
	lasting := &unavailableError{providerError{Verbs, &rdmacore.UnavailableError{Reason: "none", Err: syscall.ENODEV}}}
	require.True(t, noDevice(lasting))
	require.False(t, lasting.Temporary())
	require.ErrorIs(t, lasting, errUnavailable)
}

// TestAutoListenerLosesDevice: Accept says once that the device has gone, and goes on.
func TestAutoListenerLosesDevice(t *testing.T) {
	p := scripted.NewProvider()
	l, err := listenAuto(t, t.Context(), p, "127.0.0.1")
	require.NoError(t, err)
	require.IsType(t, &merged{}, l)
	require.Equal(t, verbs.RoCE, p.Dev.Info().Transport)
	ids := p.IDs()
	ids[len(ids)-1].Deliver(cm.Event{Type: cm.DeviceRemoval})

	require.NoError(t, l.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = l.Accept()
	require.ErrorIs(t, err, syscall.ENODEV)
	err = &net.OpError{Op: opAccept, Net: netName, Err: publicError(err)}
	t.Log(err)
	require.True(t, err.(*net.OpError).Temporary())
	require.True(t, errors.As(err, new(*StageError)))

	go func() {
		c, err := (&Dialer{Provider: Software, Timeout: 20 * time.Second}).Dial("rdma", l.Addr().String())
		if err != nil {
			t.Errorf("dial: %v", err)
			return
		}
		c.Close()
	}()
	c, err := l.Accept()
	require.NoError(t, err)
	c.Discard()
}
