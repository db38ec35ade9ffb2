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
	sparse map[*nnop.SparseCrossEntropy]*program.SparseCrossEntropy // steps without a gradient yet
}

func newEntropies(w work) *entropies {
	return &entropies{work: w, sparse: map[*nnop.SparseCrossEntropy]*program.SparseCrossEntropy{}}
}

func (en *entropies) rules() map[string]rule {
	return map[string]rule{
		"*nnop.SparseCrossEntropy":     {inputs: 2, lower: en.loss},
		"*nnop.SparseCrossEntropyGrad": {inputs: 3, lower: en.gradient},
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

// loss lowers an nnop.SparseCrossEntropy.
func (en *entropies) loss(c *current) (draft.Operand, error) {
	of, ok := c.n.Op().(*nnop.SparseCrossEntropy)
	if !ok {
		return draft.Operand{}, fmt.Errorf("a %T", c.n.Op())
	}
	loss, op, err := en.step(of, c.in[0], c.in[1], c.dtype)
	if err == nil {
		en.sparse[of] = op
	}
	return loss, err
}

// step adds the step of a loss.
func (en *entropies) step(of *nnop.SparseCrossEntropy, x, targets draft.Operand, dt tensor.DType) (draft.Operand, *program.SparseCrossEntropy, error) {
	x, targets = en.Stored(x), en.Stored(targets)
	if len(x.Shape) != 2 || targets.Len() != x.Shape[0] {
		return draft.Operand{}, nil, fmt.Errorf("logits of shape %v for %d targets", x.Shape, targets.Len())
	}
	targets = en.Reshape(targets, x.Shape[:1])
	weight, err := en.weight(targets, of.Ignore, dt)
	if err != nil {
		return draft.Operand{}, nil, err
	}
	op := &program.SparseCrossEntropy{Rows: x.Shape[0], Classes: x.Shape[1], Ignore: of.Ignore, Smoothing: of.Smoothing, Scale: 1}
	loss := en.Fresh(dt, nil)
	en.Add(program.Step{Op: op, In: []program.View{x.View, targets.View, weight.View}, Out: []program.View{loss.View}})
	return loss, op, nil
}

// gradient lowers an nnop.SparseCrossEntropyGrad: it becomes the second Out of the loss's step.
func (en *entropies) gradient(c *current) (draft.Operand, error) {
	g, ok := c.n.Op().(*nnop.SparseCrossEntropyGrad)
	if !ok {
		return draft.Operand{}, fmt.Errorf("a %T", c.n.Op())
	}
	op := en.sparse[g.Of]
	if op == nil { // the loss is no output, or has another gradient already
		var err error
		if _, op, err = en.step(g.Of, c.in[0], c.in[1], c.dtype); err != nil {
			return draft.Operand{}, err
		}
	}
	delete(en.sparse, g.Of)
	i := slices.IndexFunc(en.Program.Steps, func(s program.Step) bool { return s.Op == program.Op(op) })
	if i < 0 {
		return draft.Operand{}, fmt.Errorf("the step of the loss is missing")
	}
	dx := en.Fresh(c.dtype, []int{op.Rows, op.Classes})
	en.Program.Steps[i].Out = append(slices.Clone(en.Program.Steps[i].Out), dx.View)
	return en.scaled(dx, c.in[2], &op.Scale)
}

// scaled returns a gradient times that of the loss: a number becomes a factor of the step.
func (en *entropies) scaled(dx, dy draft.Operand, scale *float64) (draft.Operand, error) {
	if dy.IsNum {
		*scale = dy.Num
		return dx, nil
	}
	m := en.NewCode(dx.Shape)
	return m.Result(m.Do(program.Mul, m.Load(dx), m.Load(dy)), dx.DType)
}
