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

func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(max(mostRanks, runtime.NumCPU())) // ranks are goroutines, and poll
	goleak.VerifyTestMain(m)
}

// mostRanks is the most ranks of a world.
const mostRanks = 4

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
		conformance.Drive(t, open(t, n, layout, cfg, net), body)
	}
}

// ranksIn returns the most ranks of a suite in a layout, or 0 for no suite. With the race detector,
// with which all of them take 12 minutes, only one mixed layout runs, with fewer ranks.
func ranksIn(name string) int {
	switch {
	case !invariants.Enabled:
		return mostRanks
	case name == "last alone":
		return 3
	}
	return 0
}

// TestConformance has worlds of 1 to mostRanks ranks in every layout.
func TestConformance(t *testing.T) {
	for name, layout := range layouts {
		if most := ranksIn(name); most > 0 {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				cfg := hosts.Config{SlotBytes: 1 << 10, ChainBytes: 64}
				opt := conformance.Options{Most: most, FarPeers: true}
				if invariants.Enabled {
					opt.Ranks = []int{most} // fewer ranks show the race detector no more
				}
				conformance.RunWith(t, opt, launcher(layout, cfg, fake.Config{Limit: 512}))
			})
		}
	}
}
