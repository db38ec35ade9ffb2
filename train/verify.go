package train

import (
	"errors"
	"fmt"
	"math"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
	"github.com/symgrad/symgrad/train/internal/exchange"
	"github.com/symgrad/symgrad/train/internal/report"
	"github.com/symgrad/symgrad/train/internal/timeline"
)

// MaxDifference bounds the difference between the gradients of all ranks and of one rank, relative
// to the gradient's largest element. Both are sums of equally many float32 products in different
// orders. A wrong weight of one sample in 128 would give 1e-2.
const MaxDifference = 1e-4

// roundings is the allowed error of a gradient, in roundings of an operand, when products use fewer
// bits than float32.
const roundings = 8

// allowed returns MaxDifference, or more if products or exchanged gradients are rounded: to 10 bits
// of mantissa the error is up to 2^-11, to 7 bits up to 2^-8.
func allowed(c *config.Config) float64 {
	limit := MaxDifference
	for _, narrow := range []string{c.Run.Precision, c.Comm.WireDType} {
		switch narrow {
		case "tf32", "f16":
			limit = max(limit, roundings*0x1p-11)
		case "bf16":
			limit = max(limit, roundings*0x1p-8)
		}
	}
	return limit
}

// verifier compares the gradient of all ranks with that of one rank.
type verifier struct {
	*learner
	first int // step whose batch is used
}

// verify compares the gradient that all ranks compute together with the gradient of the same global
// batch on this rank alone. The latter uses the same weights in a plain Gorgonia graph, without
// ddp, on the tape machine of the host. Every rank does this, so every copy of the gradient is
// checked.
//
// Collective: all ranks. Errors: on all ranks, if the difference is above allowed on any.
func (v *verifier) verify(s *report.Summary) error {
	mine, err := v.firstBatch(v.w.Rank(), v.w.Size())
	if err != nil {
		return err
	}
	all, err := v.firstBatch(0, 1)
	if err != nil {
		return err
	}
	together, err := v.together(mine)
	if err != nil {
		return fmt.Errorf("verify: %w", plain(err))
	}
	alone, err := v.alone(all.Indices)
	if err != nil {
		return fmt.Errorf("verify: on one rank: %w", err)
	}
	worst, at := 0.0, 0
	for i := range alone {
		if d := relativeDifference(together[i], alone[i]); d > worst {
			worst, at = d, i
		}
	}
	return v.judge(s, worst, at, len(all.Indices))
}

// together returns the gradient of all ranks. It restores the state that the run changes, including
// the update on a GPU.
func (v *verifier) together(mine data.Batch) ([][]float32, error) {
	if v.job.cfg.Shard.Stage > 0 {
		return v.inShadow(mine)
	}
	restore, err := running{v.learner}.kept()
	if err != nil {
		return nil, err
	}
	weights := func() error { return nil }
	if v.job.site.GPU {
		if weights, err = v.saved(); err != nil {
			return nil, err
		}
	}
	if err := v.scaled.set(v.solver); err != nil {
		return nil, err
	}
	kept := v.d.HookState()
	if err := v.d.SetHookState(nil); err != nil { // its state is of other gradients
		return nil, err
	}
	if _, err := v.gradients(v.first, mine, false); err != nil {
		return nil, err
	}
	if err := v.vm.sync(); err != nil {
		return nil, err
	}
	grads, err := gradientsOf(v.d.Model())
	if err != nil {
		return nil, err
	}
	times := v.scaled.factorNow()
	if v.job.cfg.DDP.Average == "sum" {
		times *= float64(mine.Global)
	}
	for _, g := range grads {
		for i := range g {
			g[i] = float32(float64(g[i]) / times)
		}
	}
	return grads, errors.Join(restore(), weights(), v.d.SetHookState(kept))
}

// shadowRate is the learning rate of a shadow. It is so large that the weight vanishes next to any
// gradient.
const shadowRate = 0x1p20

// inShadow returns the gradient of all ranks when no rank has all of it. A second model with the
// same weights and sharding takes one step, weight - shadowRate*gradient, and all ranks then have
// the new weights. This also checks the sharded update and the gathering of weights.
func (v *verifier) inShadow(mine data.Batch) (grads [][]float32, err error) {
	before, err := v.copied()
	if err != nil {
		return nil, err
	}
	s := &learner{
		job: v.job, w: v.w, values: v.values, spans: timeline.New(v.w),
		rule: optim.Config{Name: optim.SGD, LearningRate: shadowRate, KeepGradients: true, Workers: v.job.threads},
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.build(func(params gorgonia.Nodes) error { return fill(params, before) }); err != nil {
		return nil, err
	}
	if err := s.scaled.set(s.solver); err != nil {
		return nil, err
	}
	if _, err := s.gradients(v.first, mine, false); err != nil {
		return nil, err
	}
	if err := s.solver.Step(s.d.Model()); err != nil {
		return nil, err
	}
	after, err := s.copied()
	if err != nil {
		return nil, err
	}
	times := float64(shadowRate)
	if v.job.cfg.DDP.Average == "sum" {
		times *= float64(mine.Global)
	}
	for k, w := range after {
		for i := range w {
			w[i] = float32((float64(before[k][i]) - float64(w[i])) / times)
		}
	}
	return after, nil
}

// firstBatch returns a rank's part of the first global batch.
func (v *verifier) firstBatch(rank, size int) (data.Batch, error) {
	sampler, err := v.job.newSampler(rank, size)
	if err != nil {
		return data.Batch{}, err
	}
	return sampler.Next(), nil
}

// alone returns the gradient of the samples, computed by plain Gorgonia.
//
// Collective: all ranks.
func (v *verifier) alone(indices []int) (grads [][]float32, err error) {
	if err := v.whole(); err != nil {
		return nil, err
	}
	weights, err := v.weights()
	if err != nil {
		return nil, err
	}
	m, err := v.job.newModel(len(indices), weights)
	if err != nil {
		return nil, err
	}
	if _, err := gorgonia.Grad(m.Cost, m.Params...); err != nil {
		return nil, err
	}
	if err := v.job.problem.Fill(m, indices); err != nil {
		return nil, err
	}
	vm := gorgonia.NewTapeMachine(m.Cost.Graph())
	defer func() {
		if closeErr := vm.Close(); err == nil {
			err = closeErr
		}
	}()
	if err := vm.RunAll(); err != nil {
		return nil, err
	}
	return gradientsOf(gorgonia.NodesToValueGrads(m.Params))
}

// gradientsOf returns copies of the gradients of params.
func gradientsOf(params []gorgonia.ValueGrad) ([][]float32, error) {
	all := make([][]float32, len(params))
	for i, p := range params {
		v, err := p.Grad()
		if err != nil {
			return nil, fmt.Errorf("gradient of parameter %d: %w", i, err)
		}
		b, err := ops.Elements(v)
		if err != nil {
			return nil, fmt.Errorf("gradient of parameter %d: %w", i, err)
		}
		elements, err := tensor.Data[float32](b)
		if err != nil {
			return nil, fmt.Errorf("gradient of parameter %d: %w", i, err)
		}
		all[i] = append([]float32(nil), elements...)
	}
	return all, nil
}

// relativeDifference returns max |a-b| / max |b| over the whole tensor, so an element that should
// be zero is compared with its neighbours. It is 0 for two zero tensors, and infinite for NaNs,
// infinities and different lengths.
func relativeDifference(a, b []float32) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	difference, norm := 0.0, 0.0
	for i := range a {
		difference = math.Max(difference, math.Abs(float64(a[i])-float64(b[i]))) // NaN stays
		norm = math.Max(norm, math.Abs(float64(b[i])))
	}
	switch d := difference / norm; {
	case difference == 0 && norm == 0:
		return 0
	case math.IsNaN(d):
		return math.Inf(1)
	default:
		return d
	}
}

// judge finds the largest difference of all ranks and prints it on rank 0.
func (v *verifier) judge(s *report.Summary, worst float64, at, samples int) error {
	all, err := exchange.Every(v.values, "verify", []float64{worst, float64(at)})
	if err != nil {
		return err
	}
	rank := 0
	for r := range v.w.Size() {
		if all[2*r] > all[2*rank] {
			rank = r
		}
	}
	worst = all[2*rank]
	name := v.d.Plan().Params[int(all[2*rank+1])].Name
	limit := allowed(v.job.cfg)
	line := fmt.Sprintf("%s differs by at most %.2e, in %s (max |a-b| / max |b|; allowed %.0e)",
		verified(v.w, samples), worst, name, limit)
	if worst > limit {
		return fmt.Errorf("verify: %s; the worst is on rank %d", line, rank)
	}
	s.VerifyMaxRelDiff = &worst
	if v.w.Rank() == 0 {
		return v.job.say("verify     %s: ok\n", line)
	}
	return nil
}

func verified(w *dist.World, samples int) string {
	return fmt.Sprintf("gradient of %d samples on %s, and on one rank by plain Gorgonia,", samples, report.Plural(w.Size(), "rank"))
}
