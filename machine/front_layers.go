package machine

import (
	"fmt"
	"math"
	"reflect"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/internal/values"
	"github.com/symgrad/symgrad/tensor"
)

// norm has the results of a batch normalization that its gradient needs.
type norm struct {
	op         *program.BatchNorm
	mean, rstd operand
	over       *overRanks // of an ops.BatchNorm, instead of the other fields
}

// batchNorm lowers a gorgonia.BatchNormOp, whose running statistics are updated in place.
// Gorgonia's momentum is the share of the new ones (op_nn.go:1377).
func (l *lowering) batchNorm(c *current) (operand, error) {
	x := l.stored(c.in[0])
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
	l.marks = append(l.marks, markFlag(c.f.flag("training")))
	mean, variance := op.Stats()
	runMean, err := l.state("running mean", mean)
	if err != nil {
		return operand{}, err
	}
	runVar, err := l.state("running variance", variance)
	if err != nil {
		return operand{}, err
	}
	space := []int{b.N, b.C, b.Spatial}
	y := l.fresh(c.dtype, space)
	k := &norm{op: b, mean: l.fresh(c.dtype, []int{b.C}), rstd: l.fresh(c.dtype, []int{b.C})}
	s := program.Step{
		Op: b, In: []program.View{l.reshape(x, space).view, runMean.view, runVar.view},
		Out: []program.View{y.view, k.mean.view, k.rstd.view},
	}
	if b.Training {
		s.Out = append(s.Out, runMean.view, runVar.view)
	}
	l.add(s)
	l.norms[reflect.ValueOf(op).Pointer()] = k
	return l.reshape(y, x.shape), nil
}

// state returns the value of a tensor that an op keeps from step to step.
func (l *lowering) state(name string, t gtensor.Tensor) (operand, error) {
	d, ok := t.(*gtensor.Dense)
	if !ok {
		return operand{}, fmt.Errorf("%s: %T is not a dense tensor", name, t)
	}
	dt, err := values.DType(d.Dtype())
	if err != nil {
		return operand{}, fmt.Errorf("%s: %w", name, err)
	}
	at, err := values.Memory(d, dt)
	if err != nil {
		return operand{}, fmt.Errorf("%s: %w", name, err)
	}
	id := l.p.Add(program.Value{
		Name: l.label + " " + name, DType: dt, Shape: []int{at.Len()}, Role: program.State, Place: program.Outside,
	})
	l.states = append(l.states, state{id, at})
	return l.whole(id), nil
}

// batchNormGrad lowers the gradient of a batch normalization, from x and dy.
func (l *lowering) batchNormGrad(c *current) (operand, error) {
	k := l.norms[uintptr(c.f.pointer("BatchNormOp"))]
	if k == nil {
		return operand{}, fmt.Errorf("the batch normalization that it belongs to has not run")
	}
	op := &program.BatchNormGrad{N: k.op.N, C: k.op.C, Spatial: k.op.Spatial, Training: k.op.Training}
	space := []int{op.N, op.C, op.Spatial}
	x, dy := l.reshape(l.stored(c.in[0]), space), l.reshape(l.stored(c.in[1]), space)
	o, err := l.through(op, []operand{dy, x, k.mean, k.rstd}, c, space)
	if err != nil {
		return o, err
	}
	return l.reshape(o, c.in[0].shape), nil
}

// dropout lowers gorgonia.Dropout: it keeps an element, divided by 1-p, if its random number is
// below 1-p (op_dropout.go:112).
func (l *lowering) dropout(c *current) (operand, error) {
	return l.dropped(c, c.in[0], reflect.ValueOf(c.n.Op()).Pointer())
}

// dropoutGrad applies the dropout of the forward pass to dy, with the same random numbers.
func (l *lowering) dropoutGrad(c *current) (operand, error) {
	return l.dropped(c, c.in[2], uintptr(c.f.pointer("dropoutOp")))
}

func (l *lowering) dropped(c *current, x operand, op uintptr) (operand, error) {
	p := c.f.float("probability")
	l.marks = append(l.marks, markFlag(c.f.flag("isTraining")))
	switch {
	case p == 0 || !c.f.bool("isTraining"):
		return x, nil
	case !(p > 0 && p < 1):
		return operand{}, fmt.Errorf("a probability of %v", p)
	}
	if _, ok := l.drops[op]; !ok {
		l.drops[op] = len(l.drops)
	}
	keep := 1 - p
	m := l.newCode(x.shape)
	r := m.do(program.Less, m.rand(dropoutKey, l.drops[op]), m.constant(keep))
	return m.result(m.do(program.Select, r, m.do(program.Div, m.load(x), m.constant(keep)), m.constant(0)), c.dtype)
}

// Kinds of random numbers. Each use of one has its own key.
const (
	dropoutKey = iota
	uniformKey
	normalKey
	binomialKey
)

// rand returns the register of a random number in [0, 1), use number n of a kind. The numbers of a
// sample depend on its place in the whole batch, not on its place in this rank's batch.
func (c *code) rand(kind, n int) int {
	l := c.l
	if l.p.Clock == program.None {
		l.p.Clock = l.p.Add(program.Value{
			Name: "clock", DType: tensor.U64, Shape: []int{2}, Role: program.Input, Place: program.Outside,
		})
	}
	size := sizeOf(c.space)
	unit := size / max(l.samples, 1)
	if l.samples == 0 || size%l.samples != 0 {
		unit = size
		if len(c.space) > 0 {
			unit = size / max(c.space[0], 1)
		}
	}
	key := l.cfg.Seed*0x9e3779b97f4a7c15 + uint64(kind)<<32 + uint64(n) + 1
	return c.put(program.Instr{Op: program.Rand, Key: key, PerUnit: unit})
}

// random lowers gorgonia.UniformRandomNode, GaussianRandomNode and BinomialRandomNode, drawn anew
// at each run.
func (l *lowering) random(c *current) (operand, error) {
	a, b, which := c.f.float("a"), c.f.float("b"), c.f.code("which")
	op := uintptr(c.n.ID()) // each node draws its own
	if _, ok := l.drops[op]; !ok {
		l.drops[op] = len(l.drops)
	}
	m := l.newCode(l.shapeOf(c.n))
	switch which {
	case 0:
		u := m.rand(uniformKey, l.drops[op])
		return m.result(m.do(program.Add, m.do(program.Mul, u, m.constant(b-a)), m.constant(a)), c.dtype)
	case 1: // Box and Muller: sqrt(-2 ln u) cos(2 pi v), with u in (0, 1]
		u := m.do(program.Sub, m.constant(1), m.rand(normalKey, 2*l.drops[op]))
		r := m.do(program.Sqrt, m.do(program.Mul, m.constant(-2), m.do(program.Log, u)))
		angle := m.do(program.Mul, m.constant(2*math.Pi), m.rand(normalKey, 2*l.drops[op]+1))
		z := m.do(program.Mul, r, m.do(program.Cos, angle))
		return m.result(m.do(program.Add, m.do(program.Mul, z, m.constant(b)), m.constant(a)), c.dtype)
	case 2:
		return l.binomial(c, l.drops[op], a, b)
	}
	return operand{}, fmt.Errorf("random numbers of distribution %d", which)
}
