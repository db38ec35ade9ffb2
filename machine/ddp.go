package machine

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/drive"
	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// exchange adds the exchange of gradients over the ranks to a program:
//
//	sum    = allreduce of weight           as soon as the run starts
//	factor = own / sum                     0 if the sum is 0
//	bucket = 0 where own is 0              with Idle: 0 times an infinity would not be
//	bucket = allreduce of factor*bucket    once its last gradient is ready, in place
//
// A gradient is computed in its slot of a bucket, which later holds the reduced gradient.
// Accumulated micro-batches multiply a gradient by a weight and add it to the slot: see manner.
// With Stage 2 buckets share memory, and this rank keeps its part of the sums: see sharding.
type exchange struct {
	d       *ddp.DDP
	plan    ddp.Plan
	layout  drive.Layout
	overlap bool
	idle    bool // gradients of weight 0 may have NaN or infinities
	manner  manner
	shard   *sharding // nil if every rank updates all weights

	begun   bool // the program computes gradients
	group   int  // number in the program
	weight  program.ID
	sum     program.ID
	own     program.ID
	share   program.ID // factor of gradients, except in runs of a whole batch
	counts  operand    // 1 if the gradients count, with idle; only while the program is made
	scales  [2]operand // share for each dtype; only while the program is made
	factors [2]program.ID
	buckets []program.ID
	wires   []program.ID // messages, with Stage 2 and a WireDType; only while the program is made
	missing []int        // by bucket, gradients that are not deposited yet
	next    int          // next bucket to reduce
	copies  []slotCopy
	late    tensor.Buffer // destination of checkLate
	lateSum []float64
}

// newExchange returns the exchange of d.
func newExchange(d *ddp.DDP, as manner) *exchange {
	e := &exchange{
		d: d, plan: d.Plan(), layout: d.Machine().Layout(), manner: as, lateSum: make([]float64, 1),
		weight: program.None, sum: program.None, own: program.None, share: program.None,
		factors: [2]program.ID{program.None, program.None},
	}
	e.late, e.overlap, e.idle = tensor.Of(e.lateSum), e.layout.Overlap, e.layout.Idle
	for _, b := range e.plan.Buckets {
		e.buckets = append(e.buckets, program.None)
		e.missing = append(e.missing, len(b.Params))
	}
	e.shard = newSharding(e)
	return e
}

// valueOf returns the memory on the GPU for a learnable.
func (e *exchange) valueOf(n *gorgonia.Node) (tensor.Buffer, bool) {
	if e == nil {
		return tensor.Buffer{}, false
	}
	i := slices.IndexFunc(e.layout.Values, func(v drive.Learnable) bool { return v.Node == n })
	if i < 0 {
		return tensor.Buffer{}, false
	}
	return e.layout.Values[i].Memory, true
}

// ids returns the values of the program that e has.
func (e *exchange) ids() []*program.ID {
	all := []*program.ID{&e.weight, &e.sum, &e.own, &e.share, &e.factors[0], &e.factors[1]}
	for i := range e.buckets {
		all = append(all, &e.buckets[i])
	}
	if e.shard != nil {
		for i := range e.shard.homes {
			all = append(all, &e.shard.homes[i], &e.shard.shards[i])
		}
	}
	return all
}

// exchanging returns the operand of a node that a DDP has put into the graph.
func (l *lowering) exchanging(c *current) (operand, error) {
	switch op := c.n.Op().(type) {
	case *ops.Begin:
		l.beginExchange()
		return c.in[0], nil
	case *ops.Join:
		for range l.exchange.buckets {
			l.reduceFull()
		}
		return c.in[0], nil
	case *ops.Start:
		return c.in[0], l.deposit(c.in[0], op.Hook())
	case *ops.Wait:
		slot, err := l.slotOf(op.Hook())
		if l.exchange.manner.local() || l.exchange.staged() {
			return number(0, slot.dtype, slot.shape), err
		}
		return slot, err
	}
	return operand{}, fmt.Errorf("%T is not an op of ddp", c.n.Op())
}

// outside returns a new Outside value with a fixed binding to b.
func (l *lowering) outside(name string, role program.Role, b tensor.Buffer, shape ...int) program.ID {
	id := l.p.Add(program.Value{Name: name, DType: b.DType(), Shape: shape, Role: role, Place: program.Outside})
	l.fixed = append(l.fixed, fixed{id, b})
	return id
}

// beginExchange adds the values of buckets and the factors of gradients.
func (l *lowering) beginExchange() {
	e := l.exchange
	e.begun = true
	if e.staged() {
		l.stage()
	} else {
		for i, b := range e.plan.Buckets {
			e.buckets[i] = l.outside(fmt.Sprintf("bucket %d", i), program.Gradient, e.layout.Buckets[i], b.Elements)
		}
	}
	if e.sums() || e.layout.Late {
		e.group = l.group(e.layout.Group)
	}
	if !e.manner.local() {
		l.exchangeWeights()
	}
	if e.manner != wholeBatch {
		l.scaleGradients()
	}
	if e.idle {
		by := e.own
		if e.manner != wholeBatch {
			by = e.share
		}
		l.label = "does it count"
		e.counts = l.fresh(tensor.F32, nil)
		m := l.newCode(nil)
		l.add(m.mapTo(m.do(program.Greater, m.load(l.whole(by)), m.constant(0)), e.counts))
	}
}

// has reports whether a bucket has a dtype.
func (e *exchange) has(dt tensor.DType) bool {
	return slices.ContainsFunc(e.plan.Buckets, func(p ddp.PlanBucket) bool { return p.DType == dt })
}

// exchangeWeights adds the sum of the weights and the factors that follow from it.
func (l *lowering) exchangeWeights() {
	e := l.exchange
	e.weight = l.outside("weight", program.State, e.layout.Weights[0])
	e.sum = l.outside("sum of weights", program.Output, e.layout.Weights[1])
	e.own = l.outside("own weight", program.State, e.layout.Weights[2])
	l.label = e.layout.Prefix + "sum of weights"
	l.add(program.Step{
		Op: &program.Collective{Kind: dist.KindAllReduce, Red: dist.Sum, Group: e.group},
		In: []program.View{l.p.Whole(e.weight)}, Out: []program.View{l.p.Whole(e.sum)},
	})
	if r := e.layout.Replicas; r != nil {
		l.sumOver(r, l.whole(e.sum))
	}
	l.label = "factor"
	for k, b := range e.layout.Factors {
		if !e.has(b.DType()) {
			continue
		}
		e.factors[k] = l.outside("factor", program.State, b)
		m := l.newCode(nil)
		own, sum := m.load(l.whole(e.own)), m.load(l.whole(e.sum))
		none := m.constant(0)
		r := m.do(program.Select, m.do(program.Greater, sum, none), m.do(program.Div, own, sum), none)
		l.add(m.mapTo(r, l.whole(e.factors[k])))
	}
}

// param returns the index of a hook's parameter in the plan.
func (e *exchange) param(h *ops.Hook) (int, error) {
	d, i, ok := ddp.Owner(h.Reducer())
	if !ok || d != e.d {
		return 0, fmt.Errorf("gradient of %q: %w", h.Param().Name(), ops.ErrNotAttached)
	}
	return i, nil
}

// slotOf returns the slot of a parameter's gradient.
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

// deposit puts a gradient into its slot, and reduces the buckets that are then full.
func (l *lowering) deposit(g operand, h *ops.Hook) error {
	e := l.exchange
	to, err := l.slotOf(h)
	if err != nil {
		return err
	}
	if g.len() != to.len() || g.dtype != to.dtype {
		return fmt.Errorf("a gradient %v%v for a parameter %v%v", g.dtype, g.shape, to.dtype, to.shape)
	}
	if g = l.reshape(g, to.shape); e.manner == wholeBatch {
		l.copyTo(to, g)
		e.copies = append(e.copies, slotCopy{step: len(l.p.Steps) - 1, offset: to.view.Offset, bucket: to.view.Value})
	} else if err := l.accumulate(to, g); err != nil {
		return err
	}
	i, err := e.param(h)
	if err != nil {
		return err
	}
	e.missing[e.plan.Params[i].Bucket]--
	for (e.overlap || e.staged()) && e.sums() && e.next < len(e.buckets) && e.missing[e.next] == 0 {
		l.reduceFull()
	}
	return nil
}

// reduceFull adds the sum of the next bucket.
func (l *lowering) reduceFull() {
	e := l.exchange
	if e.next == len(e.buckets) || !e.sums() {
		return
	}
	i := e.next
	e.next++
	label := l.label
	l.label = fmt.Sprintf("%sbucket %d", e.layout.Prefix, i)
	if e.layout.WireDType != tensor.Invalid {
		l.reduceNarrow(i)
	} else {
		l.reduceWide(i)
	}
	l.label = label
}

// reduceWide adds the sum of bucket i in its own dtype, in place.
func (l *lowering) reduceWide(i int) {
	e := l.exchange
	bucket := l.bucket(i)
	if e.guards() {
		m := l.newCode(bucket.shape)
		l.add(m.mapTo(m.do(program.Select, m.load(e.counts), m.load(bucket), m.constant(0)), bucket))
	}
	if e.manner.local() { // with Stage 2: the last part applies the factor
		l.scatter(i, bucket, dist.Sum)
		return
	}
	factor, red := l.p.Whole(e.factors[factorOf(bucket.dtype)]), dist.RedOp{Kind: dist.RedPreMulSum}
	if e.shard != nil {
		l.scatter(i, bucket, red, factor)
		return
	}
	l.add(program.Step{
		Op: &program.Collective{Kind: dist.KindAllReduce, Red: red, Group: e.group},
		In: []program.View{bucket.view, factor}, Out: []program.View{bucket.view},
	})
}

// sums reports whether a run of the program sums buckets over the ranks.
func (e *exchange) sums() bool { return !e.manner.local() || e.staged() }

// bucket returns all of bucket i.
func (l *lowering) bucket(i int) operand {
	e := l.exchange
	p := &e.plan.Buckets[i]
	return operand{view: program.View{Value: e.buckets[i], Strides: []int{1}}, shape: []int{p.Elements}, dtype: p.DType}
}

// isSlot reports whether an operand is a parameter's slot in a bucket.
func (l *lowering) isSlot(o operand) bool {
	return l.exchange != nil && !o.isNum && slices.Contains(l.exchange.buckets, o.view.Value) &&
		slices.Equal(o.view.Strides, program.Contiguous(o.shape))
}
