package sim_test

import (
	"fmt"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/internal/sim"
)

func launch(t *testing.T, n int, opt conformance.LaunchOptions, body func(w *dist.World) error) {
	cfg := sim.Config{StepTimeout: opt.StepTimeout}
	if opt.Die != nil {
		cfg.Script = fmt.Sprintf("die rank=%d op=%d", opt.Die.Rank, opt.Die.Op)
	}
	worlds, err := sim.New(n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	conformance.Drive(t, worlds, body)
}

// With invariants checked, 7 ranks take long and show no more than 4.
func TestConformance(t *testing.T) {
	var opt conformance.Options
	if invariants.Enabled {
		opt.Most = 4
	}
	conformance.RunWith(t, opt, launch)
}
