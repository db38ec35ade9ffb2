package lower

import (
	"fmt"
	"math"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// traffic has the rules of package ops: collectives, messages, and gradients that go to reducers.
type traffic struct {
	work
	exchange *exchanging      // of gradients by steps; nil without
	sharded  gorgonia.NodeSet // learnables whose values are spread over the ranks; nil before the first look-up
}

// Hook is a parameter whose gradient goes to a reducer once it is ready.
type Hook struct {
	Hook    *ops.Hook
	Grad    program.ID // Outside value of the gradient that is passed on; None for a reducer that copies it
	Reduced program.ID // Outside value of the Wait node; None if it has no elements
	Shape   []int
	gdt     gtensor.Dtype
	copied  int // index of the step that copies the gradient to grad

	// For the current run: the gradient is computed in the reducer's memory; the reduced gradient
	// is in place.
	InPlace, Placed bool
}

// lower returns the operand of a node of package ops; false for other nodes.
func (tr *traffic) lower(c *current) (o draft.Operand, ok bool, err error) {
	switch c.n.Op().(type) {
	case *ops.Begin, *ops.Join, *ops.Start, *ops.Wait:
		if tr.exchange != nil {
			o, err := tr.exchange.lower(c)
			return o, true, err
		}
	}
	switch op := c.n.Op().(type) {
	case *ops.Hook:
		return c.in[0], true, nil
	case *ops.Begin:
		tr.call(&Call{label: "begin", begin: op}, nil, nil)
		return c.in[0], true, nil
	case *ops.Join:
		tr.call(&Call{label: "join", join: op}, nil, nil)
		return c.in[0], true, nil
	case *ops.Start:
		o, err := tr.start(c, op)
		return o, true, err
	case *ops.Wait:
		o, err := tr.wait(c, op)
		return o, true, err
	}
	if i, ok := ops.Identity(c.n); ok && i < len(c.in) {
		return c.in[i], true, nil
	}
	if o, ok, err := tr.gatheredPart(c); ok {
		return o, true, err
	}
	if op, ok := ops.Describe(c.n); ok {
		o, err := tr.collective(c, op)
		return o, true, err
	}
	return draft.Operand{}, false, nil
}

// start passes a gradient to its reducer. The gradient is an Outside value, so that it can be in
// the reducer's memory, where the step that computes it then writes it (see born).
func (tr *traffic) start(c *current, op *ops.Start) (draft.Operand, error) {
	h := &Hook{
		Hook: op.Hook(), Grad: program.None, Reduced: program.None,
		gdt: op.Hook().Param().Dtype(), Shape: tr.sizes.of(op.Hook().Param()),
	}
	g := c.in[0]
	if g.Len() != draft.SizeOf(h.Shape) {
		return draft.Operand{}, fmt.Errorf("a gradient of shape %v for a parameter of shape %v", g.Shape, h.Shape)
	}
	tr.out.Hooks = append(tr.out.Hooks, h)
	if isStaged(h.Hook.Reducer()) {
		tr.startStaged(h, g)
		return g, nil
	}
	h.Grad = tr.Program.Add(program.Value{
		Name: tr.Label, DType: g.DType, Shape: slices.Clone(h.Shape), Role: program.Gradient, Place: program.Outside,
	})
	to := tr.Whole(h.Grad)
	tr.CopyTo(to, tr.Reshape(g, h.Shape))
	h.copied = len(tr.Program.Steps) - 1
	tr.call(&Call{label: "start " + h.Hook.Param().Name(), start: h}, []program.View{to.View}, nil)
	return g, nil
}

// wait returns the reduced gradient.
func (tr *traffic) wait(c *current, op *ops.Wait) (draft.Operand, error) {
	i := slices.IndexFunc(tr.out.Hooks, func(h *Hook) bool { return h.Hook == op.Hook() })
	if i < 0 {
		return draft.Operand{}, fmt.Errorf("its start has not run")
	}
	h := tr.out.Hooks[i]
	label := "wait " + h.Hook.Param().Name()
	if tr.isSharded(h.Hook.Param()) {
		tr.call(&Call{label: label, wait: h}, nil, nil)
		return draft.Number(0, c.dtype, h.Shape), nil
	}
	h.Reduced = tr.Program.Add(program.Value{
		Name: tr.Label, DType: c.dtype, Shape: slices.Clone(h.Shape), Role: program.Gradient, Place: program.Outside,
	})
	o := tr.Whole(h.Reduced)
	tr.call(&Call{label: label, wait: h}, nil, []program.View{o.View})
	return o, nil
}

// born removes copies to reducers: the step that computes a gradient writes it to the reducer's
// memory, if only the copy reads it. The reducer may change it at once.
func (tr *traffic) born() {
	drop := make([]bool, len(tr.Program.Steps))
	for _, h := range tr.out.Hooks {
		if h.Grad == program.None {
			continue
		}
		s := &tr.Program.Steps[h.copied]
		if len(s.In) == 0 { // the gradient is a constant number
			continue
		}
		from := s.In[0]
		v := &tr.Program.Values[from.Value]
		if v.Place != program.Arena || v.Role != program.Temp || from.Offset != 0 || v.Len() != draft.SizeOf(h.Shape) ||
			!slices.Equal(from.Strides, program.Contiguous(h.Shape)) || tr.Readers(from.Value) != 1 || tr.IsForeign(from.Value) {
			continue
		}
		tr.Shift(from.Value, h.Grad, 0)
		drop[h.copied] = true
	}
	tr.Drop(drop)
}

// collective returns the operand of an op of package ops that communicates.
func (tr *traffic) collective(c *current, op ops.Operation) (draft.Operand, error) {
	tr.Label = op.Tensor
	x := tr.WholeOf(c.in[0])
	shape, err := tr.gathered(c, op, c.in[0].Shape)
	if err != nil {
		return draft.Operand{}, err
	}
	switch op.Kind {
	case dist.KindBarrier, dist.KindSend, dist.KindRecv:
		return tr.message(c, op, x, shape)
	}
	to := tr.Fresh(c.dtype, shape)
	s := program.Step{In: []program.View{x.View}, Out: []program.View{to.View}}
	red := op.Red
	if op.Kind.Reduces() && red.Kind == dist.RedPreMulSum {
		s.In = append(s.In, tr.factor(red.Scalar).View)
		red.Scalar = dist.Scalar{}
	}
	s.Op = &program.Collective{Kind: op.Kind, Red: red, Root: op.Peer, Group: tr.out.group(op.Group), Fetch: isFetch(c)}
	tr.Add(s)
	if !op.HasResult {
		return draft.Number(0, c.dtype, shape), nil
	}
	return tr.weighted(c, op, to)
}

// message adds a Send, a Recv or a Barrier as a call, since the peer's side is not in this program.
func (tr *traffic) message(c *current, op ops.Operation, x draft.Operand, shape []int) (draft.Operand, error) {
	op.Group = op.Group.With(dist.Hints{Name: op.Tensor})
	f := &Call{label: fmt.Sprintf("%v %s", op.Kind, op.Tensor), message: &op}
	in, to := []program.View{x.View}, tr.Fresh(c.dtype, shape)
	switch op.Kind {
	case dist.KindSend: // the token is 0 and is ready when the peer has received x
		tr.call(f, in, []program.View{to.View})
		return to, nil
	case dist.KindRecv:
		to = tr.Fresh(c.dtype, tr.sizes.of(c.n))
		tr.call(f, in, []program.View{to.View})
		return tr.weighted(c, op, to)
	}
	tr.call(f, in, []program.View{to.View})
	return to, nil
}

// gathered returns the shape of a collective's result.
//
// Errors: dist.ErrCount when inputs have other shapes than in the graph, and the number of ranks no
// longer divides axis 0.
func (tr *traffic) gathered(c *current, op ops.Operation, shape []int) ([]int, error) {
	if !tr.sizes.resized || op.Kind == dist.KindSend {
		return tr.sizes.of(c.n), nil
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
func (tr *traffic) factor(s dist.Scalar) draft.Operand {
	if s.At.IsZero() {
		id := tr.Program.Add(program.Value{Name: "factor", DType: s.DType, Place: program.Constant, Data: scalarBytes(s)})
		return tr.Whole(id)
	}
	id := tr.Program.Add(program.Value{Name: "factor", DType: s.DType, Role: program.State, Place: program.Outside})
	tr.out.States = append(tr.out.States, State{id, s.At})
	return tr.Whole(id)
}

func scalarBytes(s dist.Scalar) []byte {
	b := bytes8(s.Bits)
	return slices.Clone(b[:s.DType.Size()])
}

// weighted returns a result times the weight that follows the reduction.
func (tr *traffic) weighted(c *current, op ops.Operation, y draft.Operand) (draft.Operand, error) {
	m := tr.NewCode(y.Shape)
	switch op.After.Kind {
	case dist.RedAvg:
		return m.Result(m.Do(program.Div, m.Load(y), m.Constant(float64(op.Group.Size()))), c.dtype)
	case dist.RedPreMulSum:
		w := tr.factor(op.After.Scalar)
		if op.After.Scalar.At.IsZero() {
			w = draft.Number(scalarNumber(op.After.Scalar), c.dtype, nil)
		}
		return m.Result(m.Do(program.Mul, m.Load(y), m.Load(w)), c.dtype)
	}
	return y, nil
}

func scalarNumber(s dist.Scalar) float64 {
	if s.DType == tensor.F64 {
		return math.Float64frombits(s.Bits)
	}
	return float64(math.Float32frombits(uint32(s.Bits)))
}

// isSharded reports whether a node is a learnable whose value is sharded over ranks. Only its hook
// reads it.
func (tr *traffic) isSharded(n *gorgonia.Node) bool {
	if n.Op() != nil || n.Graph() == nil {
		return false
	}
	if tr.sharded == nil {
		tr.sharded = ddp.Sharded(n.Graph())
	}
	return tr.sharded.Contains(n)
}

// gatheredPart returns the operand of a node that Stage 3 of ddp has put into the graph: a view of
// a gathered bucket.
func (tr *traffic) gatheredPart(c *current) (o draft.Operand, ok bool, err error) {
	at, isPart, same := ddp.PartOf(c.n)
	switch {
	case same:
		return c.in[0], true, nil
	case !isPart:
		return o, false, nil
	case len(c.in) < 2 || c.in[1].IsNum:
		return o, true, fmt.Errorf("the bucket has not been gathered: %w", ops.ErrNotAttached)
	}
	flat := draft.Cut(c.in[1], 0, at.Offset, 1, draft.SizeOf(at.Shape))
	return tr.Reshape(flat, at.Shape), true, nil
}

// isFetch reports whether a collective gathers a shard of parameters for Stage 3, for which all
// ranks have compared their graphs.
func isFetch(c *current) bool {
	if len(c.kids) == 0 {
		return false
	}
	kids := ops.Children(c.kids[0])
	return len(kids) == 1 && ddp.IsShard(kids[0])
}

// startStaged passes a gradient from the arena to a reducer that gives no memory for it.
func (tr *traffic) startStaged(h *Hook, g draft.Operand) {
	from := tr.WholeOf(tr.Reshape(g, h.Shape))
	tr.call(&Call{label: "start " + h.Hook.Param().Name(), start: h}, []program.View{from.View}, nil)
}

// stager is a reducer that may copy gradients in every run.
type stager interface {
	Staged() bool
	StartFrom(grad tensor.Buffer) error
}

func isStaged(r ops.Reducer) bool {
	s, ok := r.(stager)
	return ok && s.Staged()
}

// isReduced reports whether an operand is the result of a Wait node, in the reducer's memory.
func (tr *traffic) isReduced(o draft.Operand) bool {
	return tr.IsWhole(o) && slices.ContainsFunc(tr.out.Hooks, func(h *Hook) bool { return h.Reduced == o.View.Value })
}
