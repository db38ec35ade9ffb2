package farheap_test

import (
	"flag"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/internal/long"
)

var litmusRounds = flag.Int("litmus", long.Times(256, 5000), "rounds of each litmus test")

// far is the suite's view of a heap over hosts.
var far = conformance.Options{Large: 101, FarPeers: true}

// each runs a test on every layout; with the race detector, which takes minutes, on the mixed ones.
func each(t *testing.T, test func(t *testing.T, launch conformance.Launch)) {
	t.Helper()
	for name, host := range layouts {
		if invariants.Enabled && name != "1+3" && name != "interleaved" {
			continue
		}
		t.Run(name, func(t *testing.T) { test(t, on(host)) })
	}
}

func TestHeap(t *testing.T) {
	each(t, func(t *testing.T, launch conformance.Launch) {
		opt := far
		opt.Ranks = []int{1, 2, 4}
		if invariants.Enabled { // with the race detector, more ranks take minutes
			opt.Ranks = []int{3}
		}
		conformance.RunHeap(t, opt, launch)
	})
}

func TestOneSidedCalls(t *testing.T) {
	each(t, func(t *testing.T, launch conformance.Launch) { conformance.RunOneSidedWith(t, far, launch) })
}

func TestLitmus(t *testing.T) {
	each(t, func(t *testing.T, launch conformance.Launch) {
		conformance.RunLitmusWith(t, far, *litmusRounds, launch)
	})
}

func TestRandomCalls(t *testing.T) {
	each(t, func(t *testing.T, launch conformance.Launch) {
		launch(t, 3, conformance.LaunchOptions{}, func(w *dist.World) error {
			_, _, err := conformance.Random{Seed: 3, Steps: 1000, Turns: invariants.Enabled, FarPeers: true}.Run(w)
			return err
		})
	})
}
