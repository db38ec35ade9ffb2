package train

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/settings"
	"github.com/symgrad/symgrad/train/internal/exchange"
)

func TestRelativeDifferenceIsInTheMaximumNorm(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, test := range []struct {
		name string
		a, b []float32
		want float64
	}{
		{"equal", []float32{1, -2}, []float32{1, -2}, 0},
		{"zeros", []float32{0, 0}, []float32{0, 0}, 0},
		{"nothing", nil, nil, 0},
		{"measured by the largest", []float32{1, 0.5}, []float32{-4, 0.5}, 5. / 4},
		{"a small one beside a large one", []float32{4, 1e-3}, []float32{4, 0}, 1e-3 / 4.},
		{"something for nothing", []float32{1}, []float32{0}, math.Inf(1)},
		{"nan", []float32{nan, 1}, []float32{1, 1}, math.Inf(1)},
		{"nan in both", []float32{nan, 1}, []float32{nan, 1}, math.Inf(1)},
		{"infinity in both", []float32{inf}, []float32{inf}, math.Inf(1)},
		{"other lengths", []float32{1}, []float32{1, 1}, math.Inf(1)},
	} {
		if got := relativeDifference(test.a, test.b); math.Abs(got-test.want) > 1e-9 && got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// smallRun is the flags of a small simulated run. Gonum's BLAS gives the same bits on every
// machine.
func smallRun(dir string, more ...string) []string {
	args := []string{"--set", "run.output_dir=" + dir}
	for _, s := range append([]string{
		"run.epochs=0", "run.max_steps=5", "data.global_batch=24", "model.hidden=16,12", "optim.lr=0.003",
		"cpu.blas=gonum", "log.losses=true", "comm.timeout_step=60s", "comm.backend=sim",
	}, more...) {
		if strings.HasPrefix(s, "--") {
			args = append(args, s)
		} else {
			args = append(args, "--set", s)
		}
	}
	return args
}

// trained runs body on the trainers of n simulated ranks, before their first step.
func trained(t *testing.T, n int, body func(tr *trainer) error, more ...string) error {
	t.Helper()
	return built(t, n, func(tr *trainer, err error) error {
		if err != nil {
			return err
		}
		return body(tr)
	}, more...)
}

// built trains with bodies that get the result of newTrainer.
func built(t *testing.T, n int, body func(tr *trainer, err error) error, more ...string) error {
	t.Helper()
	o, err := program.parse(smallRun(t.TempDir(), append([]string{"log.progress=none"}, more...)...))
	if err != nil {
		t.Fatal(err)
	}
	j, err := newJob(o, launch.Env{Size: n, LocalSize: n}, t.Output())
	if err == nil {
		err = j.load()
	}
	if err != nil {
		t.Fatal(err)
	}
	return backend.Simulate(n, settings.Backend(j.cfg, j.site.GPU), func(w *dist.World) error {
		tr, err := newTrainer(exchange.New(w), j, ends{})
		if err = body(tr, err); tr != nil {
			err = errors.Join(err, tr.close(err))
		}
		return err
	})
}

// A rank whose weights are not those of the others computes another gradient. All ranks refuse it
// and name the parameter.
func TestVerifySeesOneWrongRank(t *testing.T) {
	var mu sync.Mutex
	var texts []string
	err := trained(t, 3, func(tr *trainer) error {
		if tr.w.Rank() == 1 {
			tr.model.Params[4].Value().Data().([]float32)[3] += 2 // fc3.weight
		}
		if err := (&verifier{learner: tr.learner}).verify(tr.report().Summary()); err != nil {
			mu.Lock()
			defer mu.Unlock()
			texts = append(texts, err.Error())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(texts) != 3 {
		t.Fatalf("%d ranks refuse: %q", len(texts), texts)
	}
	for _, text := range texts {
		if text != texts[0] || !strings.Contains(text, "the worst is on rank") || !strings.Contains(text, "differs by at most") || !strings.Contains(text, " in fc") {
			t.Errorf("%q", text)
		}
	}
}

// The largest difference of any rank decides, on all ranks.
func TestVerifyTakesTheWorstRank(t *testing.T) {
	for _, test := range []struct {
		worst float64 // of rank 1; rank 0 has 0
		fails bool
	}{{MaxDifference / 2, false}, {2 * MaxDifference, true}, {math.Inf(1), true}} {
		var mu sync.Mutex
		refused := 0
		err := trained(t, 2, func(tr *trainer) error {
			s, rank := tr.report().Summary(), tr.w.Rank()
			own := test.worst
			if rank == 0 {
				own = 0
			}
			err := (&verifier{learner: tr.learner}).judge(s, own, rank, 24)
			if err == nil {
				if s.VerifyMaxRelDiff == nil || *s.VerifyMaxRelDiff != test.worst {
					return fmt.Errorf("the summary has %v", s.VerifyMaxRelDiff)
				}
				return nil
			}
			mu.Lock()
			refused++
			mu.Unlock()
			if !strings.Contains(err.Error(), "in fc1.bias") || !strings.Contains(err.Error(), "the worst is on rank 1") {
				return err
			}
			return nil
		})
		if err != nil || test.fails != (refused == 2) || !test.fails && refused > 0 {
			t.Errorf("%v: %d ranks refuse, %v", test.worst, refused, err)
		}
	}
}

// Parts of unequal length, and ranks without samples, are where weights matter.
func TestVerifyAcceptsUnequalParts(t *testing.T) {
	for _, batch := range []string{"data.global_batch=25", "data.global_batch=2"} {
		for _, model := range []string{"model.name=mlp", "model.name=cnn"} {
			err := trained(t, 3, func(tr *trainer) error { return (&verifier{learner: tr.learner}).verify(tr.report().Summary()) }, batch, model, "data.accum_steps=2")
			if err != nil {
				t.Errorf("%s, %s: %v", batch, model, err)
			}
		}
	}
}
