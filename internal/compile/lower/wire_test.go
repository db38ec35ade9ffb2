package lower

import (
	"fmt"
	"math"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// TestNarrowBucketsBySteps sums gradients as f16 and bf16 with the device programs, whole and in
// parts. It compares with the tape machine, whose ddp does the same on the host. Its matrix
// products differ in last bits, so that an element may be rounded to the neighbour.
func TestNarrowBucketsBySteps(t *testing.T) {
	for name, c := range map[string]struct {
		parts
		ddp ddp.Config
		cfg Options
	}{
		"whole": {parts{steps: 3, weights: func(rank, _ int) []float64 { return []float64{1 + float64(rank)} }}, fewKilobytes, Options{}},
		"plain": {parts{steps: 3, weights: func(rank, _ int) []float64 { return []float64{2} }}, ddp.Config{}, Options{NoOptimize: true}},
		"parts": {parts{steps: 3, weights: func(rank, _ int) []float64 { return []float64{2, 1, 3} }}, ddp.Config{}, Options{}},
		"idle": {parts{steps: 3, idle: true, weights: func(rank, step int) []float64 {
			if rank > 0 && rank == 1+step%2 {
				return []float64{0}
			}
			return []float64{1.5}
		}}, ddp.Config{Idle: true}, Options{}},
	} {
		for _, wire := range []tensor.DType{tensor.BF16, tensor.F16} {
			if invariants.Enabled && wire == tensor.F16 {
				continue // the race detector needs one
			}
			for stage := range 4 {
				for _, ranks := range someRanks() {
					t.Run(fmt.Sprintf("%s/%v/stage %d/%d ranks", name, wire, stage, ranks), func(t *testing.T) {
						cfg := c.ddp
						cfg.WireDType = wire
						rule := optim.Config{Name: optim.SGD, LearningRate: 0.1, KeepGradients: true}
						if stage > 1 && len(c.weights(0, 0)) > 1 {
							cfg.Stage = 2 // which rounds each part
						}
						host, _ := c.onHost(t, ranks, cfg, rule)
						cfg.Stage = stage
						for rank, n := range c.bySteps(t, ranks, cfg, c.cfg, rule) {
							if off := worst(n.values(), host[rank]); !(off <= 1e-3) {
								t.Errorf("rank %d: weights are off by %g", rank, off)
							}
							if stage < 2 || len(c.weights(rank, 0)) == 1 { // else they are a sum of sums
								n.areNarrow(t, wire)
							}
						}
					})
				}
			}
		}
	}
}

// areNarrow checks that a rank's gradients are of the wire's dtype, and not all equal.
func (n *lane) areNarrow(t *testing.T, wire tensor.DType) {
	t.Helper()
	nonzero := 0
	for _, own := range n.d.Pieces() {
		q := n.d.Plan().Params[own.Param]
		raw, first := n.d.Machine().Layout().Buckets[q.Bucket].Raw(), q.Offset+own.Offset
		if shards := n.d.Machine().Layout().Shards; len(shards) > 0 {
			raw, first = shards[q.Bucket].Raw(), first-n.d.Machine().Layout().Group.Rank()*n.d.Plan().Buckets[q.Bucket].Shard
		}
		b := make([]byte, 2)
		for i := range own.Len {
			got := program.Element(tensor.F32, raw, first+i)
			program.SetElement(wire, b, 0, got)
			if back := program.Element(wire, b, 0); back != got {
				t.Fatalf("gradient of %s, element %d is %v, and %v as %v", q.Name, own.Offset+i, got, back, wire)
			}
			if got != 0 {
				nonzero++
			}
		}
	}
	if nonzero == 0 && len(n.d.Pieces()) > 0 {
		t.Error("all gradients are 0")
	}
}

// TestNarrowBucketsAreWithinTheirBound compares gradients of one step with those without a wire
// dtype.
func TestNarrowBucketsAreWithinTheirBound(t *testing.T) {
	c := parts{steps: 1, weights: func(rank, _ int) []float64 { return []float64{1 + float64(rank)} }}
	rule := optim.Config{Name: optim.SGD, LearningRate: 0.1, KeepGradients: true}
	const ranks = 3
	wide := c.bySteps(t, ranks, ddp.Config{}, Options{}, rule)
	for wire, u := range map[tensor.DType]float64{tensor.BF16: 0x1p-8, tensor.F16: 0x1p-11} {
		narrow := c.bySteps(t, ranks, ddp.Config{WireDType: wire}, Options{}, rule)
		want, got := wide[0].gradients(WholeBatch), narrow[0].gradients(WholeBatch)
		differ := 0
		for i := range want {
			largest := 0.0
			for _, x := range want[i] {
				largest = math.Max(largest, math.Abs(float64(x)))
			}
			for k := range want[i] {
				off := math.Abs(float64(got[i][k]) - float64(want[i][k]))
				if !(off <= 8*u*(largest+0x1p-20)) {
					t.Errorf("%v: gradient %d, element %d: %v, want %v", wire, i, k, got[i][k], want[i][k])
				}
				if off != 0 {
					differ++
				}
			}
		}
		if differ == 0 {
			t.Errorf("%v: nothing is rounded", wire)
		}
	}
}

// TestNarrowUpdatesOverlap checks the steps after narrow sums, with Stage 1.
func TestNarrowUpdatesOverlap(t *testing.T) {
	cfg := fewKilobytes
	cfg.Stage, cfg.WireDType = 1, tensor.BF16
	c := parts{steps: 1, weights: func(int, int) []float64 { return []float64{1} }}
	n := c.bySteps(t, 1, cfg, Options{}, optim.Config{Name: optim.Adam, LearningRate: 0.01})[0]
	p := n.loaded[WholeBatch].Program
	gathered, scattered, gradients := 0, 0, 0 // gradients: products behind a sum
	for i, s := range p.Steps {
		switch {
		case isKind(s, dist.KindAllGather):
			gathered++
		case isKind(s, dist.KindReduceScatter):
			scattered++
			if next := p.Steps[i+1]; s.Op.(*program.Collective).Red.Kind != dist.RedSum || p.Values[s.In[0].Value].DType != tensor.BF16 {
				t.Errorf("step %d sums %v by %v; %q comes next", i, p.Values[s.In[0].Value].DType, s.Op, next.Name)
			}
		case s.Stream == program.Compute && gathered == len(n.d.Plan().Buckets):
			t.Errorf("step %d, %q, computes behind all gathering", i, s.Name)
		}
		if _, ok := s.Op.(*program.MatMul); ok && scattered > 0 {
			gradients++
		}
	}
	if gradients == 0 {
		t.Errorf("all gradients are computed before the first sum:\n%v", p)
	}
	if buckets := len(n.d.Plan().Buckets); gathered != buckets || scattered != buckets {
		t.Errorf("%d sums and %d gatherings of %d buckets", scattered, gathered, buckets)
	}
}
