package sim_test

import (
	"flag"
	"testing"

	"github.com/symgrad/symgrad/internal/conformance"
)

var litmusRounds = flag.Int("litmus", 500, "rounds of each litmus test")

func TestLitmus(t *testing.T) { conformance.RunLitmus(t, *litmusRounds, launch) }
