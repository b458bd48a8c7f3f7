package rdmanet

import (
	"net"
	"net/netip"

	"github.com/rdmanet/rdmanet/internal/rsocket"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

// Info tells what carries a connection.
type Info struct {
	Provider    Provider   // Verbs or Software
	Device      string     // the device's name, such as "mlx5_0" or "rxe0"
	Port        int        // the port of the device, from 1; 0 where it has none
	Transport   string     // "InfiniBand", "RoCE" or "iWARP"
	GID         netip.Addr // the port's GID; invalid on iWARP
	ReadBuffer  int        // bytes of registered memory that the peer writes into
	WriteBuffer int        // bytes of registered memory that Write writes into
}

// Info tells what carries the connection.
func (c *Conn) Info() Info { return c.info }

// InfoOf tells what carries c. It reports false if c is not a *Conn, as those of
// Dialer.Fallback and ListenConfig.AcceptPlain are none, and looks through wrappers
// that have a NetConn method, such as *tls.Conn.
func InfoOf(c net.Conn) (Info, bool) {
	for {
		switch v := c.(type) {
		case *Conn:
			return v.Info(), true
		case interface{ NetConn() net.Conn }:
			c = v.NetConn()
		default:
			return Info{}, false
		}
	}
}

func infoOf(dev verbs.DeviceInfo, port verbs.PortInfo, s *rsocket.Stream) Info {
	info := Info{
		Provider:    Verbs,
		Device:      dev.Name,
		Port:        int(port.Port),
		Transport:   dev.Transport.String(),
		GID:         port.GID,
		ReadBuffer:  s.ReadBuffer(),
		WriteBuffer: s.WriteBuffer(),
	}
	if dev.Provider == "software" {
		info.Provider = Software
	}
	return info
}
