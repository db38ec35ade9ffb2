//go:build linux

package launch

import (
	"crypto/tls"
	"errors"
	"testing"
)

// A Get of an existing value: one round trip.
func BenchmarkStoreGet(b *testing.B) {
	ca, err := newAuthority()
	if err != nil {
		b.Fatal(err)
	}
	server, serverErr := ca.server()
	secret, secretErr := ca.rank(0)
	client, clientErr := parseCredentials(secret)
	if err := errors.Join(serverErr, secretErr, clientErr); err != nil {
		b.Fatal(err)
	}
	for _, bench := range []struct {
		name, address  string
		server, client *tls.Config
	}{{name: "tcp"}, {name: "unix", address: socketName()}, {name: "tls", server: server, client: client}} {
		b.Run(bench.name, func(b *testing.B) {
			s, err := Listen(ServerConfig{Address: bench.address, Job: "job", Size: 1, TLS: bench.server})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			c, err := Dial(b.Context(), DialConfig{Address: s.Address(), Job: "job", Size: 1, TLS: bench.client})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			if err := c.Set(b.Context(), "k", make([]byte, 64)); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := c.Get(b.Context(), "k"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
