package sim_test

import (
	"fmt"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/conformance"
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

func TestConformance(t *testing.T) { conformance.Run(t, launch) }
