package lower

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
	"github.com/symgrad/symgrad/internal/nnop"
	"github.com/symgrad/symgrad/tensor"
)

// entropies has the rules of the losses of package nn over rows with one target each.
type entropies struct {
	work
	parts  *Parts
	sparse map[*nnop.SparseCrossEntropy]*program.SparseCrossEntropy // steps without a gradient yet
	linear map[*nnop.LinearCrossEntropy]*chunked
}

func newEntropies(w work, g *Parts) *entropies {
	return &entropies{
		work: w, parts: g, sparse: map[*nnop.SparseCrossEntropy]*program.SparseCrossEntropy{},
		linear: map[*nnop.LinearCrossEntropy]*chunked{},
	}
}

func (en *entropies) rules() map[string]rule {
	return map[string]rule{
		"*nnop.SparseCrossEntropy":     {inputs: 2, lower: en.sparseLoss},
		"*nnop.SparseCrossEntropyGrad": {inputs: 3, lower: en.sparseGradient},
		"*nnop.LinearCrossEntropy":     {inputs: 3, lower: en.linearLoss},
		"*nnop.LinearCrossEntropyGrad": {inputs: 4, lower: en.linearGradient},
	}
}

// weight returns the weight of a row: 1 divided by the number of targets that count, or 0 without
// any.
func (en *entropies) weight(targets draft.Operand, ignore int, dt tensor.DType) (draft.Operand, error) {
	m := en.NewCode(targets.Shape)
	m.Do(program.NotEqual, m.Load(targets), m.Constant(float64(ignore)))
	count, err := m.ReduceTo([]bool{true}, program.Sum, en.Fresh(dt, nil))
	if err != nil {
		return count, err
	}
	m = en.NewCode(nil)
	n := m.Load(count)
	return m.Result(m.Do(program.Select, n, m.Do(program.Inverse, n), m.Constant(0)), dt)
}

// rowsStep adds the step of a loss of logits, whose rows are numbered from first.
func (en *entropies) rowsStep(of nnop.Loss, first int, x, targets, weight, loss draft.Operand) *program.SparseCrossEntropy {
	op := &program.SparseCrossEntropy{
		Rows: x.Shape[0], Classes: x.Shape[1], First: first, Ignore: of.Ignore, Smoothing: of.Smoothing, Scale: 1,
	}
	en.Add(program.Step{Op: op, In: []program.View{x.View, targets.View, weight.View}, Out: []program.View{loss.View}})
	return op
}

// addGradient makes the gradient of the logits the second Out of the step of a loss.
func (en *entropies) addGradient(op *program.SparseCrossEntropy, dt tensor.DType) (draft.Operand, error) {
	i := slices.IndexFunc(en.Program.Steps, func(s program.Step) bool { return s.Op == program.Op(op) })
	if i < 0 {
		return draft.Operand{}, fmt.Errorf("the step of the loss is missing")
	}
	dx := en.Fresh(dt, []int{op.Rows, op.Classes})
	s := &en.Program.Steps[i]
	s.Out = append(slices.Clone(s.Out), dx.View)
	return dx, nil
}

// scaled returns a gradient times that of the loss. A number is a factor of the step already.
func (en *entropies) scaled(dx, dy draft.Operand) (draft.Operand, error) {
	if dy.IsNum {
		return dx, nil
	}
	m := en.NewCode(dx.Shape)
	return m.Result(m.Do(program.Mul, m.Load(dx), m.Load(dy)), dx.DType)
}

// factor returns the Scale of a step for a gradient of the loss.
func factor(dy draft.Operand) float64 {
	if dy.IsNum {
		return dy.Num
	}
	return 1
}

// sparseLoss lowers an nnop.SparseCrossEntropy.
func (en *entropies) sparseLoss(c *current) (draft.Operand, error) {
	of, ok := c.n.Op().(*nnop.SparseCrossEntropy)
	if !ok {
		return draft.Operand{}, fmt.Errorf("a %T", c.n.Op())
	}
	loss, op, err := en.sparseStep(of, c)
	if err == nil {
		en.sparse[of] = op
	}
	return loss, err
}

// sparseStep adds the step of a loss, from logits and targets.
func (en *entropies) sparseStep(of *nnop.SparseCrossEntropy, c *current) (draft.Operand, *program.SparseCrossEntropy, error) {
	x, targets := en.Stored(c.in[0]), en.Stored(c.in[1])
	if len(x.Shape) != 2 || targets.Len() != x.Shape[0] {
		return draft.Operand{}, nil, fmt.Errorf("logits of shape %v for %d targets", x.Shape, targets.Len())
	}
	targets = en.Reshape(targets, x.Shape[:1])
	weight, err := en.weight(targets, of.Ignore, c.dtype)
	if err != nil {
		return draft.Operand{}, nil, err
	}
	loss := en.Fresh(c.dtype, nil)
	return loss, en.rowsStep(of.Loss, 0, x, targets, weight, loss), nil
}

// sparseGradient lowers an nnop.SparseCrossEntropyGrad: the second Out of the loss's step.
func (en *entropies) sparseGradient(c *current) (draft.Operand, error) {
	g, ok := c.n.Op().(*nnop.SparseCrossEntropyGrad)
	if !ok {
		return draft.Operand{}, fmt.Errorf("a %T", c.n.Op())
	}
	op := en.sparse[g.Of]
	if op == nil { // the loss is no output, or has another gradient already
		var err error
		if _, op, err = en.sparseStep(g.Of, c); err != nil {
			return draft.Operand{}, err
		}
	}
	delete(en.sparse, g.Of)
	op.Scale = factor(c.in[2])
	dx, err := en.addGradient(op, c.dtype)
	if err != nil {
		return dx, err
	}
	return en.scaled(dx, c.in[2])
}

// chunked has the steps of a LinearCrossEntropy.
type chunked struct {
	x, w   draft.Operand
	starts []int
	ops    []*program.SparseCrossEntropy // of each chunk
	sums   [2]*draft.Operand             // the gradients of x and w; nil: not computed, or used already
	scaled bool                          // a gradient has been used
	scale  float64                       // of the gradients, if scaled
}

// linearLoss lowers an nnop.LinearCrossEntropy, with the gradients that the graph has.
func (en *entropies) linearLoss(c *current) (draft.Operand, error) {
	of, ok := c.n.Op().(*nnop.LinearCrossEntropy)
	if !ok {
		return draft.Operand{}, fmt.Errorf("a %T", c.n.Op())
	}
	loss, k, err := en.chunks(of, c, en.wanted(of))
	if err == nil {
		en.linear[of] = k
	}
	return loss, err
}

// wanted reports which gradients of a loss the graph has: that of x and that of w.
func (en *entropies) wanted(of *nnop.LinearCrossEntropy) (which [2]bool) {
	for _, n := range en.parts.Nodes {
		if g, ok := n.Op().(*nnop.LinearCrossEntropyGrad); ok && g.Of == of {
			which[g.Which()] = true
		}
	}
	return which
}

// chunks adds the steps of a LinearCrossEntropy: for each chunk of rows a product, a loss, and
// products that make rows of the gradient of x, and add to that of w; and then the sum of the
// losses.
func (en *entropies) chunks(of *nnop.LinearCrossEntropy, c *current, which [2]bool) (draft.Operand, *chunked, error) {
	k := &chunked{x: en.Stored(c.in[0]), w: en.Stored(c.in[1])}
	targets := en.Stored(c.in[2])
	if len(k.x.Shape) != 2 || len(k.w.Shape) != 2 || k.x.Shape[1] != k.w.Shape[0] || targets.Len() != k.x.Shape[0] {
		return draft.Operand{}, nil, fmt.Errorf("features of shape %v and a weight of shape %v for %d targets", k.x.Shape, k.w.Shape, targets.Len())
	}
	targets = en.Reshape(targets, k.x.Shape[:1])
	weight, err := en.weight(targets, of.Ignore, c.dtype)
	if err != nil {
		return draft.Operand{}, nil, err
	}
	for i, o := range [...]draft.Operand{k.x, k.w} {
		if which[i] {
			k.sums[i] = new(en.like(c.dtype, o))
		}
	}
	k.starts = of.Chunks(k.x.Shape[0])
	n := len(k.starts) - 1
	losses := en.Fresh(c.dtype, []int{n})
	for i, from := range k.starts[:n] {
		rows := k.starts[i+1] - from
		logits := en.Fresh(c.dtype, []int{rows, k.w.Shape[1]})
		en.product(k.part(k.x, i), k.w, logits, 0)
		loss := draft.Operand{View: program.View{Value: losses.View.Value, Offset: i}, DType: c.dtype}
		k.ops = append(k.ops, en.rowsStep(of.Loss, from, logits, draft.Cut(targets, 0, from, 1, rows), weight, loss))
		if err := en.gradients(k, i, c.dtype); err != nil {
			return draft.Operand{}, nil, err
		}
	}
	m := en.NewCode(losses.Shape)
	m.Load(losses)
	sum, err := m.ReduceTo([]bool{true}, program.Sum, en.Fresh(c.dtype, nil))
	return sum, k, err
}

// gradients adds the products of chunk i for the gradients.
func (en *entropies) gradients(k *chunked, i int, dt tensor.DType) error {
	if k.sums[0] == nil && k.sums[1] == nil {
		return nil
	}
	d, err := en.addGradient(k.ops[i], dt)
	if err == nil && k.sums[0] != nil {
		en.product(d, draft.Permute(k.w, []int{1, 0}), k.part(*k.sums[0], i), 0)
	}
	if err == nil && k.sums[1] != nil {
		en.product(draft.Permute(k.part(k.x, i), []int{1, 0}), d, *k.sums[1], min(float64(i), 1))
	}
	return err
}

// part returns the rows of o in chunk i.
func (k *chunked) part(o draft.Operand, i int) draft.Operand {
	return draft.Cut(o, 0, k.starts[i], 1, k.starts[i+1]-k.starts[i])
}

// product adds the step to = beta*to + a b, of matrices.
func (en *entropies) product(a, b, to draft.Operand, beta float64) {
	view := func(o draft.Operand) program.View {
		return program.View{Value: o.View.Value, Offset: o.View.Offset, Strides: append([]int{0}, o.View.Strides...)}
	}
	op := &program.MatMul{Batch: 1, M: a.Shape[0], N: b.Shape[1], K: a.Shape[1], Alpha: 1, Beta: beta}
	en.Add(program.Step{Op: op, In: []program.View{view(a), view(b)}, Out: []program.View{view(to)}})
}

// linearGradient lowers an nnop.LinearCrossEntropyGrad, which the steps of the loss have computed.
func (en *entropies) linearGradient(c *current) (draft.Operand, error) {
	g, ok := c.n.Op().(*nnop.LinearCrossEntropyGrad)
	if !ok {
		return draft.Operand{}, fmt.Errorf("a %T", c.n.Op())
	}
	which, scale := g.Which(), factor(c.in[3])
	k := en.linear[g.Of]
	if k == nil || k.sums[which] == nil || k.scaled && k.scale != scale { // the loss is no output, or has other gradients
		var err error
		if _, k, err = en.chunks(g.Of, c, en.wanted(g.Of)); err != nil {
			return draft.Operand{}, err
		}
		en.linear[g.Of] = k
	}
	sum := *k.sums[which]
	k.sums[which], k.scaled, k.scale = nil, true, scale
	for _, op := range k.ops {
		op.Scale = scale
	}
	return en.scaled(sum, c.in[3])
}

// like returns a new matrix with the order of o's elements: the gradient of a transposed matrix is
// transposed, too.
func (en *entropies) like(dt tensor.DType, o draft.Operand) draft.Operand {
	if s := o.View.Strides; s[0] < s[1] {
		return draft.Permute(en.Fresh(dt, []int{o.Shape[1], o.Shape[0]}), []int{1, 0})
	}
	return en.Fresh(dt, o.Shape)
}
