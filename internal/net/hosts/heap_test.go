package hosts_test

import (
	"flag"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/internal/long"
	"github.com/symgrad/symgrad/internal/net/hosts"
	"github.com/symgrad/symgrad/internal/net/wire/fake"
)

var litmusRounds = flag.Int("litmus", long.Times(128, 5000), "rounds of each litmus test")

// far is the suite's view of a heap over hosts.
var far = conformance.Options{Large: 101, Most: 4, FarPeers: true}

// overHosts runs a test in the layouts of several hosts, and on one host.
func overHosts(t *testing.T, test func(t *testing.T, launch conformance.Launch)) {
	t.Helper()
	for name, layout := range layouts {
		if ranksIn(name) > 0 {
			t.Run(name, func(t *testing.T) { test(t, launcher(layout, hosts.Config{}, fake.Config{Limit: 512})) })
		}
	}
	t.Run("one host", func(t *testing.T) {
		test(t, launcher(func(int, int) int { return 0 }, hosts.Config{}, fake.Config{}))
	})
}

func TestOneSidedCalls(t *testing.T) {
	overHosts(t, func(t *testing.T, launch conformance.Launch) { conformance.RunOneSidedWith(t, far, launch) })
}

func TestLitmus(t *testing.T) {
	overHosts(t, func(t *testing.T, launch conformance.Launch) {
		conformance.RunLitmusWith(t, far, *litmusRounds, launch)
	})
}

func TestRandomCalls(t *testing.T) {
	overHosts(t, func(t *testing.T, launch conformance.Launch) {
		launch(t, 4, conformance.LaunchOptions{}, func(w *dist.World) error {
			_, _, err := conformance.Random{Seed: 5, Steps: 500, Turns: invariants.Enabled, FarPeers: true}.Run(w)
			return err
		})
	})
}
