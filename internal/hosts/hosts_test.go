package hosts_test

import (
	"runtime"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/internal/hosts"
	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/internal/wire/fake"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// layouts place n ranks on hosts.
var layouts = map[string]func(rank, n int) int{
	"halves":      func(rank, n int) int { return rank * 2 / n },
	"first alone": func(rank, _ int) int { return min(rank, 1) },
	"last alone":  func(rank, n int) int { return (rank + 1) / n },
	"each alone":  func(rank, _ int) int { return rank },
	"in turns":    func(rank, _ int) int { return rank % 2 },
}

// open returns the worlds of n ranks in a layout. The ranks of a host meet over sim, and hosts over
// fake wires.
func open(t testing.TB, n int, layout func(rank, n int) int, cfg hosts.Config, net fake.Config) []*dist.World {
	t.Helper()
	worlds, _ := openNet(t, n, layout, cfg, net)
	return worlds
}

// openNet is open, with the network.
func openNet(t testing.TB, n int, layout func(rank, n int) int, cfg hosts.Config, net fake.Config) ([]*dist.World, *fake.Network) {
	t.Helper()
	where := make([]int, n)
	losses := make([]*hosts.Losses, n)
	for r := range where {
		where[r], losses[r] = layout(r, n), new(hosts.Losses)
	}
	net.OnLost = func(rank int) func(int, string) { return losses[rank].Lost }
	network, ends := fake.New(n, net)
	near := make([]dist.Transport, n)
	for host := range n + 1 {
		var ranks []int
		for r, h := range where {
			if h == host {
				ranks = append(ranks, r)
			}
		}
		if len(ranks) == 0 {
			continue
		}
		inner, err := sim.Transports(len(ranks), sim.Config{StepTimeout: cfg.StepTimeout})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range ranks {
			near[r] = inner[i]
		}
	}
	worlds := make([]*dist.World, n)
	errs := make(chan error, n)
	for r := range n {
		go func() {
			tr, err := hosts.Open(hosts.Party{Wire: ends[r], Inner: near[r], Hosts: where, Losses: losses[r]}, cfg)
			if err == nil {
				worlds[r], err = dist.NewWorld(tr, dist.LocalInfo{Launcher: "none", Job: "hosts"}, 0, nil)
			}
			errs <- err
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	return worlds, network
}

func launcher(layout func(rank, n int) int, cfg hosts.Config, net fake.Config) conformance.Launch {
	return func(t *testing.T, n int, opt conformance.LaunchOptions, body func(w *dist.World) error) {
		t.Helper()
		if opt.Die != nil {
			t.Skip("a goroutine cannot be killed; processes are")
		}
		cfg.StepTimeout = opt.StepTimeout
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(n, runtime.GOMAXPROCS(0))))
		conformance.Drive(t, open(t, n, layout, cfg, net), body)
	}
}

// runsIn reports whether a suite runs in a layout: with the race detector, with which all layouts
// take 12 minutes, only in two mixed ones.
func runsIn(name string) bool {
	return !invariants.Enabled || name == "last alone" || name == "in turns"
}

// TestConformance has worlds of 1 to 4 ranks in every layout.
func TestConformance(t *testing.T) {
	for name, layout := range layouts {
		if runsIn(name) {
			t.Run(name, func(t *testing.T) {
				cfg := hosts.Config{SlotBytes: 1 << 10, ChainBytes: 64}
				conformance.RunWith(t, conformance.Options{Most: 4, FarPeers: true}, launcher(layout, cfg, fake.Config{Limit: 512}))
			})
		}
	}
}
