package train

import (
	"math"
	"testing"

	"github.com/symgrad/symgrad/config"
)

func TestRunEndsWithItsStepsOrEpochs(t *testing.T) {
	for _, test := range []struct{ maxSteps, epochs, epochSteps, want int }{
		{0, 3, 10, 30},
		{7, 3, 10, 7},
		{70, 3, 10, 30},
		{70, 0, 10, 70},
		{70, math.MaxInt, 10, 70},
		{0, math.MaxInt / 4, 10, math.MaxInt},
	} {
		if got := runSteps(config.Run{MaxSteps: test.maxSteps, Epochs: test.epochs}, test.epochSteps); got != test.want {
			t.Errorf("%d steps or %d epochs of %d: %d steps, want %d", test.maxSteps, test.epochs, test.epochSteps, got, test.want)
		}
	}
}
