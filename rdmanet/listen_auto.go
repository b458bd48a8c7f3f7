package rdmanet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/rdmacore"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// portTries is how often a port that TCP chose is given back because RDMA has
// given it to somebody else.
const portTries = 16

// listenProviders listens with one provider, or with devices and the software
// NIC on the same port.
//
// The software NIC's port is one of TCP's; that of a RoCE or InfiniBand device
// is one of a number space of its own; an iWARP device's is one of TCP's again,
// and collides with the software NIC's. So:
//
//	the address of           who listens
//	no RDMA device           the software NIC
//	a RoCE or IB device      the software NIC, then the device on that port
//	an iWARP device          the device, which software NICs can dial, too; or, for
//	                         peers without RDMA, the software NIC, which devices
//	                         can dial, too
//	all interfaces           the software NIC, then all devices, and those that
//	                         come later; if iWARP devices are among them, which
//	                         fail together, each RoCE and InfiniBand address by
//	                         itself, and the software NIC for iWARP's
//
// That there is no device is a reason to do without; that it could not be found out,
// for want of descriptors or memory or time, is not: a listener that has fewer ways in
// than this host has would not be noticed.
func listenProviders(ctx context.Context, providers []Provider, r cm.ListenRequest) (acceptor, error) {
	devices, err := manager(ctx, providers[0])
	if len(providers) == 1 {
		if err != nil {
			return nil, err
		}
		return listenAlone(ctx, devices, r)
	}
	software, softwareErr := manager(ctx, providers[1])
	switch {
	case ctx.Err() != nil && errors.Join(err, softwareErr) != nil:
		return nil, cm.Ended(ctx, cm.StageOpen)
	case err != nil && (softwareErr != nil || !noDevice(err)):
		return nil, err
	case softwareErr != nil && !errors.Is(softwareErr, errUnavailable):
		return nil, softwareErr
	case softwareErr != nil:
		return listenAlone(ctx, devices, r)
	case err != nil:
		return listenAlone(ctx, software, r)
	}
	for try := 1; ; try++ {
		l, err := listenBoth(ctx, software, devices, r)
		anyPort := r.Service == "" || r.Service == "0"
		if err == nil || !anyPort || !errors.Is(err, syscall.EADDRINUSE) || try == portTries {
			return l, err
		}
	}
}

func listenAlone(ctx context.Context, m *cm.Manager, r cm.ListenRequest) (acceptor, error) {
	l, err := m.Listen(ctx, r)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// listenBoth listens with the software NIC and with the devices on its port.
func listenBoth(ctx context.Context, software, devices *cm.Manager, r cm.ListenRequest) (acceptor, error) {
	tcp, err := software.Listen(ctx, r)
	if err != nil {
		return nil, err
	}
	addr := tcp.Addr()
	port := strconv.Itoa(int(addr.Port()))
	if !addr.Addr().IsUnspecified() {
		dev, err := devices.DeviceAt(ctx, addr.Addr())
		switch {
		case noDeviceAt(err):
			return tcp, nil
		case err != nil:
			tcp.Close()
			return nil, err
		case dev.Transport == verbs.IWARP:
			if r.Plain {
				return tcp, nil
			}
			tcp.Close()
			return listenAlone(ctx, devices, r)
		}
	}
	onPort := r
	onPort.Service = port
	rdma, err := devices.Listen(ctx, onPort)
	switch {
	case err == nil:
		return merge(addr, tcp, rdma), nil
	case noDevice(err): // it has gone just now
		return tcp, nil
	case addr.Addr().IsUnspecified() && isStage(err, cm.StageListen) && !scarce(err) && ctx.Err() == nil:
		// Devices that share TCP's ports are among them.
		return listenApart(ctx, tcp, devices, onPort)
	}
	tcp.Close()
	return nil, err
}

// noDevice reports whether an error says that this host has no RDMA device, or
// none of which this program may know.
func noDevice(err error) bool {
	return errors.Is(err, errUnavailable) || errors.Is(err, syscall.ENODEV) ||
		errors.As(err, new(*rdmacore.UnavailableError)) && !scarce(err)
}

// noDeviceAt reports whether an error says that an address is none of an RDMA device.
func noDeviceAt(err error) bool {
	return noDevice(err) || errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
}

// listenApart listens on the address of each device that does not share TCP's
// ports, beside a software NIC that listens on all.
func listenApart(ctx context.Context, tcp *cm.Listener, devices *cm.Manager, r cm.ListenRequest) (acceptor, error) {
	parts := []*cm.Listener{tcp}
	fail := func(err error) (acceptor, error) {
		for _, l := range parts {
			l.Close()
		}
		return nil, err
	}
	ips, err := interfaceAddrs(r.Network)
	if err != nil {
		return fail(err)
	}
	for _, ip := range ips {
		dev, err := devices.DeviceAt(ctx, ip)
		if err == nil && dev.Transport == verbs.IWARP {
			continue
		}
		var l *cm.Listener
		if err == nil {
			r.Host = ip.String()
			l, err = devices.Listen(ctx, r)
		}
		switch {
		case noDeviceAt(err):
		case err != nil:
			return fail(err)
		default:
			parts = append(parts, l)
		}
	}
	return merge(tcp.Addr(), parts...), nil
}

// interfaceAddrs are this host's addresses of a network, loopback excepted.
func interfaceAddrs(network cm.Network) ([]netip.Addr, error) {
	ifaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var ips []netip.Addr
	for _, iface := range ifaces {
		if iface.Flags&net.FlagUp == 0 || iface.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, err := iface.Addrs()
		if err != nil {
			return nil, err
		}
		for _, a := range addrs {
			ipnet, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			ip, ok := netip.AddrFromSlice(ipnet.IP)
			ip = ip.Unmap()
			if !ok || network == cm.IPv4 && !ip.Is4() || network == cm.IPv6 && !ip.Is6() {
				continue
			}
			if ip.IsLinkLocalUnicast() && ip.Is6() {
				ip = ip.WithZone(iface.Name)
			}
			ips = append(ips, ip)
		}
	}
	return ips, nil
}

func isStage(err error, stage cm.Stage) bool {
	var e *cm.StageError
	return errors.As(err, &e) && e.Stage == stage
}
