package nnop

import (
	"fmt"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
)

// LinearCrossEntropy is a Loss of the logits x times w. Only ChunkRows rows of them exist at a
// time. Inputs are x (rows, in), w (in, classes) and the targets (rows) of int.
type LinearCrossEntropy struct {
	result
	Loss
	ChunkRows int
}

// NewLinearCrossEntropy returns the node of the loss, a scalar.
func NewLinearCrossEntropy(x, w, targets *gorgonia.Node, loss Loss, chunkRows int) (*gorgonia.Node, error) {
	l := &LinearCrossEntropy{Loss: loss, ChunkRows: chunkRows}
	l.result = result{name: fmt.Sprintf("linear cross-entropy %+v rows=%d", loss, chunkRows), inputs: 3, dtype: x.Dtype()}
	return gorgonia.ApplyOp(l, x, w, targets)
}

// Chunks returns the first row of each chunk, and the number of rows. Chunks have one length, a
// multiple of 64 if it is more, except the last one.
func (l *LinearCrossEntropy) Chunks(rows int) []int {
	n := max(1, (rows+l.ChunkRows-1)/l.ChunkRows)
	each := (rows + n - 1) / n
	if up := (each + 63) / 64 * 64; each > 64 && up <= l.ChunkRows {
		each = up
	}
	var starts []int
	for at := 0; at < rows; at += each {
		starts = append(starts, at)
	}
	return append(starts, rows)
}

// Do computes the loss.
//
// Errors: dist.ErrInvalid for a target that is no class, with its row.
func (l *LinearCrossEntropy) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	all, err := l.check(in)
	if err != nil {
		return nil, err
	}
	loss := 0.0
	err = l.each(all, func(_, _ int, labels []int, logits *gtensor.Dense, weight float64) error {
		loss += l.rows(logits, labels, weight, nil, 0)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%v: %w", l, err)
	}
	return scalar(l.dtype, loss), nil
}

// each calls do with the rows, labels and logits of each chunk, and the weight of a row.
func (l *LinearCrossEntropy) each(in []*gtensor.Dense, do func(from, to int, labels []int, logits *gtensor.Dense, weight float64) error) error {
	x, w := in[0], in[1]
	labels, err := labelsOf(in[2])
	if err != nil {
		return err
	}
	if x.Dims() != 2 || w.Dims() != 2 || x.Shape()[0] != len(labels) || x.Shape()[1] != w.Shape()[0] {
		return fmt.Errorf("%w: features of shape %v and a weight of shape %v for %d targets", dist.ErrCount, x.Shape(), w.Shape(), len(labels))
	}
	n, err := Counted(labels, l.Ignore, w.Shape()[1])
	if err != nil {
		return err
	}
	starts := l.Chunks(len(labels))
	for i, from := range starts[:len(starts)-1] {
		to := starts[i+1]
		logits, err := multiply(rowsOf(x, from, to), w, false, false)
		if err != nil {
			return err
		}
		if err := do(from, to, labels[from:to], logits, 1/float64(max(n, 1))); err != nil {
			return err
		}
	}
	return nil
}

// rowsOf returns rows of a matrix in C order, in its memory.
func rowsOf(d *gtensor.Dense, from, to int) *gtensor.Dense {
	n := d.Shape()[1]
	if e := elements[float32](d); e != nil {
		return gtensor.New(gtensor.WithShape(to-from, n), gtensor.WithBacking(e[from*n:to*n]))
	}
	return gtensor.New(gtensor.WithShape(to-from, n), gtensor.WithBacking(elements[float64](d)[from*n:to*n]))
}

// multiply returns the product of two matrices in C order, each transposed if asked for. Gorgonia
// transposes in the header of a tensor, so the factors get headers of their own.
func multiply(a, b *gtensor.Dense, transA, transB bool) (*gtensor.Dense, error) {
	a, b = rowsOf(a, 0, a.Shape()[0]), rowsOf(b, 0, b.Shape()[0])
	for _, f := range []struct {
		d    *gtensor.Dense
		turn bool
	}{{a, transA}, {b, transB}} {
		if f.turn {
			if err := f.d.T(); err != nil {
				return nil, err
			}
		}
	}
	product, err := a.MatMul(b)
	if err != nil {
		return nil, err
	}
	return denseOf(product)
}

// DiffWRT is true for the features and the weight.
func (*LinearCrossEntropy) DiffWRT(inputs int) []bool { return first(2, inputs) }

// SymDiff returns the gradients of the features and of the weight.
func (l *LinearCrossEntropy) SymDiff(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	grads := make(gorgonia.Nodes, len(in))
	for i := range 2 {
		g := &LinearCrossEntropyGrad{Of: l, OfWeight: i == 1}
		name := [...]string{"gradient of the features of ", "gradient of the weight of "}[i]
		g.result = result{name: name + l.name, inputs: 4, dtype: l.dtype, shape: in[i].Shape().Clone()}
		var err error
		if grads[i], err = gorgonia.ApplyOp(g, in[0], in[1], in[2], dy); err != nil {
			return nil, err
		}
	}
	return grads, nil
}

// LinearCrossEntropyGrad is the gradient of a LinearCrossEntropy by its features, or by its weight.
// Inputs are those of the loss and the gradient of the loss.
type LinearCrossEntropyGrad struct {
	result
	Of       *LinearCrossEntropy
	OfWeight bool
}

// Which returns the input of the loss whose gradient it is: 0 for the features, 1 for the weight.
func (g *LinearCrossEntropyGrad) Which() int {
	if g.OfWeight {
		return 1
	}
	return 0
}

// Do computes the logits again, chunk by chunk.
//
// Errors: those of the loss.
func (g *LinearCrossEntropyGrad) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	all, err := g.check(in)
	if err != nil {
		return nil, err
	}
	dy, sum := numberOf(all[3]), g.fresh()
	err = g.Of.each(all[:3], func(from, to int, labels []int, logits *gtensor.Dense, weight float64) error {
		d := gtensor.New(gtensor.Of(g.dtype), gtensor.WithShape(logits.Shape().Clone()...))
		g.Of.rows(logits, labels, weight, d, dy)
		if g.OfWeight {
			part, err := multiply(rowsOf(all[0], from, to), d, true, false)
			if err == nil {
				_, err = sum.Add(part, gtensor.UseUnsafe())
			}
			return err
		}
		part, err := multiply(d, all[1], false, true)
		if err == nil {
			err = gtensor.Copy(rowsOf(sum, from, to), part)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%v: %w", g, err)
	}
	return sum, nil
}

// DiffWRT is false for all inputs.
func (*LinearCrossEntropyGrad) DiffWRT(inputs int) []bool { return make([]bool, inputs) }

// SymDiff returns an error.
func (g *LinearCrossEntropyGrad) SymDiff(gorgonia.Nodes, *gorgonia.Node, *gorgonia.Node) (gorgonia.Nodes, error) {
	return nil, twice(g)
}
