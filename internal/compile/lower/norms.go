package lower

import (
	"errors"
	"fmt"
	"reflect"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
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
	mean, rstd draft.Operand
}

// batchNorm lowers a gorgonia.BatchNormOp, whose running statistics are updated in place.
// Gorgonia's momentum is the share of the new ones (op_nn.go:1377).
func (no *norms) batchNorm(c *current) (draft.Operand, error) {
	x := no.Stored(c.in[0])
	op, ok := c.n.Op().(*gorgonia.BatchNormOp)
	if !ok || len(x.Shape) < 2 {
		return draft.Operand{}, fmt.Errorf("a batch normalization of shape %v", x.Shape)
	}
	b := &program.BatchNorm{
		N: x.Shape[0], C: x.Shape[1], Spatial: draft.SizeOf(x.Shape[2:]),
		Momentum: 1 - c.f.float("momentum"), Epsilon: c.f.float("epsilon"), Training: c.f.bool("training"),
	}
	n := float64(b.N * b.Spatial)
	b.Unbias = n / max(n-1, 1)
	if b.Training && n == 1 {
		return draft.Operand{}, fmt.Errorf("one sample of one element has no variance to train with")
	}
	if c.f.err != nil {
		return draft.Operand{}, c.f.err
	}
	no.out.Marks = append(no.out.Marks, markFlag(c.f.flag("training")))
	mean, variance := op.Stats()
	runMean, err := no.state("running mean", mean)
	if err != nil {
		return draft.Operand{}, err
	}
	runVar, err := no.state("running variance", variance)
	if err != nil {
		return draft.Operand{}, err
	}
	space := []int{b.N, b.C, b.Spatial}
	y := no.Fresh(c.dtype, space)
	k := &norm{op: b, mean: no.Fresh(c.dtype, []int{b.C}), rstd: no.Fresh(c.dtype, []int{b.C})}
	s := program.Step{
		Op: b, In: []program.View{no.Reshape(x, space).View, runMean.View, runVar.View},
		Out: []program.View{y.View, k.mean.View, k.rstd.View},
	}
	if b.Training {
		s.Out = append(s.Out, runMean.View, runVar.View)
	}
	no.Add(s)
	no.forward[reflect.ValueOf(op).Pointer()] = k
	return no.Reshape(y, x.Shape), nil
}

// batchNormGrad lowers the gradient of a batch normalization, from x and dy.
func (no *norms) batchNormGrad(c *current) (draft.Operand, error) {
	k := no.forward[uintptr(c.f.pointer("BatchNormOp"))]
	if k == nil {
		return draft.Operand{}, fmt.Errorf("the batch normalization that it belongs to has not run")
	}
	op := &program.BatchNormGrad{N: k.op.N, C: k.op.C, Spatial: k.op.Spatial, Training: k.op.Training}
	space := []int{op.N, op.C, op.Spatial}
	x, dy := no.Reshape(no.Stored(c.in[0]), space), no.Reshape(no.Stored(c.in[1]), space)
	o, err := no.through(op, []draft.Operand{dy, x, k.mean, k.rstd}, c, space)
	if err != nil {
		return o, err
	}
	return no.Reshape(o, c.in[0].Shape), nil
}

// normGroups returns the operand of a gorgonia.GroupNorm as (groups of all samples, elements of a
// group).
func (no *norms) normGroups(c *current, o draft.Operand) (draft.Operand, error) {
	n, channels := c.f.int("numGroups"), 0
	if len(o.Shape) > 1 {
		channels = o.Shape[1]
	}
	if c.f.err != nil {
		return o, c.f.err
	}
	if n < 1 || channels == 0 || channels%n != 0 {
		return o, fmt.Errorf("%d groups of the channels of shape %v", n, o.Shape)
	}
	all := o.Shape[0] * n
	return no.Reshape(no.Stored(o), []int{all, o.Len() / max(all, 1)}), nil
}

// moments returns mean and 1/sqrt(variance+epsilon) of each group of x, over the space of x.
func (no *norms) moments(c *current, x draft.Operand) (mean, rstd draft.Operand, err error) {
	n, along := x.Shape[1], []bool{false, true}
	epsilon := c.f.float("epsilon")
	each := func(o draft.Operand) draft.Operand { return draft.Stretch(no.Reshape(o, []int{x.Shape[0], 1}), 1, n) }
	m := no.NewCode(x.Shape)
	m.Do(program.Div, m.Load(x), m.Constant(float64(n)))
	if mean, err = m.ReduceTo(along, program.Sum, no.Fresh(c.dtype, x.Shape[:1])); err != nil {
		return mean, rstd, err
	}
	mean = each(mean)
	m = no.NewCode(x.Shape)
	m.Do(program.Div, m.Do(program.Square, m.Do(program.Sub, m.Load(x), m.Load(mean))), m.Constant(float64(n)))
	variance, err := m.ReduceTo(along, program.Sum, no.Fresh(c.dtype, x.Shape[:1]))
	if err != nil {
		return mean, rstd, err
	}
	m = no.NewCode(x.Shape[:1])
	rstd, err = m.Result(m.Do(program.Inverse, m.Do(program.Sqrt, m.Do(program.Add, m.Load(variance), m.Constant(epsilon)))), c.dtype)
	return mean, each(rstd), err
}

// groupNorm lowers the op of gorgonia.GroupNorm: x less the mean of its group, divided by the
// group's standard deviation.
func (no *norms) groupNorm(c *current) (draft.Operand, error) {
	x, err := no.normGroups(c, c.in[0])
	if err != nil {
		return draft.Operand{}, err
	}
	mean, rstd, err := no.moments(c, x)
	if err != nil {
		return draft.Operand{}, err
	}
	m := no.NewCode(x.Shape)
	y, err := m.Result(m.Do(program.Mul, m.Do(program.Sub, m.Load(x), m.Load(mean)), m.Load(rstd)), c.dtype)
	if err != nil {
		return y, err
	}
	return no.Reshape(y, c.in[0].Shape), nil
}

// groupNormGrad lowers its gradient, from x and dy: (dy - mean(dy) - xhat*mean(dy*xhat)) * rstd.
// The moments repeat those of the forward pass, whose steps an optimized program shares.
func (no *norms) groupNormGrad(c *current) (draft.Operand, error) {
	x, err := no.normGroups(c, c.in[0])
	if err != nil {
		return draft.Operand{}, err
	}
	dy, err := no.normGroups(c, c.in[1])
	if err != nil {
		return draft.Operand{}, err
	}
	mean, rstd, err := no.moments(c, x)
	if err != nil {
		return draft.Operand{}, err
	}
	n := x.Shape[1]
	normal := func(m *draft.Code) int {
		return m.Do(program.Mul, m.Do(program.Sub, m.Load(x), m.Load(mean)), m.Load(rstd))
	}
	average := func(value func(m *draft.Code) int) (draft.Operand, error) {
		m := no.NewCode(x.Shape)
		m.Do(program.Div, value(m), m.Constant(float64(n)))
		to, err := m.ReduceTo([]bool{false, true}, program.Sum, no.Fresh(c.dtype, x.Shape[:1]))
		return draft.Stretch(no.Reshape(to, []int{x.Shape[0], 1}), 1, n), err
	}
	of, err := average(func(m *draft.Code) int { return m.Load(dy) })
	if err != nil {
		return draft.Operand{}, err
	}
	ofProduct, err := average(func(m *draft.Code) int { return m.Do(program.Mul, m.Load(dy), normal(m)) })
	if err != nil {
		return draft.Operand{}, err
	}
	m := no.NewCode(x.Shape)
	r := m.Do(program.Sub, m.Do(program.Sub, m.Load(dy), m.Load(of)), m.Do(program.Mul, normal(m), m.Load(ofProduct)))
	dx, err := m.Result(m.Do(program.Mul, r, m.Load(rstd)), c.dtype)
	if err != nil {
		return dx, err
	}
	return no.Reshape(dx, c.in[0].Shape), nil
}

// overRanks lowers a node of an ops.BatchNorm.
func (no *norms) overRanks(c *current) (draft.Operand, error) {
	d, ok := ops.DescribeBatchNorm(c.n)
	if !ok {
		return draft.Operand{}, fmt.Errorf("%T is not an op of a batch normalization over ranks", c.n.Op())
	}
	no.out.Marks = append(no.out.Marks, markFlag(d.Training))
	if d.Part == ops.BatchNormMoments {
		no.layers[d.Layer] = &overRanks{work: no.work, BatchNormNode: d}
	}
	k := no.layers[d.Layer]
	if k == nil {
		return draft.Operand{}, errors.New("the batch normalization that it belongs to has not run")
	}
	switch d.Part {
	case ops.BatchNormGather, ops.BatchNormReduce:
		if !*d.Training {
			return draft.Number(0, tensor.F64, no.sizes.of(c.n)), nil
		}
		return no.traffic.collective(c, d.Exchange)
	}
	return k.lower(c, d.Part)
}

func newNorms(w work, t *traffic) *norms {
	return &norms{work: w, traffic: t, forward: map[uintptr]*norm{}, layers: map[*ops.BatchNorm]*overRanks{}}
}
