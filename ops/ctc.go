package ops

import (
	"errors"
	"fmt"
	"hash"
	"math"
	"reflect"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
)

// ctcGradient is the gradient of gorgonia.CTCLoss with respect to log probabilities (Graves et al.
// 2006). Its inputs are those of the loss and the gradient of the loss. Gorgonia's own gradient op
// (op_ctc_loss.go:516) has four faults:
//   - it is right only if a LogSoftMax comes directly before the loss;
//   - it leaves out the divisions of ReductionMean;
//   - it is -Inf for steps after the end of a sequence;
//   - it reads sums of paths that the loss stored in the op, so the loss must have run.
type ctcGradient struct {
	of   *gorgonia.Node // the node of the loss; nil if the op has none
	name string         // of the op, for errors
	mean bool           // the reduction is ReductionMean
}

func newCTCGradient(of *gorgonia.Node, op gorgonia.Op) *ctcGradient {
	red := gorgonia.Reduction(field(op, "reduction", reflect.Uint).Uint())
	return &ctcGradient{of: of, name: op.String(), mean: red == gorgonia.ReductionMean}
}

// ctcRule returns the rule of a CTCLoss.
func ctcRule(n *gorgonia.Node) derivativeRule {
	return derivativeRule{
		wrt: func(inputs int) []bool { return append([]bool{true}, make([]bool, inputs-1)...) },
		grad: func(in gorgonia.Nodes, _, g *gorgonia.Node) (gorgonia.Nodes, error) {
			d, err := applyUnique(newCTCGradient(n, n.Op()), in[0], in[1], in[2], in[3], g)
			return gorgonia.Nodes{d, nil, nil, nil}, err
		},
	}
}

// Corrected returns an op whose Do gives the right result for op. It returns op itself, except for
// the gradient of gorgonia.CTCLoss.
func Corrected(op gorgonia.Op) gorgonia.Op {
	if fmt.Sprintf("%T", op) == "*gorgonia.ctcLossDiffOp" {
		return newCTCGradient(nil, op)
	}
	return op
}

// Arity is 5.
func (*ctcGradient) Arity() int { return 5 }

// Type returns the types of the inputs unchanged.
func (c *ctcGradient) Type() hm.Type {
	var types []hm.Type
	for _, in := range Children(c.of) {
		types = append(types, in.Type())
	}
	return hm.NewFnType(append(types, c.of.Type(), types[0])...)
}

func (*ctcGradient) InferShape(in ...gorgonia.DimSizer) (gtensor.Shape, error) {
	return firstShape(in)
}

func (*ctcGradient) ReturnsPtr() bool { return true }

func (*ctcGradient) CallsExtern() bool { return false }

func (*ctcGradient) OverwritesInput() int { return -1 }

// WriteHash writes the ID of the loss's node, which no other op of the graph writes.
func (c *ctcGradient) WriteHash(h hash.Hash) {
	_, _ = fmt.Fprintf(h, "symgrad gradient of ctc loss %d", c.of.ID())
}

func (c *ctcGradient) Hashcode() uint32 { return hashOf(c) }

// String returns "gradient of CTCLoss{}()".
func (c *ctcGradient) String() string { return "gradient of " + c.name }

// Do computes the gradient. It is NaN for a sequence whose labels no path gives: there the loss is
// infinite.
//
// Errors: dist.ErrInvalid for labels or lengths out of range.
func (c *ctcGradient) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	if len(in) != 5 {
		return nil, fmt.Errorf("%v: %w: %d inputs", c, dist.ErrInvalid, len(in))
	}
	x, err := compacted(in[0])
	if err != nil || x.Dims() != 3 {
		return nil, fmt.Errorf("%v: %w: probabilities of shape %v, want 3 axes",
			c, dist.ErrInvalid, in[0].Shape())
	}
	var ints [3][]int
	for i := range ints {
		t, err := compacted(in[i+1])
		var ok bool
		if err == nil {
			ints[i], ok = t.Data().([]int)
		}
		if !ok {
			return nil, fmt.Errorf("%v: %w: input %d is a %T, want a tensor of int",
				c, dist.ErrDType, i+1, in[i+1].Data())
		}
	}
	d := gtensor.New(gtensor.Of(x.Dtype()), gtensor.WithShape(x.Shape().Clone()...))
	grad, err := numberOf(in[4])
	of := ctcTask{mean: c.mean, shape: x.Shape(), labels: in[1].Shape(), ints: ints, grad: grad}
	switch e := x.Data().(type) {
	case []float64:
		err = errors.Join(err, ctcBatch(of, d.Float64s(), e))
	case []float32:
		err = errors.Join(err, ctcBatch(of, d.Float32s(), e))
	default:
		err = fmt.Errorf("%w: elements of type %T", dist.ErrDType, e)
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w", c, err)
	}
	return d, nil
}

// compacted returns the tensor of v with its elements in C order.
func compacted(v gorgonia.Value) (*gtensor.Dense, error) {
	d, ok := v.(*gtensor.Dense)
	if !ok {
		return nil, fmt.Errorf("%w: %T is no tensor", dist.ErrInvalid, v)
	}
	if d.RequiresIterator() {
		return d.Materialize().(*gtensor.Dense), nil
	}
	return d, nil
}

// ctcTask holds the inputs of a ctcGradient, except the probabilities.
type ctcTask struct {
	mean   bool          // the reduction is ReductionMean
	shape  gtensor.Shape // of the probabilities: steps, sequences and classes
	labels gtensor.Shape // of the labels: sequences and labels, or the labels of all sequences in a row
	ints   [3][]int      // the labels, the numbers of steps and the numbers of labels
	grad   float64       // of the loss
}

// ctcBatch subtracts the gradients of all sequences from d, which starts at zero.
func ctcBatch[T float32 | float64](of ctcTask, d, x []T) error {
	steps, batch, classes, ints := of.shape[0], of.shape[1], of.shape[2], of.ints
	if len(ints[1]) != batch || len(ints[2]) != batch {
		return fmt.Errorf("%w: lengths of %d and %d sequences, want %d",
			dist.ErrInvalid, len(ints[1]), len(ints[2]), batch)
	}
	at := 0
	for b := range batch {
		if of.labels.Dims() == 2 {
			at = b * of.labels[1]
		}
		t, n := ints[1][b], ints[2][b]
		if t < 1 || t > steps || n < 0 || at+n > len(ints[0]) {
			return fmt.Errorf("%w: sequence %d has %d steps and %d labels; its parts have %d and %d",
				dist.ErrInvalid, b, t, n, steps, len(ints[0])-at)
		}
		path := make([]int, 2*n+1) // the labels, with a blank before, between and after them
		for i, label := range ints[0][at : at+n] {
			if label < 0 || label >= classes {
				return fmt.Errorf("%w: label %d of sequence %d is %d, want 0 to %d",
					dist.ErrInvalid, i, b, label, classes-1)
			}
			path[2*i+1] = label
		}
		at += n
		weight := of.grad
		if of.mean {
			weight /= float64(max(n, 1) * batch)
		}
		place := func(t, class int) int { return (t*batch+b)*classes + class }
		log := func(t, class int) float64 { return float64(x[place(t, class)]) }
		ctcSequence(path, t, log, func(t, class int, p float64) { d[place(t, class)] -= T(weight * p) })
	}
	return nil
}

// ctcSequence calls add for each step and each position of path, with the probability that a path
// with these labels is at the position.
func ctcSequence(path []int, steps int, log func(t, class int) float64,
	add func(t, class int, p float64),
) {
	s := len(path)
	jumps := func(i int) bool { // whether a path goes from i-2 to i
		return i > 1 && i < s && path[i] != 0 && path[i] != path[i-2]
	}
	forward, backward := make([]float64, steps*s), make([]float64, steps*s)
	for i := range forward {
		forward[i], backward[i] = math.Inf(-1), math.Inf(-1)
	}
	for i := range min(s, 2) {
		forward[i], backward[steps*s-1-i] = log(0, path[i]), 0
	}
	for t := 1; t < steps; t++ {
		for i, class := range path {
			last := forward[(t-1)*s : t*s]
			sum := last[i]
			if i > 0 {
				sum = logAdd(sum, last[i-1])
			}
			if jumps(i) {
				sum = logAdd(sum, last[i-2])
			}
			forward[t*s+i] = sum + log(t, class)
		}
	}
	for t := steps - 2; t >= 0; t-- {
		next := func(i int) float64 { return backward[(t+1)*s+i] + log(t+1, path[i]) }
		for i := range path {
			sum := next(i)
			if i+1 < s {
				sum = logAdd(sum, next(i+1))
			}
			if jumps(i + 2) {
				sum = logAdd(sum, next(i+2))
			}
			backward[t*s+i] = sum
		}
	}
	total := forward[steps*s-1]
	if s > 1 {
		total = logAdd(total, forward[steps*s-2])
	}
	for t := range steps {
		for i, class := range path {
			add(t, class, math.Exp(forward[t*s+i]+backward[t*s+i]-total))
		}
	}
}

// logAdd returns log(exp(a) + exp(b)).
func logAdd(a, b float64) float64 {
	high := max(a, b)
	if math.IsInf(high, -1) {
		return high
	}
	return high + math.Log1p(math.Exp(min(a, b)-high))
}

// numberOf returns the only element of v.
func numberOf(v gorgonia.Value) (float64, error) {
	switch e := v.Data().(type) {
	case float64:
		return e, nil
	case float32:
		return float64(e), nil
	case []float64:
		return e[0], nil
	case []float32:
		return float64(e[0]), nil
	}
	return 0, fmt.Errorf("%w: a number of type %T", dist.ErrDType, v.Data())
}
