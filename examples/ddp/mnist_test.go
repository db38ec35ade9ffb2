package main

import (
	"os"
	"testing"

	"github.com/symgrad/symgrad/examples/ddp/mnist"
	"github.com/symgrad/symgrad/train"
)

// The shipped configurations on the real images, with ranks that are processes.
func TestShippedConfigsTrainOnMNIST(t *testing.T) {
	if underRace {
		t.Skip("minutes under the race detector, which sees the same code in the simulated runs")
	}
	const data = "../../data/mnist"
	if err := mnist.Find(data); err != nil {
		if os.Getenv("SYMGRAD_REQUIRE_DATA") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	for _, test := range []struct {
		config   string
		ranks    []int
		settings []string
		accuracy float64
	}{
		{"mnist-mlp", []int{2, 4}, []string{"run.max_steps=100", "model.hidden=512,512", "optim.lr=0.001"}, 0.92},
		{"mnist-cnn", []int{2}, []string{"run.max_steps=12", "model.hidden=120,84"}, 0.3},
	} {
		shared := append([]string{"--config=../../configs/" + test.config + ".yaml", "data.global_batch=128", "--verify"}, test.settings...)
		one := processes(t, data, append(shared, ranks(1))...).summary(t)
		if *one.TestAccuracy < test.accuracy || one.TestSamples != 10000 {
			t.Errorf("%s: accuracy %v of %d images, want at least %v of 10000", test.config, *one.TestAccuracy, one.TestSamples, test.accuracy)
		}
		for _, n := range test.ranks { // they have the parameters of one rank, and so its accuracy
			s := processes(t, data, append(shared, ranks(n), "run.eval=false")...).summary(t)
			if d := apart(t, s.Losses, one.Losses); d > 1e-4 {
				t.Errorf("%s: losses of %d ranks and of one differ by %.1e", test.config, n, d)
			}
			if *s.VerifyMaxRelDiff > train.MaxDifference {
				t.Errorf("%s: the gradient of %d ranks differs by %.1e", test.config, n, *s.VerifyMaxRelDiff)
			}
		}
	}
}
