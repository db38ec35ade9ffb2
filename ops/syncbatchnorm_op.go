package ops

import (
	"fmt"
	"hash"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
)

// BatchNormPart is the part that one node of a BatchNorm computes. All statistics are float64. With
// C channels and R ranks:
//
//	part        inputs                            result
//	moments     x, rows                           (1, 1+2C) of this rank: weight, mean, squares
//	gather      moments                           (R, 1+2C): moments of all ranks
//	statistics  gather                            (2+2C): weight, weight of the cost, mean, rstd
//	apply       x, statistics, rows, scale, bias  y
//	sums        dy, x, statistics, rows           (2C): sums of dy and of dy*xhat
//	reduce      sums                              (2C): sums of all ranks
//	dx          dy, x, statistics, reduce, rows, scale
//	dscale      sums, statistics
//	dbias       sums, statistics
//
// Squares are the sums of squared distances from the mean. The weight in statistics is that of all
// rows of all ranks, the weight of the cost that of this rank. rstd is 1/sqrt(variance+epsilon),
// and xhat is the normalized x. Sums are multiplied by the weight of the cost.
//
// Rows, scale and bias are inputs only where the layer has them. Outside training, moments, gather
// and reduce are unused zeros, and no rank communicates.
type BatchNormPart uint8

// The parts.
const (
	BatchNormMoments BatchNormPart = iota
	BatchNormGather
	BatchNormStatistics
	BatchNormApply
	BatchNormSums
	BatchNormReduce
	BatchNormInputGrad
	BatchNormScaleGrad
	BatchNormBiasGrad
)

// String returns "moments", "gather" and so on.
func (p BatchNormPart) String() string {
	names := [...]string{"moments", "gather", "statistics", "apply", "sums", "reduce", "dx", "dscale", "dbias"}
	if int(p) < len(names) {
		return names[p]
	}
	return fmt.Sprintf("part %d", p)
}

// BatchNormNode describes a node of a BatchNorm, for machines that run graphs without calling Do.
type BatchNormNode struct {
	Layer             *BatchNorm
	Part              BatchNormPart
	Training          *bool     // the layer's mode, which may change between runs
	Rows, Scale, Bias bool      // whether the layer has them
	Exchange          Operation // of gather and reduce, in training
}

// DescribeBatchNorm returns the part that n computes. ok is false if n is no node of a BatchNorm.
func DescribeBatchNorm(n *gorgonia.Node) (BatchNormNode, bool) {
	o, ok := n.Op().(*batchNorm)
	if !ok {
		return BatchNormNode{}, false
	}
	b := o.layer
	d := BatchNormNode{Layer: b, Part: o.part, Training: &b.training, Rows: b.has[0], Scale: b.has[1], Bias: b.has[2]}
	if o.part == BatchNormGather || o.part == BatchNormReduce {
		d.Exchange = Operation{Group: b.g, Tensor: o.label(), Kind: o.kind(), Red: dist.Sum, After: dist.Sum, HasResult: true}
	}
	return d, true
}

var (
	_ gorgonia.SDOp        = (*batchNorm)(nil)
	_ gorgonia.ADOp        = (*batchNorm)(nil)
	_ gorgonia.TrainModeOp = (*batchNorm)(nil)
)

// batchNorm is a node of a BatchNorm.
type batchNorm struct {
	effect
	layer *BatchNorm
	part  BatchNormPart
	use   int // number of the gradient that the node belongs to
	in    []form
	out   form
}

// optional returns always and the nodes of more that are not nil.
func optional(always gorgonia.Nodes, more ...*gorgonia.Node) gorgonia.Nodes {
	for _, n := range more {
		if n != nil {
			always = append(always, n)
		}
	}
	return always
}

// build adds the forward nodes.
func (b *BatchNorm) build(x, scale, bias *gorgonia.Node) (*gorgonia.Node, error) {
	n, rows := b.Channels(), b.cfg.Rows
	m, err := b.add(BatchNormMoments, optional(gorgonia.Nodes{x}, rows), 1, 1+2*n)
	if err != nil {
		return nil, err
	}
	if m, err = b.add(BatchNormGather, gorgonia.Nodes{m}, b.g.Size(), 1+2*n); err != nil {
		return nil, err
	}
	if m, err = b.add(BatchNormStatistics, gorgonia.Nodes{m}, 2+2*n); err != nil {
		return nil, err
	}
	return b.addLike(BatchNormApply, optional(gorgonia.Nodes{x, m}, rows, scale, bias), b.x)
}

// add adds a node with float64 statistics.
func (b *BatchNorm) add(part BatchNormPart, in gorgonia.Nodes, shape ...int) (*gorgonia.Node, error) {
	out, err := newForm(gtensor.Float64, shape...)
	if err != nil {
		return nil, b.refuse(in[0], err)
	}
	return b.addLike(part, in, out)
}

// addLike adds a node whose result has the form out.
func (b *BatchNorm) addLike(part BatchNormPart, in gorgonia.Nodes, out form) (*gorgonia.Node, error) {
	o := &batchNorm{layer: b, part: part, use: b.grads, out: out}
	for _, x := range in {
		f, err := formOf(x)
		if err != nil {
			return nil, b.refuse(x, err)
		}
		o.in = append(o.in, f)
	}
	n, err := applyUnique(o, in...)
	if err != nil {
		return nil, b.refuse(in[0], err)
	}
	return n, nil
}

// Arity is the number of inputs.
func (o *batchNorm) Arity() int { return len(o.in) }

// Type returns c → d → ... → the result's type. Gorgonia names the result b while it infers types
// (typeSystem.go:59), so no input may have that name.
func (o *batchNorm) Type() hm.Type {
	types := make([]hm.Type, 0, len(o.in)+1)
	for i := range o.in {
		types = append(types, hm.TypeVariable('c'+rune(i)))
	}
	return hm.NewFnType(append(types, o.out.typ)...)
}

func (o *batchNorm) InferShape(...gorgonia.DimSizer) (gtensor.Shape, error) {
	return o.out.shape.Clone(), nil
}

// SetTraining sets the layer's mode, for machines.
func (o *batchNorm) SetTraining(training bool) error {
	o.layer.SetTraining(training)
	return nil
}

// WriteHash writes the layer, gradient and part, which no other node of the graph shares.
func (o *batchNorm) WriteHash(h hash.Hash) {
	_, _ = fmt.Fprintf(h, "symgrad batch norm %d %d %v", o.layer.number, o.use, o.part)
}

func (o *batchNorm) Hashcode() uint32 { return hashOf(o) }

// String returns "batch norm moments of h0".
func (o *batchNorm) String() string {
	return fmt.Sprintf("batch norm %v of %s", o.part, o.layer.cfg.Name)
}

// kind returns the collective of gather and reduce.
func (o *batchNorm) kind() dist.Kind {
	if o.part == BatchNormGather {
		return dist.KindAllGather
	}
	return dist.KindAllReduce
}

// label names the tensor of a collective, in errors and traces.
func (o *batchNorm) label() string {
	if o.part == BatchNormReduce {
		return o.layer.cfg.Name + ".gradient"
	}
	return o.layer.cfg.Name + ".statistics"
}

// DiffWRT is true for the input, the scale and the bias of apply. Its SymDiff includes the gradient
// through the statistics.
func (o *batchNorm) DiffWRT(inputs int) []bool {
	wrt := make([]bool, inputs)
	if o.part != BatchNormApply {
		return wrt
	}
	for i := range wrt {
		wrt[i] = i == 0 || i >= 2 && (i > 2 || !o.layer.has[0])
	}
	return wrt
}

// SymDiff adds the nodes of the gradient.
//
// Collective: one of these nodes is a collective; all ranks must differentiate. Errors:
// dist.ErrUnsupported for the gradient of a gradient.
func (o *batchNorm) SymDiff(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	b := o.layer
	if o.part != BatchNormApply || len(in) != len(o.in) {
		return nil, fmt.Errorf("gradient of %v: %w", o, dist.ErrUnsupported)
	}
	b.grads++
	x, stats, rest := in[0], in[1], in[2:]
	var optionals [3]*gorgonia.Node // rows, scale, bias
	var at [3]int
	for i, k := 0, 0; i < len(optionals); i++ {
		if b.has[i] {
			optionals[i], at[i] = rest[k], 2+k
			k++
		}
	}
	n := b.Channels()
	sums, err := b.add(BatchNormSums, optional(gorgonia.Nodes{dy, x, stats}, optionals[0]), 2*n)
	if err != nil {
		return nil, err
	}
	total, err := b.add(BatchNormReduce, gorgonia.Nodes{sums}, 2*n)
	if err != nil {
		return nil, err
	}
	grads := make(gorgonia.Nodes, len(in))
	grads[0], err = b.addLike(BatchNormInputGrad, optional(gorgonia.Nodes{dy, x, stats, total}, optionals[0], optionals[1]), b.x)
	if err == nil && b.has[1] {
		grads[at[1]], err = b.addLike(BatchNormScaleGrad, gorgonia.Nodes{sums, stats}, b.scale)
	}
	if err == nil && b.has[2] {
		grads[at[2]], err = b.addLike(BatchNormBiasGrad, gorgonia.Nodes{sums, stats}, b.bias)
	}
	return grads, err
}

// DoDiff returns an error: gorgonia's lisp machine, which calls it, cannot differentiate the layer.
//
// Errors: dist.ErrUnsupported.
func (o *batchNorm) DoDiff(gorgonia.ExecutionContext, gorgonia.Nodes, *gorgonia.Node) error {
	if o.part != BatchNormApply {
		return nil // the other parts have no gradient
	}
	return fmt.Errorf("gradient of %v: %w: use gorgonia.Grad and a tape machine, or package machine", o, dist.ErrUnsupported)
}
