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
	f := failure{stage: stage, call: call, errno: errnoOf(err), err: err, dst: Addr{AddrPort: ap}}
	return &StageError{Stage: stage, Call: call, Addr: f.dst, Errno: f.errno, Err: err, Hint: f.hint()}
}
