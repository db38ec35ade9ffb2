package machine

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/internal/values"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// lowered is a program made from a graph, and the nodes that its Outside values belong to.
type lowered struct {
	p       *program.Program
	inputs  []binding // dual values of parameters
	outputs []binding
	duals   []binding // gradients of parameters apart from their nodes
	states  []state
	hooks   []*hook
	calls   []*call // of Env.Calls
	groups  []*dist.Group
	marks   []mark          // settings of ops that the program depends on
	samples int             // in this rank's batch
	drops   map[uintptr]int // number of each dropout and random node, by op

	exchange *exchange     // exchange of gradients by steps; nil with calls, or without exchange
	fixed    []fixed       // values whose memory is known
	normID   program.ID    // norm of the gradients; None if no update measures it
	follow   []*program.ID // IDs outside the steps, to renumber when values are removed
}

// binding is a node and the Outside value that is its memory.
type binding struct {
	node  *gorgonia.Node
	id    program.ID
	shape []int
	param int    // index in graph.params for a gradient; else -1
	given *[]int // shape that the op's own Do returns if the node has another; else nil

	slot   bool // the value is a bucket of gradients or weights; elements start at offset
	offset int
}

// state is memory of an op that lasts from step to step.
type state struct {
	id program.ID
	at tensor.Buffer
}

// lowering turns the nodes of a graph into steps, one node after the other.
type lowering struct {
	lowered
	g       *graph
	cfg     *Config
	kids    func(*gorgonia.Node) gorgonia.Nodes
	values  map[*gorgonia.Node]operand
	numbers map[numberKey]program.ID
	norms   map[uintptr]*norm
	sharded gorgonia.NodeSet         // learnables that all ranks have whole values of; nil until it is looked for
	shapes  map[*gorgonia.Node][]int // shapes of input values
	resized bool                     // some differ from those of the graph
	moved   bool                     // a product or transposition moved the first dimension of a resized result
	label   string                   // of the current node, for steps and values
}

// current is a node that is being lowered, with its inputs.
type current struct {
	n     *gorgonia.Node
	kids  gorgonia.Nodes
	in    []operand
	dtype tensor.DType
	f     *fields
}

// lower turns g into a program for whole batches; see lowerAs.
func lower(g *graph, cfg *Config, shapes map[*gorgonia.Node][]int, resized bool) (*lowered, error) {
	return lowerAs(wholeBatch, g, cfg, shapes, resized)
}

// lowerAs turns g into a program. shapes has the shapes of input values.
//
// Errors: an unknown op, with op and node; an op whose fields are not those of Gorgonia v0.9.18.
func lowerAs(as manner, g *graph, cfg *Config, shapes map[*gorgonia.Node][]int, resized bool) (*lowered, error) {
	l := &lowering{
		lowered: lowered{p: &program.Program{Name: cfg.Name, Clock: program.None}, drops: map[uintptr]int{}},
		g:       g, cfg: cfg, kids: ops.Children,
		values: map[*gorgonia.Node]operand{}, numbers: map[numberKey]program.ID{}, norms: map[uintptr]*norm{},
		shapes: shapes, resized: resized,
	}
	maps.Copy(l.drops, g.drops)
	l.samples = l.countSamples()
	l.normID = program.None
	if g.owner != nil {
		l.exchange = newExchange(g.owner, as)
		l.follow = l.exchange.ids()
	}
	if err := l.checkSharded(); err != nil {
		return nil, err
	}
	for _, n := range g.nodes {
		if isStatement(n) {
			continue
		}
		o, err := l.node(n)
		if err != nil {
			return nil, fmt.Errorf("node %q: %w", l.label, err)
		}
		l.values[n] = o
		l.looked(n, l.kids(n))
	}
	for _, n := range g.outputs {
		l.label = nameOf(n)
		if err := l.output(n); err != nil {
			return nil, fmt.Errorf("output %q: %w", l.label, err)
		}
	}
	for i := range g.params {
		if err := l.dual(i); err != nil {
			return nil, fmt.Errorf("gradient of %q: %w", called(g.params[i].node), err)
		}
	}
	if g.solve != nil && !as.local() {
		if err := g.solve.within(l); err != nil {
			return nil, err
		}
	}
	l.gatherFirst()
	l.born()
	l.bornInSlots()
	return &l.lowered, nil
}

// countSamples returns the samples in the batch: Config.Samples, or the length of the first input
// that is not a parameter.
func (l *lowering) countSamples() int {
	if l.cfg.Samples > 0 && !l.resized {
		return l.cfg.Samples
	}
	for _, n := range l.g.nodes {
		if n.IsVar() && !l.isParam(n) && !ddp.IsShard(n) {
			if s := l.shapeOf(n); len(s) > 0 {
				return s[0]
			}
		}
	}
	return 1
}

func (l *lowering) isParam(n *gorgonia.Node) bool {
	_, ok := l.g.byNode[n]
	return ok
}

// shapeOf returns the shape of an input's values.
func (l *lowering) shapeOf(n *gorgonia.Node) []int {
	if s, ok := l.shapes[n]; ok {
		return slices.Clone(s)
	}
	if s, ok := l.g.built[n]; ok {
		return slices.Clone(s)
	}
	if n.IsScalar() {
		return nil
	}
	return slices.Clone([]int(n.Shape()))
}

// called returns the node's name; an unnamed input gets `node` and its ID. Gorgonia would call it
// by a nil operation.
func called(n *gorgonia.Node) string {
	if name := n.Name(); !n.IsVar() || !strings.HasPrefix(name, "%!") {
		return name
	}
	return fmt.Sprintf("node %x", n.ID())
}

// nameOf returns a readable name of a node: its name or expression. A gradient is named after its
// parameter.
func nameOf(n *gorgonia.Node) string {
	for _, of := range n.DerivOf() {
		if of.IsVar() {
			return "d " + called(of)
		}
	}
	return strings.ReplaceAll(called(n), "\n", " ")
}

// node returns the operand of one node.
func (l *lowering) node(n *gorgonia.Node) (operand, error) {
	l.label = nameOf(n)
	if l.isSharded(n) {
		dt, err := values.DType(n.Dtype())
		return number(0, dt, l.shapeOf(n)), err // its hook ignores it
	}
	if n.Op() == nil {
		return l.input(n)
	}
	if isConstant(n) {
		return l.constant(n)
	}
	c := &current{n: n, kids: l.kids(n), f: fieldsOf(n.Op())}
	for _, k := range c.kids {
		o, ok := l.values[k]
		if !ok {
			return operand{}, fmt.Errorf("its input %q has not been computed", called(k))
		}
		c.in = append(c.in, o)
	}
	if err := l.checkDerivative(c); err != nil {
		return operand{}, err
	}
	var err error
	if c.dtype, err = values.DType(n.Dtype()); err != nil {
		return operand{}, err
	}
	o, err := l.apply(c)
	if err == nil {
		err = c.f.err
	}
	if err != nil {
		return operand{}, fmt.Errorf("op %v (%T): %w", n.Op(), n.Op(), err)
	}
	return l.conform(n, o)
}

// apply returns the operand of a node with an op.
func (l *lowering) apply(c *current) (operand, error) {
	if o, ok, err := l.communication(c); ok {
		return o, err
	}
	rule, ok := rules[typeName(c.n.Op())]
	switch {
	case !ok || len(c.in) < rule.inputs:
		return l.onHost(c)
	case !rule.moves && c.ofIntegers():
		return l.integers(c)
	}
	return rule.lower(l, c)
}

// conform reshapes a result to the shape in the graph, unless inputs have other shapes than the
// graph.
func (l *lowering) conform(n *gorgonia.Node, o operand) (operand, error) {
	if l.resized {
		return o, nil
	}
	want := l.shapeOf(n)
	if slices.Equal(o.shape, want) {
		return o, nil
	}
	if sizeOf(want) != o.len() {
		return operand{}, fmt.Errorf("op %v (%T): the result has shape %v, the graph says %v", n.Op(), n.Op(), o.shape, want)
	}
	return l.reshape(o, want), nil
}

// rule has the function that lowers an op, and the least number of inputs.
type rule struct {
	inputs int
	lower  func(*lowering, *current) (operand, error)
	moves  bool // the rule moves, converts or makes elements of any dtype
}

// rules has the ops by the names of their types in Gorgonia v0.9.18.
var rules = map[string]rule{
	"gorgonia.elemBinOp":            {2, (*lowering).binary, false},
	"gorgonia.elemUnaryOp":          {1, (*lowering).unary, false},
	"gorgonia.minBetween":           {2, (*lowering).between, false},
	"gorgonia.maxBetween":           {2, (*lowering).between, false},
	"*gorgonia.dtConvOp":            {1, (*lowering).convert, true},
	"gorgonia.linAlgBinOp":          {2, (*lowering).product, false},
	"gorgonia.tensordotOp":          {2, (*lowering).tensordot, false},
	"gorgonia.reshapeOp":            {1, (*lowering).reshaped, true},
	"gorgonia.transposeOp":          {1, (*lowering).transposed, true},
	"*gorgonia.repeatOp":            {2, (*lowering).repeated, true},
	"gorgonia.repeatOp":             {2, (*lowering).repeated, true},
	"gorgonia.sizeOp":               {1, (*lowering).size, true},
	"gorgonia.atOp":                 {1, (*lowering).element, true},
	"*gorgonia.sliceOp":             {1, (*lowering).sliced, true},
	"gorgonia.sliceIncrOp":          {2, (*lowering).sliceIncrement, true},
	"gorgonia.concatOp":             {1, (*lowering).concatenated, true},
	"gorgonia.Iop":                  {1, (*lowering).identity, true},
	"gorgonia.sumOp":                {1, (*lowering).sum, false},
	"gorgonia.maxOp":                {1, (*lowering).max, false},
	"*gorgonia.maxOp":               {1, (*lowering).max, false},
	"*gorgonia.softmaxOp":           {1, (*lowering).softmax, false},
	"*gorgonia.softmaxDiffOp":       {3, (*lowering).softmaxGrad, false},
	"gorgonia.im2colOp":             {1, (*lowering).im2col, false},
	"gorgonia.col2imOp":             {1, (*lowering).col2im, false},
	"*gorgonia.maxPoolOp":           {1, (*lowering).maxPool, false},
	"*gorgonia.maxPoolDiffOp":       {3, (*lowering).maxPoolGrad, false},
	"*gorgonia.avgPoolOp":           {1, (*lowering).avgPool, false},
	"*gorgonia.avgPoolDiffOp":       {3, (*lowering).avgPoolGrad, false},
	"*gorgonia.globalAveragePoolOp": {1, (*lowering).globalPool, false},
	"*gorgonia.BatchNormOp":         {1, (*lowering).batchNorm, false},
	"*gorgonia.batchnormDiffOp":     {2, (*lowering).batchNormGrad, false},
	"*ops.batchNorm":                {1, (*lowering).syncBatchNorm, false},
	"*gorgonia.dropoutOp":           {1, (*lowering).dropout, false},
	"*gorgonia.dropoutDiffOp":       {3, (*lowering).dropoutGrad, false},
	"gorgonia.randomOp":             {0, (*lowering).random, true},
	"*gorgonia.byIndicesOp":         {2, (*lowering).gather, true},
	"*gorgonia.byIndicesOpDiffOp":   {3, (*lowering).gatherGrad, false},
	"*gorgonia.sparsemaxOp":         {1, (*lowering).sparsemax, false},
	"*gorgonia.sparsemaxDiffOp":     {2, (*lowering).sparsemaxGrad, false},
	"*gorgonia.GroupNormOp":         {1, (*lowering).groupNorm, false},
	"*gorgonia.groupNormDiffOp":     {2, (*lowering).groupNormGrad, false},
	"*gorgonia.upsampleOp":          {1, (*lowering).upsampled, true},
	"*gorgonia.upsampleDiffOp":      {3, (*lowering).upsampleGrad, false},
	"gorgonia.diagFlatOp":           {1, (*lowering).diagonal, true},
}

// input returns an Outside value that is bound to the node's value before each run.
func (l *lowering) input(n *gorgonia.Node) (operand, error) {
	dt, err := values.DType(n.Dtype())
	if err != nil {
		return operand{}, err
	}
	if o, ok := l.home(n); ok {
		return o, nil
	}
	if o, ok := l.shard(n); ok {
		return o, nil
	}
	v := program.Value{Name: called(n), DType: dt, Shape: l.shapeOf(n), Role: program.Input, Place: program.Outside}
	if l.isParam(n) {
		v.Role = program.Param
	}
	id := l.p.Add(v)
	l.inputs = append(l.inputs, binding{node: n, id: id, shape: v.Shape, param: -1})
	return l.whole(id), nil
}

// constant returns a number, or a value whose elements are in the program.
func (l *lowering) constant(n *gorgonia.Node) (operand, error) {
	v := n.Value()
	dt, err := values.DType(v.Dtype())
	if err != nil {
		return operand{}, err
	}
	if d, ok := v.(*gtensor.Dense); ok && d.Shape().TotalSize() > 1 {
		return l.constantTensor(d, dt)
	}
	shape := slices.Clone([]int(v.Shape()))
	x, err := values.Number(v)
	if err == nil && (dt.IsFloat() || math.Abs(x) <= 1<<53) {
		return number(x, dt, shape), nil
	}
	b, err := values.Memory(v, dt) // an integer that float64 cannot hold
	if err != nil {
		return operand{}, err
	}
	id := l.p.Add(program.Value{Name: l.label, DType: dt, Shape: shape, Place: program.Constant, Data: slices.Clone(b.Raw())})
	return l.whole(id), nil
}

func (l *lowering) constantTensor(d *gtensor.Dense, dt tensor.DType) (operand, error) {
	b, err := values.Memory(d, dt)
	if err != nil {
		return operand{}, err
	}
	id := l.p.Add(program.Value{
		Name: l.label, DType: dt, Shape: slices.Clone([]int(d.Shape())), Place: program.Constant, Data: slices.Clone(b.Raw()),
	})
	return l.whole(id), nil
}
