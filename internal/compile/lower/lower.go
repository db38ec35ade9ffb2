// Package lower turns Gorgonia graphs into programs. Collect finds the nodes that outputs need, and
// Graph turns each into steps, in the order of the tape machine. Each family of ops is a type with
// rules. The package runs nothing; Options.OnGPU selects rules for a GPU.
//
//	parts.go, collect.go, node.go       the nodes that outputs need, in order; names
//	lower.go, lowered.go, finish.go     Graph, its result, and its optimization
//	elements.go, integers.go, products.go, reductions.go, rows.go, shapes.go, images.go,
//	norms.go, overranks.go, randoms.go, layers.go, entropies.go  rules of ops, by family
//	host.go, call.go                    ops that run their Do; host functions of a program
//	traffic.go                          ops of package ops: collectives, messages, reducers
//	exchange.go, exchanging.go, wire.go, sharding.go  the exchange of ddp as steps; Stages 1 to 3
//	update.go                           the update of an optimizer
//	sizes.go, fields.go, marks.go       other batch sizes; fields and settings of Gorgonia's ops
package lower

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
	"github.com/symgrad/symgrad/internal/compile/values"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

var (
	// ErrUnknownOp is returned for an op without a rule whose Do does not accept the node's inputs.
	ErrUnknownOp = errors.New("unknown op")
	// ErrNoValue is returned when a node, an input or the Do of an op has no value.
	ErrNoValue = errors.New("no value")
)

// Options has the settings that lowering reads.
type Options struct {
	Name       string       // of the program
	Seed       uint64       // of dropout and of random nodes
	Samples    int          // samples in this rank's batch; 0 means the length of the first input that is not a parameter
	DualValues bool         // accumulate gradients in duals
	OnGPU      bool         // the program is for a GPU
	NoOptimize bool         // skip optimizations
	Narrow     tensor.DType // round operands and results of large products to BF16 or F16; the zero value means no
	Recompute  program.Recompute
	Memory     int64        // with RecomputeAuto: wanted bytes of arena, constants, outputs and, on a GPU, inputs; 0 means no limit
	Fallback   bool         // do not warn of ops that run by their own Do
	Log        *slog.Logger // of such warnings; nil means slog.Default()

	// Aside reports whether collectives get a stream of their own; nil means no.
	Aside func(p *program.Program, groups []*dist.Group) bool

	Shapes  map[*gorgonia.Node][]int // shapes of input values
	Resized bool                     // some differ from those of the graph
	Drops   map[uintptr]int          // numbers of dropouts that are given; may be nil

	DDP    *ddp.DDP // its buckets on a device get the gradients; nil on the host
	Manner Manner   // of the runs, with DDP
	Update *Update  // the update that ends each run; may be nil
}

// lowering turns the nodes of a graph into steps, one node after the other.
type lowering struct {
	work
	g        *Parts
	opt      *Options
	values   map[*gorgonia.Node]draft.Operand // of the nodes so far
	rules    map[string]rule                  // by the names of the ops' types in Gorgonia v0.9.18
	integers *integers
	host     *hostOps
	traffic  *traffic
	exchange *exchanging // of gradients by steps; nil without
	shard    *sharding   // of exchange; may be nil
}

// Graph turns g into a program, optimizes it and plans its memory.
//
// Errors: an unknown op, with op and node; an op whose fields are not those of Gorgonia v0.9.18.
func Graph(g *Parts, o Options) (*Lowered, error) {
	l := newLowering(g, &o)
	if err := l.checkSharded(); err != nil {
		return nil, err
	}
	for _, n := range g.Nodes {
		if IsStatement(n) {
			continue
		}
		v, err := l.node(n)
		if err != nil {
			return nil, fmt.Errorf("node %q: %w", l.Label, err)
		}
		l.values[n] = v
		l.shard.looked(n, ops.Children(n))
	}
	for _, n := range g.Outputs {
		l.Label = NameOf(n)
		if err := l.output(n); err != nil {
			return nil, fmt.Errorf("output %q: %w", l.Label, err)
		}
	}
	for i := range g.Params {
		if err := l.dual(i); err != nil {
			return nil, fmt.Errorf("gradient of %q: %w", Called(g.Params[i].Node), err)
		}
	}
	if o.Update != nil && !o.Manner.Local() {
		if err := l.update(); err != nil {
			return nil, err
		}
	}
	l.shard.gatherFirst()
	l.traffic.born()
	l.exchange.bornInSlots()
	return l.out, l.out.finish(&o)
}

// newLowering returns a lowering with the rules of all families.
func newLowering(g *Parts, o *Options) *lowering {
	w := newWork(o.Name)
	w.sizes = &sizes{built: g.Built, now: o.Shapes, resized: o.Resized}
	maps.Copy(w.out.Drops, o.Drops)
	w.out.Samples = o.Samples
	if o.Samples <= 0 || o.Resized {
		w.out.Samples = g.samples(w.sizes)
	}
	l := &lowering{work: w, g: g, opt: o, values: map[*gorgonia.Node]draft.Operand{}, rules: map[string]rule{}}
	if o.DDP != nil {
		l.exchange = newExchanging(w, o.DDP, o.Manner)
		if l.shard = l.exchange.shard; l.shard != nil {
			l.shard.trains, l.shard.values = len(g.Params) > 0, l.values
		}
		w.out.Exchange, w.out.follow = l.exchange.Exchange, []*program.ID{&l.exchange.Sum}
	}
	l.traffic = &traffic{work: w, exchange: l.exchange}
	l.host = &hostOps{work: w, opt: o, parts: g, rules: l.rules}
	l.integers = &integers{work: w, host: l.host}
	for _, f := range []interface{ rules() map[string]rule }{
		&elements{w}, l.integers, &products{w}, &shapes{w, l.values}, &reductions{w}, &rows{w}, &images{w},
		newNorms(w, l.traffic), &randoms{w, o.Seed}, &layers{w}, newEntropies(w, g),
	} {
		maps.Copy(l.rules, f.rules())
	}
	return l
}

// node returns the operand of one node.
func (l *lowering) node(n *gorgonia.Node) (draft.Operand, error) {
	l.Label = NameOf(n)
	if l.traffic.isSharded(n) {
		dt, err := values.DType(n.Dtype())
		return draft.Number(0, dt, l.sizes.of(n)), err // its hook ignores it
	}
	if n.Op() == nil {
		return l.input(n)
	}
	if IsConstant(n) {
		return l.constant(n)
	}
	c := &current{n: n, kids: ops.Children(n), f: fieldsOf(n.Op())}
	for _, k := range c.kids {
		o, ok := l.values[k]
		if !ok {
			return draft.Operand{}, fmt.Errorf("its input %q has not been computed", Called(k))
		}
		c.in = append(c.in, o)
	}
	if err := l.checkDerivative(c); err != nil {
		return draft.Operand{}, err
	}
	var err error
	if c.dtype, err = values.DType(n.Dtype()); err != nil {
		return draft.Operand{}, err
	}
	o, err := l.apply(c)
	if err == nil {
		err = c.f.err
	}
	if err != nil {
		return draft.Operand{}, fmt.Errorf("op %v (%T): %w", n.Op(), n.Op(), err)
	}
	return l.conform(n, o)
}

// apply returns the operand of a node with an op.
func (l *lowering) apply(c *current) (draft.Operand, error) {
	if o, ok, err := l.traffic.lower(c); ok {
		return o, err
	}
	rule, ok := l.rules[typeName(c.n.Op())]
	switch {
	case !ok || len(c.in) < rule.inputs:
		return l.host.lower(c)
	case !rule.moves && c.ofIntegers():
		return l.integers.lower(c)
	}
	return rule.lower(c)
}

// conform reshapes a result to the shape in the graph, unless inputs have other shapes than the
// graph.
func (l *lowering) conform(n *gorgonia.Node, o draft.Operand) (draft.Operand, error) {
	if l.sizes.resized {
		return o, nil
	}
	want := l.sizes.of(n)
	if slices.Equal(o.Shape, want) {
		return o, nil
	}
	if draft.SizeOf(want) != o.Len() {
		return draft.Operand{}, fmt.Errorf("op %v (%T): the result has shape %v, the graph says %v", n.Op(), n.Op(), o.Shape, want)
	}
	return l.Reshape(o, want), nil
}

// rule has the function that lowers an op, and the least number of inputs.
type rule struct {
	inputs int
	lower  func(*current) (draft.Operand, error)
	moves  bool // the rule moves, converts or makes elements of any dtype
}

// input returns an Outside value that is bound to the node's value before each run.
func (l *lowering) input(n *gorgonia.Node) (draft.Operand, error) {
	dt, err := values.DType(n.Dtype())
	if err != nil {
		return draft.Operand{}, err
	}
	if o, ok := l.shard.home(n); ok {
		return o, nil
	}
	if o, ok := l.shard.own(n); ok {
		return o, nil
	}
	v := program.Value{Name: Called(n), DType: dt, Shape: l.sizes.of(n), Role: program.Input, Place: program.Outside}
	if l.g.IsParam(n) {
		v.Role = program.Param
	}
	id := l.Program.Add(v)
	l.out.Inputs = append(l.out.Inputs, Binding{Node: n, ID: id, Shape: v.Shape, Param: -1})
	return l.Whole(id), nil
}

// constant returns a number, or a value whose elements are in the program.
func (l *lowering) constant(n *gorgonia.Node) (draft.Operand, error) {
	v := n.Value()
	dt, err := values.DType(v.Dtype())
	if err != nil {
		return draft.Operand{}, err
	}
	if d, ok := v.(*gtensor.Dense); ok && d.Shape().TotalSize() > 1 {
		return l.constantTensor(d, dt)
	}
	shape := slices.Clone([]int(v.Shape()))
	x, err := values.Number(v)
	if err == nil && (dt.IsFloat() || math.Abs(x) <= 1<<53) {
		return draft.Number(x, dt, shape), nil
	}
	b, err := values.Memory(v, dt) // an integer that float64 cannot hold
	if err != nil {
		return draft.Operand{}, err
	}
	id := l.Program.Add(program.Value{Name: l.Label, DType: dt, Shape: shape, Place: program.Constant, Data: slices.Clone(b.Raw())})
	return l.Whole(id), nil
}

func (l *lowering) constantTensor(d *gtensor.Dense, dt tensor.DType) (draft.Operand, error) {
	b, err := values.Memory(d, dt)
	if err != nil {
		return draft.Operand{}, err
	}
	id := l.Program.Add(program.Value{
		Name: l.Label, DType: dt, Shape: slices.Clone([]int(d.Shape())), Place: program.Constant, Data: slices.Clone(b.Raw()),
	})
	return l.Whole(id), nil
}

// checkSharded rejects DualValues with sharded parameters.
func (l *lowering) checkSharded() error {
	if !l.opt.DualValues {
		return nil
	}
	if l.shard != nil {
		return fmt.Errorf("%w: DualValues cannot accumulate sharded gradients; accumulate inside ddp's NoSync", dist.ErrUnsupported)
	}
	for _, p := range l.g.Params {
		if l.traffic.isSharded(p.Node) {
			return fmt.Errorf("parameter %q: %w: DualValues cannot accumulate its sharded gradient; accumulate inside ddp's NoSync",
				p.Node.Name(), dist.ErrUnsupported)
		}
	}
	return nil
}

// output gives a node's value lasting memory. The step that computes it writes there if possible;
// otherwise it is copied.
func (l *lowering) output(n *gorgonia.Node) error {
	o, ok := l.values[n]
	if !ok {
		return nil
	}
	if w, isWait := n.Op().(*ops.Wait); isWait && (l.traffic.isSharded(w.Hook().Param()) || l.exchange != nil && (l.exchange.Manner.Local() || l.exchange.staged())) {
		return nil // a gradient without elements, or not reduced yet
	}
	b := Binding{Node: n, Shape: slices.Clone(o.Shape), Param: -1}
	if i, ok := l.g.byGrad[n]; ok {
		b.Param = i
	}
	role := program.Output
	if b.Param < 0 && !l.sizes.resized {
		b.Given = givenShape(n)
	}
	if b.Param >= 0 {
		role = program.Gradient
	}
	switch {
	case l.exchange.isSlot(o):
		b.ID, b.Slot, b.Offset = o.View.Value, true, o.View.Offset
	case l.traffic.isReduced(o):
		b.ID = o.View.Value
	case l.Claimable(o):
		b.ID = o.View.Value
		v := &l.Program.Values[b.ID]
		v.Place, v.Role = program.Outside, role
	default:
		b.ID = l.Program.Add(program.Value{
			Name: l.Label, DType: o.DType, Shape: slices.Clone(o.Shape), Role: role, Place: program.Outside,
		})
		l.CopyTo(l.Whole(b.ID), o)
	}
	l.out.Outputs = append(l.out.Outputs, b)
	return nil
}

// givenShape returns the shape that an op's own Do gives to a value of one element, if the node's
// shape differs: (1) instead of a number, or a number instead of a slice of one element. It is nil
// for other nodes.
func givenShape(n *gorgonia.Node) *[]int {
	switch name := typeName(n.Op()); {
	case n.IsScalar() && (name == "gorgonia.tensordotOp" || name == "*gorgonia.dtConvOp"):
		return &[]int{1}
	case !n.IsScalar() && n.Shape().TotalSize() == 1 && name == "*gorgonia.sliceOp":
		return &[]int{}
	}
	return nil
}

// dual stores a gradient in the parameter's Grad, apart from the gradient node. With DualValues it
// accumulates there.
func (l *lowering) dual(i int) error {
	p := l.g.Params[i]
	o, ok := l.values[p.Grad]
	if !ok || !p.Dual || l.traffic.isSharded(p.Node) || l.out.Exchange.staged() {
		return nil
	}
	l.Label = "d " + Called(p.Node)
	b := Binding{Node: p.Node, Shape: l.sizes.of(p.Node), Param: i}
	b.ID = l.Program.Add(program.Value{
		Name: l.Label, DType: o.DType, Shape: slices.Clone(b.Shape), Role: program.Gradient, Place: program.Outside,
	})
	l.out.Duals = append(l.out.Duals, b)
	to := l.Whole(b.ID)
	m := l.NewCode(b.Shape)
	r := m.Load(o)
	if l.opt.DualValues {
		r = m.Do(program.Add, m.Load(to), r)
	}
	if m.Err != nil {
		return m.Err
	}
	l.Add(m.MapTo(r, to))
	return nil
}

// checkDerivative rejects a node that gorgonia.Grad differentiates wrongly, if the program needs
// the gradient of one of its inputs.
//
// Errors: dist.ErrUnsupported.
func (l *lowering) checkDerivative(c *current) error {
	why, wrong := ops.WrongDerivative(c.n)
	if !wrong {
		return nil
	}
	for _, k := range c.kids {
		if d := k.Deriv(); d != nil && slices.Contains(l.g.Nodes, d) {
			return fmt.Errorf("op %v: %w: %s", c.n.Op(), dist.ErrUnsupported, why)
		}
	}
	return nil
}
