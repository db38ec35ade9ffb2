package sim_test

import (
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/internal/invariants"
)

func TestOneSidedCalls(t *testing.T) { conformance.RunOneSided(t, launch) }

func TestRandomCalls(t *testing.T) {
	for seed := range uint64(3) {
		launch(t, 3, conformance.LaunchOptions{}, func(w *dist.World) error {
			_, _, err := conformance.Random{Seed: seed, Steps: 3000, Turns: invariants.Enabled}.Run(w)
			return err
		})
	}
}
