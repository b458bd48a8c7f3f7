package rdmanet

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"
)

// fakeResolver is Go's own resolver, asking a name server in this process that
// knows one name's IPv4 addresses and gives them in their order.
func fakeResolver(name string, addrs ...netip.Addr) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			for serveDNS(server, name+".", addrs) == nil {
			}
		}()
		return client, nil
	}}
}

// serveDNS answers one query, framed as DNS over TCP is.
func serveDNS(c net.Conn, name string, addrs []netip.Addr) error {
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return err
	}
	raw := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, raw); err != nil {
		return err
	}
	var query dnsmessage.Message
	if err := query.Unpack(raw); err != nil {
		return err
	}
	q := query.Questions[0]
	reply := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: query.ID, Response: true, Authoritative: true},
		Questions: query.Questions,
	}
	switch {
	case q.Name.String() != name:
		reply.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		for _, a := range addrs {
			reply.Answers = append(reply.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
				Body:   &dnsmessage.AResource{A: a.As4()},
			})
		}
	}
	raw, err := reply.AppendPack(make([]byte, 2))
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint16(raw, uint16(len(raw)-2))
	_, err = c.Write(raw)
	return err
}
