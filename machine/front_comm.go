package machine

import (
	"fmt"
	"math"
	"slices"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// hook is a parameter whose gradient goes to a reducer once it is ready.
type hook struct {
	hook    *ops.Hook
	grad    program.ID // Outside value of the gradient that is passed on; None for a reducer that copies it
	reduced program.ID // Outside value of the Wait node; None if it has no elements
	shape   []int
	gdt     gtensor.Dtype
	copied  int // index of the step that copies the gradient to grad

	// For the current run: the gradient is computed in the reducer's memory; the reduced gradient
	// is in place.
	inPlace, placed bool
}

// communication returns the operand of a node of package ops; false for other nodes.
func (l *lowering) communication(c *current) (operand, bool, error) {
	switch c.n.Op().(type) {
	case *ops.Begin, *ops.Join, *ops.Start, *ops.Wait:
		if l.exchange != nil {
			o, err := l.exchanging(c)
			return o, true, err
		}
	}
	switch op := c.n.Op().(type) {
	case *ops.Hook:
		return c.in[0], true, nil
	case *ops.Begin:
		l.call(&call{label: "begin", begin: op}, nil, nil)
		return c.in[0], true, nil
	case *ops.Join:
		l.call(&call{label: "join", join: op}, nil, nil)
		return c.in[0], true, nil
	case *ops.Start:
		o, err := l.start(c, op)
		return o, true, err
	case *ops.Wait:
		o, err := l.wait(c, op)
		return o, true, err
	}
	if i, ok := ops.Identity(c.n); ok && i < len(c.in) {
		return c.in[i], true, nil
	}
	if o, ok, err := l.gatheredPart(c); ok {
		return o, true, err
	}
	if op, ok := ops.Describe(c.n); ok {
		o, err := l.collective(c, op)
		return o, true, err
	}
	return operand{}, false, nil
}

// call adds a step that runs a host function.
func (l *lowering) call(f *call, in, out []program.View) {
	l.calls = append(l.calls, f)
	l.add(program.Step{Op: &program.Call{Func: len(l.calls) - 1, Label: f.label, Copies: f.op != nil}, In: in, Out: out})
}

// start passes a gradient to its reducer. The gradient is an Outside value, so that it can be in
// the reducer's memory, where the step that computes it then writes it (see born).
func (l *lowering) start(c *current, op *ops.Start) (operand, error) {
	h := &hook{
		hook: op.Hook(), grad: program.None, reduced: program.None,
		gdt: op.Hook().Param().Dtype(), shape: l.shapeOf(op.Hook().Param()),
	}
	g := c.in[0]
	if g.len() != sizeOf(h.shape) {
		return operand{}, fmt.Errorf("a gradient of shape %v for a parameter of shape %v", g.shape, h.shape)
	}
	l.hooks = append(l.hooks, h)
	if isStaged(h.hook.Reducer()) {
		l.startStaged(h, g)
		return g, nil
	}
	h.grad = l.p.Add(program.Value{
		Name: l.label, DType: g.dtype, Shape: slices.Clone(h.shape), Role: program.Gradient, Place: program.Outside,
	})
	to := l.whole(h.grad)
	l.copyTo(to, l.reshape(g, h.shape))
	h.copied = len(l.p.Steps) - 1
	l.call(&call{label: "start " + h.hook.Param().Name(), start: h}, []program.View{to.view}, nil)
	return g, nil
}

// wait returns the reduced gradient.
func (l *lowering) wait(c *current, op *ops.Wait) (operand, error) {
	i := slices.IndexFunc(l.hooks, func(h *hook) bool { return h.hook == op.Hook() })
	if i < 0 {
		return operand{}, fmt.Errorf("its start has not run")
	}
	h := l.hooks[i]
	label := "wait " + h.hook.Param().Name()
	if l.isSharded(h.hook.Param()) {
		l.call(&call{label: label, wait: h}, nil, nil)
		return number(0, c.dtype, h.shape), nil
	}
	h.reduced = l.p.Add(program.Value{
		Name: l.label, DType: c.dtype, Shape: slices.Clone(h.shape), Role: program.Gradient, Place: program.Outside,
	})
	o := l.whole(h.reduced)
	l.call(&call{label: label, wait: h}, nil, []program.View{o.view})
	return o, nil
}

// born removes copies to reducers: the step that computes a gradient writes it to the reducer's
// memory, if only the copy reads it. The reducer may change it at once.
func (l *lowering) born() {
	drop := make([]bool, len(l.p.Steps))
	for _, h := range l.hooks {
		if h.grad == program.None {
			continue
		}
		s := &l.p.Steps[h.copied]
		if len(s.In) == 0 { // the gradient is a constant number
			continue
		}
		from := s.In[0]
		v := &l.p.Values[from.Value]
		if v.Place != program.Arena || v.Role != program.Temp || from.Offset != 0 || v.Len() != sizeOf(h.shape) ||
			!slices.Equal(from.Strides, program.Contiguous(h.shape)) || l.readers(from.Value) != 1 || l.isForeign(from.Value) {
			continue
		}
		l.rename(from.Value, h.grad)
		drop[h.copied] = true
	}
	kept := l.p.Steps[:0]
	for i, s := range l.p.Steps {
		if !drop[i] {
			kept = append(kept, s)
		}
	}
	l.p.Steps = kept
}

// readers returns the number of steps that read a value.
func (l *lowering) readers(id program.ID) int {
	n := 0
	for i := range l.p.Steps {
		if slices.ContainsFunc(l.p.Steps[i].In, func(v program.View) bool { return v.Value == id }) {
			n++
		}
	}
	return n
}

// isForeign reports whether a Call or a Collective, whose views have the value's own shape, writes
// a value.
func (l *lowering) isForeign(id program.ID) bool {
	for i := range l.p.Steps {
		switch l.p.Steps[i].Op.(type) {
		case *program.Call, *program.Collective:
			if slices.ContainsFunc(l.p.Steps[i].Out, func(v program.View) bool { return v.Value == id }) {
				return true
			}
		}
	}
	return false
}

// rename replaces value from by value to in all steps.
func (l *lowering) rename(from, to program.ID) {
	for i := range l.p.Steps {
		for _, views := range [][]program.View{l.p.Steps[i].In, l.p.Steps[i].Out} {
			for k := range views {
				if views[k].Value == from {
					views[k].Value = to
				}
			}
		}
	}
}

// wholeOf returns o as a whole value, a copy if needed.
func (l *lowering) wholeOf(o operand) operand {
	o = l.stored(o)
	v := &l.p.Values[o.view.Value]
	if o.view.Offset == 0 && v.Len() == o.len() && slices.Equal(o.view.Strides, program.Contiguous(o.shape)) && v.Place != program.Constant {
		return l.whole(o.view.Value)
	}
	return l.copyOf(o)
}

// collective returns the operand of an op of package ops that communicates.
func (l *lowering) collective(c *current, op ops.Operation) (operand, error) {
	l.label = op.Tensor
	x := l.wholeOf(c.in[0])
	shape, err := l.gathered(c, op, c.in[0].shape)
	if err != nil {
		return operand{}, err
	}
	switch op.Kind {
	case dist.KindBarrier, dist.KindSend, dist.KindRecv:
		return l.message(c, op, x, shape)
	}
	to := l.fresh(c.dtype, shape)
	s := program.Step{In: []program.View{x.view}, Out: []program.View{to.view}}
	red := op.Red
	if op.Kind.Reduces() && red.Kind == dist.RedPreMulSum {
		s.In = append(s.In, l.factor(red.Scalar).view)
		red.Scalar = dist.Scalar{}
	}
	s.Op = &program.Collective{Kind: op.Kind, Red: red, Root: op.Peer, Group: l.group(op.Group), Fetch: isFetch(c)}
	l.add(s)
	if !op.HasResult {
		return number(0, c.dtype, shape), nil
	}
	return l.weighted(c, op, to)
}

// group returns the number of a group in the program. All collectives of a group share it, as a run
// is announced once to each number.
func (l *lowering) group(g *dist.Group) int {
	if i := slices.Index(l.groups, g); i >= 0 {
		return i
	}
	l.groups = append(l.groups, g)
	return len(l.groups) - 1
}

// message adds a Send, a Recv or a Barrier as a call, since the peer's side is not in this program.
func (l *lowering) message(c *current, op ops.Operation, x operand, shape []int) (operand, error) {
	op.Group = op.Group.With(dist.Hints{Name: op.Tensor})
	f := &call{label: fmt.Sprintf("%v %s", op.Kind, op.Tensor), message: &op}
	in, to := []program.View{x.view}, l.fresh(c.dtype, shape)
	switch op.Kind {
	case dist.KindSend: // the token is 0 and is ready when the peer has received x
		l.call(f, in, []program.View{to.view})
		return to, nil
	case dist.KindRecv:
		to = l.fresh(c.dtype, l.shapeOf(c.n))
		l.call(f, in, []program.View{to.view})
		return l.weighted(c, op, to)
	}
	l.call(f, in, []program.View{to.view})
	return to, nil
}

// gathered returns the shape of a collective's result.
//
// Errors: dist.ErrCount when inputs have other shapes than in the graph, and the number of ranks no
// longer divides axis 0.
func (l *lowering) gathered(c *current, op ops.Operation, shape []int) ([]int, error) {
	if !l.resized || op.Kind == dist.KindSend {
		return l.shapeOf(c.n), nil
	}
	shape = slices.Clone(shape)
	n := op.Group.Size()
	switch op.Kind {
	case dist.KindReduceScatter, dist.KindScatter, dist.KindAllToAll:
		if shape[0]%n != 0 {
			return nil, fmt.Errorf("%w: axis 0 has length %d, which %d ranks do not divide; pad it", dist.ErrCount, shape[0], n)
		}
	}
	switch op.Kind {
	case dist.KindAllGather, dist.KindGather:
		shape[0] *= n
	case dist.KindReduceScatter, dist.KindScatter:
		shape[0] /= n
	}
	return shape, nil
}

// factor returns the factor of a PreMulSum: a number, or memory that is read when the step runs.
func (l *lowering) factor(s dist.Scalar) operand {
	if s.At.IsZero() {
		id := l.p.Add(program.Value{Name: "factor", DType: s.DType, Place: program.Constant, Data: scalarBytes(s)})
		return l.whole(id)
	}
	id := l.p.Add(program.Value{Name: "factor", DType: s.DType, Role: program.State, Place: program.Outside})
	l.states = append(l.states, state{id, s.At})
	return l.whole(id)
}

func scalarBytes(s dist.Scalar) []byte {
	b := bytes8(s.Bits)
	return slices.Clone(b[:s.DType.Size()])
}

// weighted returns a result times the weight that follows the reduction.
func (l *lowering) weighted(c *current, op ops.Operation, y operand) (operand, error) {
	m := l.newCode(y.shape)
	switch op.After.Kind {
	case dist.RedAvg:
		return m.result(m.do(program.Div, m.load(y), m.constant(float64(op.Group.Size()))), c.dtype)
	case dist.RedPreMulSum:
		w := l.factor(op.After.Scalar)
		if op.After.Scalar.At.IsZero() {
			w = number(scalarNumber(op.After.Scalar), c.dtype, nil)
		}
		return m.result(m.do(program.Mul, m.load(y), m.load(w)), c.dtype)
	}
	return y, nil
}

func scalarNumber(s dist.Scalar) float64 {
	if s.DType == tensor.F64 {
		return math.Float64frombits(s.Bits)
	}
	return float64(math.Float32frombits(uint32(s.Bits)))
}
