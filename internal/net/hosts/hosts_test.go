package hosts_test

import (
	"runtime"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/internal/net/hosts"
	"github.com/symgrad/symgrad/internal/net/wire/fake"
	"github.com/symgrad/symgrad/internal/sim"
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
	all, network := parties(t, n, layout, cfg, net)
	worlds := make([]*dist.World, n)
	openAll(t, all, cfg, func(w *dist.World) error {
		worlds[w.Rank()] = w
		return nil
	})
	return worlds, network
}

// parties returns the parties of n ranks in a layout.
func parties(t testing.TB, n int, layout func(rank, n int) int, cfg hosts.Config, net fake.Config) ([]hosts.Party, *fake.Network) {
	t.Helper()
	where := make([]int, n)
	all := make([]hosts.Party, n)
	for r := range where {
		where[r] = layout(r, n)
		all[r] = hosts.Party{Hosts: where, Losses: new(hosts.Losses)}
	}
	net.OnLost = func(rank int) func(int, string) { return all[rank].Losses.Lost }
	network, ends := fake.New(n, net)
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
			all[r].Wire, all[r].Inner = ends[r], inner[i]
		}
	}
	return all, network
}

// openAll opens the worlds of all ranks, and calls use with each.
func openAll(t testing.TB, parties []hosts.Party, cfg hosts.Config, use func(w *dist.World) error) {
	t.Helper()
	errs := make(chan error, len(parties))
	for _, party := range parties {
		go func() {
			tr, err := hosts.Open(party, cfg)
			var w *dist.World
			if err == nil {
				w, err = dist.NewWorld(tr, dist.LocalInfo{Launcher: "none", Job: "hosts"}, 0, nil)
			}
			if err == nil {
				err = use(w)
			}
			errs <- err
		}()
	}
	for range parties {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
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

// TestConformance has worlds of 1 to mostRanks ranks in every layout that differs.
func TestConformance(t *testing.T) {
	for name, layout := range layouts {
		if most := ranksIn(name); most > 0 {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				cfg := hosts.Config{SlotBytes: 1 << 10, ChainBytes: 64}
				opt := conformance.Options{Most: most, FarPeers: true}
				switch {
				case invariants.Enabled:
					opt.Ranks = []int{most} // fewer ranks show the race detector no more
				case name == "halves":
					opt.Ranks = []int{mostRanks} // three ranks are as in "last alone"
				case name != "each alone":
					opt.Ranks = []int{3, mostRanks} // one and two ranks are as in "each alone"
				}
				conformance.RunWith(t, opt, launcher(layout, cfg, fake.Config{Limit: 512, Goodbye: name != "halves"}))
			})
		}
	}
}
