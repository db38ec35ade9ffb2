package nnop

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
)

// SparseCrossEntropy is the mean, over the rows whose target is not Ignore, of
//
//	(1-Smoothing)*(lse - x[target]) + Smoothing*(lse - mean(x))
//
// with lse = log sum exp(x) of the row. Without such a row it is 0. Inputs are the logits x (rows,
// classes) and the targets (rows) of int.
type SparseCrossEntropy struct {
	result
	Ignore    int
	Smoothing float64
}

// NewSparseCrossEntropy returns the node of the loss, a scalar.
func NewSparseCrossEntropy(logits, targets *gorgonia.Node, ignore int, smoothing float64) (*gorgonia.Node, error) {
	s := &SparseCrossEntropy{Ignore: ignore, Smoothing: smoothing}
	s.result = result{name: fmt.Sprintf("sparse cross-entropy ignore=%d smoothing=%v", ignore, smoothing), inputs: 2, dtype: logits.Dtype()}
	return gorgonia.ApplyOp(s, logits, targets)
}

// Do computes the loss.
//
// Errors: dist.ErrInvalid for a target that is no class, with its row.
func (s *SparseCrossEntropy) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	b, err := s.batch(&s.result, in)
	if err != nil {
		return nil, err
	}
	if s.dtype == gtensor.Float32 {
		return scalar(s.dtype, entropy(s, b, elements[float32](b.x), nil, 0)), nil
	}
	return scalar(s.dtype, entropy(s, b, elements[float64](b.x), nil, 0)), nil
}

// DiffWRT is true for the logits.
func (*SparseCrossEntropy) DiffWRT(inputs int) []bool { return first(1, inputs) }

// SymDiff returns the gradient of the logits.
func (s *SparseCrossEntropy) SymDiff(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	g := &SparseCrossEntropyGrad{Of: s}
	g.result = result{name: "gradient of " + s.name, inputs: 3, dtype: s.dtype, shape: in[0].Shape().Clone()}
	dx, err := gorgonia.ApplyOp(g, in[0], in[1], dy)
	return gorgonia.Nodes{dx, nil}, err
}

// SparseCrossEntropyGrad is the gradient of a SparseCrossEntropy by its logits. Inputs are those of
// the loss and the gradient of the loss.
type SparseCrossEntropyGrad struct {
	result
	Of *SparseCrossEntropy
}

// Do computes the gradient.
//
// Errors: those of the loss.
func (g *SparseCrossEntropyGrad) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	b, err := g.Of.batch(&g.result, in)
	if err != nil {
		return nil, err
	}
	to := g.fresh()
	if g.dtype == gtensor.Float32 {
		entropy(g.Of, b, elements[float32](b.x), elements[float32](to), float64(elements[float32](b.dy)[0]))
	} else {
		entropy(g.Of, b, elements[float64](b.x), elements[float64](to), elements[float64](b.dy)[0])
	}
	return to, nil
}

// DiffWRT is false for all inputs.
func (*SparseCrossEntropyGrad) DiffWRT(inputs int) []bool { return make([]bool, inputs) }

// SymDiff returns an error.
func (g *SparseCrossEntropyGrad) SymDiff(gorgonia.Nodes, *gorgonia.Node, *gorgonia.Node) (gorgonia.Nodes, error) {
	return nil, twice(g)
}

// entropyBatch has the checked inputs of a SparseCrossEntropy or its gradient.
type entropyBatch struct {
	x       *gtensor.Dense
	targets []int
	counted int            // rows that count
	dy      *gtensor.Dense // of the gradient
}

func (s *SparseCrossEntropy) batch(r *result, in []gorgonia.Value) (entropyBatch, error) {
	all, err := r.check(in)
	if err != nil {
		return entropyBatch{}, err
	}
	b := entropyBatch{x: all[0]}
	if len(all) > 2 {
		b.dy = all[2]
	}
	var ok bool
	if b.targets, ok = all[1].Data().([]int); !ok {
		b.targets = []int{0}
		if b.targets[0], ok = all[1].Data().(int); !ok {
			return b, fmt.Errorf("%v: %w: targets of type %T, want int", r, dist.ErrDType, all[1].Data())
		}
	}
	if b.x.Dims() != 2 || b.x.Shape()[0] != len(b.targets) {
		return b, fmt.Errorf("%v: %w: logits of shape %v for %d targets", r, dist.ErrCount, b.x.Shape(), len(b.targets))
	}
	b.counted, err = Counted(b.targets, s.Ignore, b.x.Shape()[1])
	if err != nil {
		return b, fmt.Errorf("%v: %w", r, err)
	}
	return b, nil
}

// Counted returns the number of targets that are not ignored.
//
// Errors: dist.ErrInvalid for one outside 0 to classes-1, with its row.
func Counted(targets []int, ignore, classes int) (n int, err error) {
	for row, target := range targets {
		switch {
		case target == ignore:
		case target < 0 || target >= classes:
			return n, fmt.Errorf("%w: row %d has target %d, want 0 to %d, or %d for a row that does not count",
				dist.ErrInvalid, row, target, classes-1, ignore)
		default:
			n++
		}
	}
	return n, nil
}

// entropy returns the loss, and stores its gradient times dy in dx unless that is nil.
func entropy[T real](s *SparseCrossEntropy, b entropyBatch, x, dx []T, dy float64) (loss float64) {
	classes := b.x.Shape()[1]
	weight := 1 / float64(max(b.counted, 1))
	for row, target := range b.targets {
		if target == s.Ignore {
			continue
		}
		x := x[row*classes : (row+1)*classes]
		top, sum, mean := math.Inf(-1), 0.0, 0.0
		for _, v := range x {
			top = max(top, float64(v))
			mean += float64(v) / float64(classes)
		}
		for _, v := range x {
			sum += math.Exp(float64(v) - top)
		}
		lse := top + math.Log(sum)
		loss += weight * (1 - s.Smoothing) * (lse - float64(x[target]))
		if s.Smoothing != 0 { // a mean of -inf has no weight without it
			loss += weight * s.Smoothing * (lse - mean)
		}
		if dx == nil {
			continue
		}
		for k, v := range x {
			d := math.Exp(float64(v)-lse) - s.Smoothing/float64(classes)
			if k == target {
				d -= 1 - s.Smoothing
			}
			dx[row*classes+k] = T(dy * weight * d)
		}
	}
	return loss
}
