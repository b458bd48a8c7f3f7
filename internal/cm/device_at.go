package cm

import (
	"context"
	"net/netip"

	"github.com/rdmanet/rdmanet/internal/verbs"
)

// DeviceAt tells which device a local address belongs to. It fails with ENODEV
// or EADDRNOTAVAIL where that is none.
func (m *Manager) DeviceAt(ctx context.Context, ip netip.Addr) (verbs.DeviceInfo, error) {
	addr := netip.AddrPortFrom(ip, 0)
	info, err, left := await(ctx, func() (verbs.DeviceInfo, error) {
		id, err := m.provider.NewID()
		if err != nil {
			return verbs.DeviceInfo{}, bindFailed(addr, StageOpen, callCreateID, err)
		}
		defer id.Destroy()
		if err := id.Bind(Addr{AddrPort: addr}, true); err != nil {
			return verbs.DeviceInfo{}, bindFailed(addr, StageBind, callBindAddr, err)
		}
		dev, err := id.Device()
		if err != nil {
			return verbs.DeviceInfo{}, bindFailed(addr, StageBind, callBindAddr, err)
		}
		return dev.Info(), nil
	}, func(verbs.DeviceInfo) {})
	if left {
		err = &StageError{Stage: StageBind, Call: callBindAddr, Addr: Addr{AddrPort: addr}, Err: newContextError(ctx)}
	}
	return info, err
}

// bindFailed is the error of a call about a local address.
func bindFailed(ap netip.AddrPort, stage Stage, call string, err error) error {
	addr, errno := Addr{AddrPort: ap}, errnoOf(err)
	return &StageError{Stage: stage, Call: call, Addr: addr, Errno: errno, Err: err,
		Hint: hint(stage, errno, 0, addr, Addr{})}
}
