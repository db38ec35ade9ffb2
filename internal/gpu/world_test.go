package gpu

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/net/hosts"
	"github.com/symgrad/symgrad/internal/net/wire/fake"
	"github.com/symgrad/symgrad/internal/sim"
)

// onEach runs body as every rank of a host group of n ranks, which it closes.
func onEach(t *testing.T, n int, cfg sim.Config, body func(control *dist.Group) error) {
	t.Helper()
	worlds, err := sim.New(n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var ranks sync.WaitGroup
	for _, w := range worlds {
		ranks.Go(func() {
			if err := errors.Join(body(w.Group), w.Close()); err != nil {
				t.Errorf("rank %d: %v", w.Rank(), err)
			}
		})
	}
	ranks.Wait()
}

// onHosts runs body as every rank of a host group over the hosts of where, which it closes. The
// ranks of a host meet over sim, and hosts over fake wires.
func onHosts(t *testing.T, where []int, body func(control *dist.Group) error) {
	t.Helper()
	losses := make([]*hosts.Losses, len(where))
	for r := range losses {
		losses[r] = new(hosts.Losses)
	}
	_, ends := fake.New(len(where), fake.Config{OnLost: func(rank int) func(int, string) { return losses[rank].Lost }})
	near := make([]dist.Transport, len(where))
	for host := range slices.Max(where) + 1 {
		var ranks []int
		for r, h := range where {
			if h == host {
				ranks = append(ranks, r)
			}
		}
		inner, err := sim.Transports(len(ranks), sim.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range ranks {
			near[r] = inner[i]
		}
	}
	var ranks sync.WaitGroup
	for r := range where {
		ranks.Go(func() {
			tr, err := hosts.Open(hosts.Party{Wire: ends[r], Inner: near[r], Hosts: where, Losses: losses[r]}, hosts.Config{})
			if err != nil {
				t.Error(err)
				return
			}
			g, err := dist.NewGroup(tr, 0)
			if err == nil {
				err = errors.Join(body(g), g.Close())
			}
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	ranks.Wait()
}

// ledgers runs body as every rank of n, with a ledger: on one host, and on two.
func ledgers(t *testing.T, n int, compare bool, limit time.Duration, body func(p *ledger) error) {
	t.Helper()
	t.Run("one host", func(t *testing.T) {
		onEach(t, n, sim.Config{}, func(control *dist.Group) error { return withLedger(control, compare, limit, body) })
	})
	for name, where := range map[string][]int{"first alone": {0, 1, 1, 1}, "in turns": {0, 1, 0, 1}} {
		if n > 1 {
			t.Run(name, func(t *testing.T) {
				onHosts(t, where[:n], func(control *dist.Group) error { return withLedger(control, compare, limit, body) })
			})
		}
	}
}

// withLedger runs body with a ledger over control.
func withLedger(control *dist.Group, compare bool, limit time.Duration, body func(p *ledger) error) error {
	p, err := newLedger(control, compare, limit)
	if err != nil {
		return err
	}
	err = body(p)
	if e := finish(control.Blocking().Barrier()); e != nil && p.broken() == nil { // no rank unmaps before all have ended
		err = errors.Join(err, e)
	}
	return errors.Join(err, p.close())
}

func memberOf(control *dist.Group) *Member {
	return MemberOf(control, nil)
}
