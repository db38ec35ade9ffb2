package machine

import (
	"errors"
	"fmt"
	"reflect"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// norms has the rules of normalizations.
type norms struct {
	work
	traffic *traffic
	forward map[uintptr]*norm // by op of Gorgonia
	layers  map[*ops.BatchNorm]*overRanks
}

func (no *norms) rules() map[string]rule {
	return map[string]rule{
		"*gorgonia.BatchNormOp":     {inputs: 1, lower: no.batchNorm},
		"*gorgonia.batchnormDiffOp": {inputs: 2, lower: no.batchNormGrad},
		"*ops.batchNorm":            {inputs: 1, lower: no.overRanks},
		"*gorgonia.GroupNormOp":     {inputs: 1, lower: no.groupNorm},
		"*gorgonia.groupNormDiffOp": {inputs: 2, lower: no.groupNormGrad},
	}
}

// norm has the results of a batch normalization that its gradient needs.
type norm struct {
	op         *program.BatchNorm
	mean, rstd operand
}

// batchNorm lowers a gorgonia.BatchNormOp, whose running statistics are updated in place.
// Gorgonia's momentum is the share of the new ones (op_nn.go:1377).
func (no *norms) batchNorm(c *current) (operand, error) {
	x := no.stored(c.in[0])
	op, ok := c.n.Op().(*gorgonia.BatchNormOp)
	if !ok || len(x.shape) < 2 {
		return operand{}, fmt.Errorf("a batch normalization of shape %v", x.shape)
	}
	b := &program.BatchNorm{
		N: x.shape[0], C: x.shape[1], Spatial: sizeOf(x.shape[2:]),
		Momentum: 1 - c.f.float("momentum"), Epsilon: c.f.float("epsilon"), Training: c.f.bool("training"),
	}
	n := float64(b.N * b.Spatial)
	b.Unbias = n / max(n-1, 1)
	if b.Training && n == 1 {
		return operand{}, fmt.Errorf("one sample of one element has no variance to train with")
	}
	if c.f.err != nil {
		return operand{}, c.f.err
	}
	no.out.marks = append(no.out.marks, markFlag(c.f.flag("training")))
	mean, variance := op.Stats()
	runMean, err := no.state("running mean", mean)
	if err != nil {
		return operand{}, err
	}
	runVar, err := no.state("running variance", variance)
	if err != nil {
		return operand{}, err
	}
	space := []int{b.N, b.C, b.Spatial}
	y := no.fresh(c.dtype, space)
	k := &norm{op: b, mean: no.fresh(c.dtype, []int{b.C}), rstd: no.fresh(c.dtype, []int{b.C})}
	s := program.Step{
		Op: b, In: []program.View{no.reshape(x, space).view, runMean.view, runVar.view},
		Out: []program.View{y.view, k.mean.view, k.rstd.view},
	}
	if b.Training {
		s.Out = append(s.Out, runMean.view, runVar.view)
	}
	no.add(s)
	no.forward[reflect.ValueOf(op).Pointer()] = k
	return no.reshape(y, x.shape), nil
}

// batchNormGrad lowers the gradient of a batch normalization, from x and dy.
func (no *norms) batchNormGrad(c *current) (operand, error) {
	k := no.forward[uintptr(c.f.pointer("BatchNormOp"))]
	if k == nil {
		return operand{}, fmt.Errorf("the batch normalization that it belongs to has not run")
	}
	op := &program.BatchNormGrad{N: k.op.N, C: k.op.C, Spatial: k.op.Spatial, Training: k.op.Training}
	space := []int{op.N, op.C, op.Spatial}
	x, dy := no.reshape(no.stored(c.in[0]), space), no.reshape(no.stored(c.in[1]), space)
	o, err := no.through(op, []operand{dy, x, k.mean, k.rstd}, c, space)
	if err != nil {
		return o, err
	}
	return no.reshape(o, c.in[0].shape), nil
}

// normGroups returns the operand of a gorgonia.GroupNorm as (groups of all samples, elements of a
// group).
func (no *norms) normGroups(c *current, o operand) (operand, error) {
	n, channels := c.f.int("numGroups"), 0
	if len(o.shape) > 1 {
		channels = o.shape[1]
	}
	if c.f.err != nil {
		return o, c.f.err
	}
	if n < 1 || channels == 0 || channels%n != 0 {
		return o, fmt.Errorf("%d groups of the channels of shape %v", n, o.shape)
	}
	all := o.shape[0] * n
	return no.reshape(no.stored(o), []int{all, o.len() / max(all, 1)}), nil
}

// moments returns mean and 1/sqrt(variance+epsilon) of each group of x, over the space of x.
func (no *norms) moments(c *current, x operand) (mean, rstd operand, err error) {
	n, along := x.shape[1], []bool{false, true}
	epsilon := c.f.float("epsilon")
	each := func(o operand) operand { return stretch(no.reshape(o, []int{x.shape[0], 1}), 1, n) }
	m := no.newCode(x.shape)
	m.do(program.Div, m.load(x), m.constant(float64(n)))
	if mean, err = m.reduceTo(along, program.Sum, no.fresh(c.dtype, x.shape[:1])); err != nil {
		return mean, rstd, err
	}
	mean = each(mean)
	m = no.newCode(x.shape)
	m.do(program.Div, m.do(program.Square, m.do(program.Sub, m.load(x), m.load(mean))), m.constant(float64(n)))
	variance, err := m.reduceTo(along, program.Sum, no.fresh(c.dtype, x.shape[:1]))
	if err != nil {
		return mean, rstd, err
	}
	m = no.newCode(x.shape[:1])
	rstd, err = m.result(m.do(program.Inverse, m.do(program.Sqrt, m.do(program.Add, m.load(variance), m.constant(epsilon)))), c.dtype)
	return mean, each(rstd), err
}

// groupNorm lowers the op of gorgonia.GroupNorm: x less the mean of its group, divided by the
// group's standard deviation.
func (no *norms) groupNorm(c *current) (operand, error) {
	x, err := no.normGroups(c, c.in[0])
	if err != nil {
		return operand{}, err
	}
	mean, rstd, err := no.moments(c, x)
	if err != nil {
		return operand{}, err
	}
	m := no.newCode(x.shape)
	y, err := m.result(m.do(program.Mul, m.do(program.Sub, m.load(x), m.load(mean)), m.load(rstd)), c.dtype)
	if err != nil {
		return y, err
	}
	return no.reshape(y, c.in[0].shape), nil
}

// groupNormGrad lowers its gradient, from x and dy: (dy - mean(dy) - xhat*mean(dy*xhat)) * rstd.
// The moments repeat those of the forward pass, whose steps an optimized program shares.
func (no *norms) groupNormGrad(c *current) (operand, error) {
	x, err := no.normGroups(c, c.in[0])
	if err != nil {
		return operand{}, err
	}
	dy, err := no.normGroups(c, c.in[1])
	if err != nil {
		return operand{}, err
	}
	mean, rstd, err := no.moments(c, x)
	if err != nil {
		return operand{}, err
	}
	n := x.shape[1]
	normal := func(m *code) int { return m.do(program.Mul, m.do(program.Sub, m.load(x), m.load(mean)), m.load(rstd)) }
	average := func(value func(m *code) int) (operand, error) {
		m := no.newCode(x.shape)
		m.do(program.Div, value(m), m.constant(float64(n)))
		to, err := m.reduceTo([]bool{false, true}, program.Sum, no.fresh(c.dtype, x.shape[:1]))
		return stretch(no.reshape(to, []int{x.shape[0], 1}), 1, n), err
	}
	of, err := average(func(m *code) int { return m.load(dy) })
	if err != nil {
		return operand{}, err
	}
	ofProduct, err := average(func(m *code) int { return m.do(program.Mul, m.load(dy), normal(m)) })
	if err != nil {
		return operand{}, err
	}
	m := no.newCode(x.shape)
	r := m.do(program.Sub, m.do(program.Sub, m.load(dy), m.load(of)), m.do(program.Mul, normal(m), m.load(ofProduct)))
	dx, err := m.result(m.do(program.Mul, r, m.load(rstd)), c.dtype)
	if err != nil {
		return dx, err
	}
	return no.reshape(dx, c.in[0].shape), nil
}

// overRanks lowers a node of an ops.BatchNorm.
func (no *norms) overRanks(c *current) (operand, error) {
	d, ok := ops.DescribeBatchNorm(c.n)
	if !ok {
		return operand{}, fmt.Errorf("%T is not an op of a batch normalization over ranks", c.n.Op())
	}
	no.out.marks = append(no.out.marks, markFlag(d.Training))
	if d.Part == ops.BatchNormMoments {
		no.layers[d.Layer] = &overRanks{work: no.work, BatchNormNode: d}
	}
	k := no.layers[d.Layer]
	if k == nil {
		return operand{}, errors.New("the batch normalization that it belongs to has not run")
	}
	switch d.Part {
	case ops.BatchNormGather, ops.BatchNormReduce:
		if !*d.Training {
			return number(0, tensor.F64, no.sizes.of(c.n)), nil
		}
		return no.traffic.collective(c, d.Exchange)
	}
	return k.lower(c, d.Part)
}

func newNorms(w work, t *traffic) *norms {
	return &norms{work: w, traffic: t, forward: map[uintptr]*norm{}, layers: map[*ops.BatchNorm]*overRanks{}}
}
