package nnop

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
)

// Loss is the mean, over the rows whose target is not Ignore, of
//
//	(1-Smoothing)*(lse - x[target]) + Smoothing*(lse - mean(x))
//
// with lse = log sum exp(x) of the logits x of the row. Without such a row it is 0.
type Loss struct {
	Ignore    int
	Smoothing float64
}

// SparseCrossEntropy is a Loss of the logits (rows, classes) and the targets (rows) of int, its
// inputs.
type SparseCrossEntropy struct {
	result
	Loss
}

// NewSparseCrossEntropy returns the node of the loss, a scalar.
func NewSparseCrossEntropy(logits, targets *gorgonia.Node, loss Loss) (*gorgonia.Node, error) {
	s := &SparseCrossEntropy{Loss: loss}
	s.result = result{name: fmt.Sprintf("sparse cross-entropy %+v", loss), inputs: 2, dtype: logits.Dtype()}
	return gorgonia.ApplyOp(s, logits, targets)
}

// Do computes the loss.
//
// Errors: dist.ErrInvalid for a target that is no class, with its row.
func (s *SparseCrossEntropy) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	all, err := s.check(in)
	if err != nil {
		return nil, err
	}
	loss, err := s.of(all[0], all[1], nil, 0)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", s, err)
	}
	return scalar(s.dtype, loss), nil
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
	all, err := g.check(in)
	if err != nil {
		return nil, err
	}
	to := g.fresh()
	if _, err = g.Of.of(all[0], all[1], to, numberOf(all[2])); err != nil {
		return nil, fmt.Errorf("%v: %w", g, err)
	}
	return to, nil
}

// DiffWRT is false for all inputs.
func (*SparseCrossEntropyGrad) DiffWRT(inputs int) []bool { return make([]bool, inputs) }

// SymDiff returns an error.
func (g *SparseCrossEntropyGrad) SymDiff(gorgonia.Nodes, *gorgonia.Node, *gorgonia.Node) (gorgonia.Nodes, error) {
	return nil, twice(g)
}

// of returns the loss of all rows, and stores its gradient times dy in dx unless that is nil.
func (l *Loss) of(x, targets, dx *gtensor.Dense, dy float64) (float64, error) {
	labels, err := labelsOf(targets)
	if err == nil && (x.Dims() != 2 || x.Shape()[0] != len(labels)) {
		err = fmt.Errorf("%w: logits of shape %v for %d targets", dist.ErrCount, x.Shape(), len(labels))
	}
	if err != nil {
		return 0, err
	}
	n, err := Counted(labels, l.Ignore, x.Shape()[1])
	if err != nil {
		return 0, err
	}
	return l.rows(x, labels, 1/float64(max(n, 1)), dx, dy), nil
}

// rows returns weight times the sum of the losses of rows, for tensors of either type.
func (l *Loss) rows(x *gtensor.Dense, labels []int, weight float64, dx *gtensor.Dense, dy float64) float64 {
	if x.Dtype() == gtensor.Float32 {
		return entropy(l, elements[float32](x), labels, weight, maybe[float32](dx), dy)
	}
	return entropy(l, elements[float64](x), labels, weight, maybe[float64](dx), dy)
}

func maybe[T real](d *gtensor.Dense) []T {
	if d == nil {
		return nil
	}
	return elements[T](d)
}

// labelsOf returns the elements of a tensor of int.
func labelsOf(targets *gtensor.Dense) ([]int, error) {
	switch e := targets.Data().(type) {
	case []int:
		return e, nil
	case int:
		return []int{e}, nil
	}
	return nil, fmt.Errorf("%w: targets of type %T, want int", dist.ErrDType, targets.Data())
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

// entropy returns weight times the sum of the losses of rows, and stores its gradient times dy in
// dx unless that is nil.
func entropy[T real](l *Loss, x []T, labels []int, weight float64, dx []T, dy float64) (loss float64) {
	classes := len(x) / max(len(labels), 1)
	for row, target := range labels {
		if target == l.Ignore {
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
		loss += weight * (1 - l.Smoothing) * (lse - float64(x[target]))
		if l.Smoothing != 0 { // a mean of -inf has no weight without it
			loss += weight * l.Smoothing * (lse - mean)
		}
		if dx == nil {
			continue
		}
		for k, v := range x {
			d := math.Exp(float64(v)-lse) - l.Smoothing/float64(classes)
			if k == target {
				d -= 1 - l.Smoothing
			}
			dx[row*classes+k] = T(dy * weight * d)
		}
	}
	return loss
}
