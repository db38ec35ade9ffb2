package machine

import (
	"errors"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// errNoSync is the error of an accumulation that a program has no steps for.
var errNoSync = fmt.Errorf("%w: gradients are reduced in every run of a program on a GPU", dist.ErrUnsupported)

// exchange is the way of gradients over the ranks as steps of a program:
//
//	sum    = allreduce of weight           as soon as the run starts
//	factor = own / sum                     0 if the sum is 0
//	bucket = allreduce of factor*bucket    as soon as its last gradient is there, in place
//
// A gradient is computed in its slot of a bucket, and the reduced gradient is that slot.
type exchange struct {
	d       *ddp.DDP
	plan    ddp.Plan
	layout  ddp.Layout
	overlap bool

	group   int // of the program
	weight  program.ID
	sum     program.ID
	own     program.ID
	factors [2]program.ID
	buckets []program.ID
	missing []int // gradients of each bucket that have not come
	next    int   // bucket to be reduced next
	copies  []slotCopy
	late    tensor.Buffer // what checkLate reads to
	lateSum []float64
}

// slotCopy is a step that copies a gradient to its slot.
type slotCopy struct {
	step, offset int
	bucket       program.ID
}

// newExchange is that of d.
func newExchange(d *ddp.DDP) *exchange {
	e := &exchange{
		d: d, plan: d.Plan(), layout: d.Layout(), overlap: d.Overlap(), lateSum: make([]float64, 1),
		weight: program.None, sum: program.None, own: program.None, factors: [2]program.ID{program.None, program.None},
	}
	e.late = tensor.Of(e.lateSum)
	for _, b := range e.plan.Buckets {
		e.buckets = append(e.buckets, program.None)
		e.missing = append(e.missing, len(b.Params))
	}
	return e
}

// valueOf is the memory on the GPU for a learnable.
func (e *exchange) valueOf(n *gorgonia.Node) (tensor.Buffer, bool) {
	if e == nil {
		return tensor.Buffer{}, false
	}
	i := slices.IndexFunc(e.layout.Values, func(v ddp.LearnableValue) bool { return v.Node == n })
	if i < 0 {
		return tensor.Buffer{}, false
	}
	return e.layout.Values[i].Memory, true
}

// ids is the values of the program that e names.
func (e *exchange) ids() []*program.ID {
	all := []*program.ID{&e.weight, &e.sum, &e.own, &e.factors[0], &e.factors[1]}
	for i := range e.buckets {
		all = append(all, &e.buckets[i])
	}
	return all
}

// exchanging is the operand of a node that a DDP has put into the graph.
func (l *lowering) exchanging(c *current) (operand, error) {
	switch op := c.n.Op().(type) {
	case *ops.Begin:
		l.exchangeWeights()
		return c.in[0], nil
	case *ops.Join:
		for range l.exchange.buckets {
			l.reduceFull()
		}
		return c.in[0], nil
	case *ops.Start:
		return c.in[0], l.deposit(c.in[0], op.Hook())
	case *ops.Wait:
		return l.slotOf(op.Hook())
	}
	return operand{}, errors.New("it is none of ddp's")
}

// outside is an Outside value bound to b for good.
func (l *lowering) outside(name string, role program.Role, b tensor.Buffer, shape ...int) program.ID {
	id := l.p.Add(program.Value{Name: name, DType: b.DType(), Shape: shape, Role: role, Place: program.Outside})
	l.fixed = append(l.fixed, fixed{id, b})
	return id
}

// exchangeWeights adds the sum of the weights, and the factor that comes from it.
func (l *lowering) exchangeWeights() {
	e := l.exchange
	l.groups = append(l.groups, e.layout.Group)
	e.group = len(l.groups) - 1
	e.weight = l.outside("weight", program.State, e.layout.Weights[0])
	e.sum = l.outside("sum of weights", program.Output, e.layout.Weights[1])
	e.own = l.outside("own weight", program.State, e.layout.Weights[2])
	l.label = "sum of weights"
	l.add(program.Step{
		Op: &program.Collective{Kind: dist.KindAllReduce, Red: dist.Sum, Group: e.group},
		In: []program.View{l.p.Whole(e.weight)}, Out: []program.View{l.p.Whole(e.sum)},
	})
	l.label = "factor"
	for k, b := range e.layout.Factors {
		if !slices.ContainsFunc(e.plan.Buckets, func(p ddp.PlanBucket) bool { return p.DType == b.DType() }) {
			continue
		}
		e.factors[k] = l.outside("factor", program.State, b)
		m := l.newCode(nil)
		own, sum := m.load(l.whole(e.own)), m.load(l.whole(e.sum))
		none := m.constant(0)
		r := m.do(program.Select, m.do(program.Greater, sum, none), m.do(program.Div, own, sum), none)
		l.add(m.mapTo(r, l.whole(e.factors[k])))
	}
	for i, b := range e.plan.Buckets {
		e.buckets[i] = l.outside(fmt.Sprintf("bucket %d", i), program.Gradient, e.layout.Buckets[i], b.Elements)
	}
}

// param is the index of a hook's parameter in the plan.
func (e *exchange) param(h *ops.Hook) (int, error) {
	d, i, ok := ddp.Owner(h.Reducer())
	if !ok || d != e.d {
		return 0, fmt.Errorf("gradient of %q: %w", h.Param().Name(), ops.ErrNotAttached)
	}
	return i, nil
}

// slotOf is the place of a parameter's gradient.
func (l *lowering) slotOf(h *ops.Hook) (operand, error) {
	e := l.exchange
	i, err := e.param(h)
	if err != nil {
		return operand{}, err
	}
	q := e.plan.Params[i]
	return operand{
		view:  program.View{Value: e.buckets[q.Bucket], Offset: q.Offset, Strides: program.Contiguous(q.Shape)},
		shape: slices.Clone(q.Shape), dtype: q.DType,
	}, nil
}

// deposit puts a gradient into its slot, and reduces the buckets that are full then.
func (l *lowering) deposit(g operand, h *ops.Hook) error {
	e := l.exchange
	to, err := l.slotOf(h)
	if err != nil {
		return err
	}
	if g.len() != to.len() || g.dtype != to.dtype {
		return fmt.Errorf("a gradient %v%v for a parameter %v%v", g.dtype, g.shape, to.dtype, to.shape)
	}
	l.copyTo(to, l.reshape(g, to.shape))
	e.copies = append(e.copies, slotCopy{step: len(l.p.Steps) - 1, offset: to.view.Offset, bucket: to.view.Value})
	i, err := e.param(h)
	if err != nil {
		return err
	}
	e.missing[e.plan.Params[i].Bucket]--
	for e.overlap && e.next < len(e.buckets) && e.missing[e.next] == 0 {
		l.reduceFull()
	}
	return nil
}

// reduceFull adds the sum of the next bucket.
func (l *lowering) reduceFull() {
	e := l.exchange
	if e.next == len(e.buckets) {
		return
	}
	i := e.next
	e.next++
	k := 0
	if e.plan.Buckets[i].DType == tensor.F64 {
		k = 1
	}
	at := l.p.Whole(e.buckets[i])
	label := l.label
	l.label = fmt.Sprintf("bucket %d", i)
	l.add(program.Step{
		Op: &program.Collective{Kind: dist.KindAllReduce, Red: dist.RedOp{Kind: dist.RedPreMulSum}, Group: e.group},
		In: []program.View{at, l.p.Whole(e.factors[k])}, Out: []program.View{at},
	})
	l.label = label
}

// isSlot reports whether an operand is a parameter's place in a bucket.
func (l *lowering) isSlot(o operand) bool {
	return l.exchange != nil && !o.isNum && slices.Contains(l.exchange.buckets, o.view.Value) &&
		slices.Equal(o.view.Strides, program.Contiguous(o.shape))
}

// bornInSlots makes what computes a gradient write it into its slot, in place of the copy, if nothing else reads it.
func (l *lowering) bornInSlots() {
	if l.exchange == nil {
		return
	}
	drop := make([]bool, len(l.p.Steps))
	for _, k := range l.exchange.copies {
		s := &l.p.Steps[k.step]
		if len(s.In) != 1 { // the gradient is a number
			continue
		}
		from := s.In[0]
		v := &l.p.Values[from.Value]
		n := 1
		for _, d := range s.Op.(*program.Map).Space {
			n *= d
		}
		if v.Place != program.Arena || v.Role != program.Temp || from.Offset != 0 || v.Len() != n ||
			!slices.Equal(from.Strides, s.Out[0].Strides) || l.readers(from.Value) != 1 || l.isForeign(from.Value) {
			continue
		}
		l.shift(from.Value, k.bucket, k.offset)
		drop[k.step] = true
	}
	kept := l.p.Steps[:0]
	for i, s := range l.p.Steps {
		if !drop[i] {
			kept = append(kept, s)
		}
	}
	l.p.Steps = kept
}

// shift makes the steps that touch value from touch, in its place, value to from an element on.
func (l *lowering) shift(from, to program.ID, offset int) {
	for i := range l.p.Steps {
		s := &l.p.Steps[i]
		s.In, s.Out = shifted(s.In, from, to, offset), shifted(s.Out, from, to, offset)
	}
}

func shifted(views []program.View, from, to program.ID, offset int) []program.View {
	if !slices.ContainsFunc(views, func(v program.View) bool { return v.Value == from }) {
		return views
	}
	views = slices.Clone(views) // steps may share a slice of views
	for k := range views {
		if views[k].Value == from {
			views[k].Value = to
			views[k].Offset += offset
		}
	}
	return views
}
