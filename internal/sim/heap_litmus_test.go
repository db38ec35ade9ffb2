package sim_test

import (
	"flag"
	"testing"

	"github.com/symgrad/symgrad/internal/conformance"
	"github.com/symgrad/symgrad/internal/long"
)

var litmusRounds = flag.Int("litmus", long.Times(500, 5000), "rounds of each litmus test")

func TestLitmus(t *testing.T) { conformance.RunLitmus(t, *litmusRounds, launch) }
