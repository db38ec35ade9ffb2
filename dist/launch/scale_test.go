//go:build linux

package launch

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// addressBytes is the length of a rank's address in a meeting, that of UCX over TCP.
const addressBytes = 110

// meetMany is a meeting of n ranks, which are goroutines, in one store over TCP and TLS: all join,
// rank 0 collects an address of each and publishes the list, and all read it. It returns the memory
// that the process has taken from the system since, with that of the clients.
func meetMany(ctx context.Context, server *tls.Config, clients []*tls.Config) (taken uint64, err error) {
	n := len(clients)
	s, err := Listen(ServerConfig{Job: "job", Size: n, TLS: server})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	errs := make([]error, n)
	var all sync.WaitGroup
	for rank := range n {
		all.Go(func() {
			errs[rank] = meetOne(ctx, DialConfig{Address: s.Address(), Job: "job", Rank: rank, Size: n, TLS: clients[rank]})
		})
	}
	all.Wait()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Sys, errors.Join(errs...)
}

// meetOne is the part of one rank.
func meetOne(ctx context.Context, cfg DialConfig) (err error) {
	c, err := Dial(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.meet(ctx); err != nil {
		return err
	}
	own := bytes.Repeat([]byte{byte(cfg.Rank)}, addressBytes)
	var list []byte
	if cfg.Rank == 0 {
		list = own
		for r := 1; r < cfg.Size; r++ {
			a, err := c.Get(ctx, fmt.Sprint("address/", r))
			if err != nil {
				return err
			}
			list = append(list, a...)
		}
		err = c.Set(ctx, "addresses", list)
	} else if err = c.Set(ctx, fmt.Sprint("address/", cfg.Rank), own); err == nil {
		list, err = c.Get(ctx, "addresses")
	}
	if err != nil {
		return err
	}
	if at := cfg.Rank * addressBytes; len(list) != cfg.Size*addressBytes || !bytes.Equal(list[at:at+addressBytes], own) {
		return fmt.Errorf("rank %d got a list of %d bytes without its address", cfg.Rank, len(list))
	}
	return nil
}

// credentialsOf returns the credentials of a store and of n ranks.
func credentialsOf(tb testing.TB, n int) (server *tls.Config, clients []*tls.Config) {
	tb.Helper()
	ca, err := newAuthority()
	if err != nil {
		tb.Fatal(err)
	}
	if server, err = ca.server(); err != nil {
		tb.Fatal(err)
	}
	for rank := range n {
		secret, err := ca.rank(rank)
		if err != nil {
			tb.Fatal(err)
		}
		client, err := parseCredentials(secret)
		if err != nil {
			tb.Fatal(err)
		}
		clients = append(clients, client)
	}
	return server, clients
}

// A store meets 1,024 ranks in less than 1 GiB, with the memory of the ranks.
func TestManyRanksMeetInOneStore(t *testing.T) {
	server, clients := credentialsOf(t, manyRanks)
	taken, err := meetMany(t.Context(), server, clients)
	if err != nil {
		t.Fatal(err)
	}
	if taken > 1<<30 {
		t.Errorf("the process took %d MiB", taken>>20)
	}
}

// One meeting of many ranks: join, exchange addresses, leave. MiB is the memory of the process.
func BenchmarkMeeting(b *testing.B) {
	for _, n := range []int{64, 256, 1024, 2048, 4096} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			server, clients := credentialsOf(b, n)
			var taken uint64
			for b.Loop() {
				var err error
				if taken, err = meetMany(b.Context(), server, clients); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(taken)/(1<<20), "MiB")
		})
	}
}
