package lower

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// exchanging adds the exchange of gradients over the ranks to a program:
//
//	sum    = allreduce of weight        as soon as the run starts
//	factor = own / sum                  or another Share; 0 if the sum is 0
//	bucket = 0 where own is 0           with Idle: 0 times an infinity would not be
//	bucket = allreduce of factor*bucket in place, or other Actions, once its last gradient is ready
//
// A gradient is computed in its slot of a bucket, which later holds the reduced gradient.
// Accumulated micro-batches multiply a gradient by a weight and add it to the slot: see Manner.
// With Stage 2 buckets share memory, and this rank keeps its part of the sums: see type sharding.
type exchanging struct {
	work
	*Exchange
	shard *sharding // nil if every rank updates all weights

	group   int // number in the program
	own     program.ID
	share   program.ID       // factor of gradients, except in runs of a whole batch
	counts  draft.Operand    // 1 if the gradients count, with idle
	scales  [2]draft.Operand // share for each dtype
	factors [2]program.ID
	buckets []program.ID
	wires   []program.ID // messages, with Stage 2 and a WireDType

	trust            draft.Operand // 1 if the residuals count; without a type if there are none
	finite, distrust program.ID    // see drive.Feedback
	virtual          virtualIDs

	missing []int // by bucket, gradients that are not deposited yet
	next    int   // next bucket to reduce
	copies  []slotCopy
}

// newExchanging returns the exchange of d.
func newExchanging(w work, d *ddp.DDP, as Manner) *exchanging {
	e := &exchanging{
		work: w, Exchange: &Exchange{DDP: d, plan: d.Plan(), Layout: d.Machine().Layout(), Manner: as, Sum: program.None},
		own: program.None, share: program.None,
		factors: [2]program.ID{program.None, program.None},
	}
	for _, b := range e.plan.Buckets {
		e.buckets = append(e.buckets, program.None)
		e.missing = append(e.missing, len(b.Params))
	}
	for _, p := range d.Model() {
		node, _ := p.(*gorgonia.Node) // all parameters of a DDP are nodes
		e.params = append(e.params, node)
	}
	e.shard = newSharding(e)
	return e
}

// lower returns the operand of a node that a DDP has put into the graph.
func (e *exchanging) lower(c *current) (draft.Operand, error) {
	switch op := c.n.Op().(type) {
	case *ops.Begin:
		e.begin()
		return c.in[0], nil
	case *ops.Join:
		for range e.buckets {
			e.reduceFull()
		}
		return c.in[0], nil
	case *ops.Start:
		return c.in[0], e.deposit(c.in[0], op.Hook())
	case *ops.Wait:
		slot, err := e.slotOf(op.Hook())
		if e.Manner.Local() || e.staged() {
			return draft.Number(0, slot.DType, slot.Shape), err
		}
		return slot, err
	}
	return draft.Operand{}, fmt.Errorf("%T is not an op of ddp", c.n.Op())
}

// begin adds the values of buckets and the factors of gradients.
func (e *exchanging) begin() {
	e.Begun = true
	if e.staged() {
		e.shard.stage()
	} else {
		for i, b := range e.plan.Buckets {
			e.buckets[i] = e.outside(fmt.Sprintf("bucket %d", i), program.Gradient, e.Layout.Buckets[i], b.Elements)
		}
	}
	if e.sums() && !e.Layout.Share.Alone || e.Layout.Late {
		e.group = e.out.group(e.Layout.Group)
	}
	switch {
	case e.Layout.Virtual.Runs > 0:
		e.exchangeVirtualWeights()
	case !e.Manner.Local():
		e.exchangeWeights()
	}
	if !e.Manner.plain() {
		e.scaleGradients()
	}
	e.trustResiduals()
	if e.Layout.Idle {
		by := e.own
		if e.Manner.Local() || e.Manner.joins() {
			by = e.share
		}
		e.Label = "does it count"
		e.counts = e.Fresh(tensor.F32, nil)
		m := e.NewCode(nil)
		e.Add(m.MapTo(m.Do(program.Greater, m.Load(e.Whole(by)), m.Constant(0)), e.counts))
	}
}

// exchangeWeights adds the sum of the weights and the factors that follow from it.
func (e *exchanging) exchangeWeights() {
	share := &e.Layout.Share
	sum := program.None
	if share.Divides {
		sum = e.outside("weight", program.State, e.Layout.Weights[0])
	}
	if share.Exchanged() {
		weight := sum
		sum = e.outside("sum of weights", program.Output, e.Layout.Weights[1])
		e.Sum = sum
		e.Label = e.Layout.Prefix + "sum of weights"
		e.Add(program.Step{
			Op: &program.Collective{Kind: dist.KindAllReduce, Red: dist.Sum, Group: e.group},
			In: []program.View{e.Program.Whole(weight)}, Out: []program.View{e.Program.Whole(e.Sum)},
		})
		if r := e.Layout.Replicas; r != nil {
			e.sumOver(r, e.Whole(e.Sum))
		}
	}
	e.own = e.outside("own weight", program.State, e.Layout.Weights[2])
	e.Label = "factor"
	for k, b := range e.Layout.Factors {
		if !e.has(b.DType()) {
			continue
		}
		e.factors[k] = e.outside("factor", program.State, b)
		m := e.NewCode(nil)
		e.Add(m.MapTo(e.shareOf(m, e.Whole(e.own), sum), e.Whole(e.factors[k])))
	}
}

// shareOf returns a register with the share of own in the sum: see drive.Share.
func (e *exchanging) shareOf(m *draft.Code, own draft.Operand, sum program.ID) int {
	share := &e.Layout.Share
	times := func(r int) int {
		if share.Times == 1 {
			return r
		}
		return m.Do(program.Mul, r, m.Constant(share.Times))
	}
	r := m.Load(own)
	if !share.Divides {
		return times(r)
	}
	total, none := m.Load(e.Whole(sum)), m.Constant(0)
	positive := m.Do(program.Greater, total, none)
	r = m.Do(program.Div, times(r), total)
	if share.Over != 1 {
		r = m.Do(program.Div, r, m.Constant(share.Over))
	}
	return m.Do(program.Select, positive, r, none)
}

// trustResiduals adds, with error feedback, whether the residuals of the last step count.
func (e *exchanging) trustResiduals() {
	f := &e.Layout.Feedback
	if len(f.Residuals) == 0 || !e.sums() {
		return
	}
	e.finite = e.outside("finite gradients", program.State, f.Finite, f.Finite.Len())
	e.distrust = e.outside("residuals restart", program.State, f.Doubt, 1)
	keep := e.outside("residuals count", program.State, e.Layout.Weights[4])
	e.Label = "do residuals count"
	e.trust = e.Fresh(tensor.F32, nil)
	m := e.NewCode(nil)
	clean := m.Do(program.Equal, m.Load(draft.Operand{View: program.View{Value: e.distrust}, DType: tensor.F64}), m.Constant(0))
	e.Add(m.MapTo(m.Do(program.Select, clean, m.Load(e.Whole(keep)), m.Constant(0)), e.trust))
}

// param returns the index of a hook's parameter in the plan.
func (e *exchanging) param(h *ops.Hook) (int, error) {
	d, i, ok := ddp.Owner(h.Reducer())
	if !ok || d != e.DDP {
		return 0, fmt.Errorf("gradient of %q: %w", h.Param().Name(), ops.ErrNotAttached)
	}
	return i, nil
}

// slotOf returns the slot of a parameter's gradient.
func (e *exchanging) slotOf(h *ops.Hook) (draft.Operand, error) {
	i, err := e.param(h)
	if err != nil {
		return draft.Operand{}, err
	}
	q := e.plan.Params[i]
	return draft.Operand{
		View:  program.View{Value: e.buckets[q.Bucket], Offset: q.Offset, Strides: program.Contiguous(q.Shape)},
		Shape: slices.Clone(q.Shape), DType: q.DType,
	}, nil
}

// deposit puts a gradient into its slot, and reduces the buckets that are then full.
func (e *exchanging) deposit(g draft.Operand, h *ops.Hook) error {
	to, err := e.slotOf(h)
	if err != nil {
		return err
	}
	if g.Len() != to.Len() || g.DType != to.DType {
		return fmt.Errorf("a gradient %v%v for a parameter %v%v", g.DType, g.Shape, to.DType, to.Shape)
	}
	if g = e.Reshape(g, to.Shape); e.Manner.plain() {
		e.CopyTo(to, g)
		e.copies = append(e.copies, slotCopy{step: len(e.Program.Steps) - 1, offset: to.View.Offset, bucket: to.View.Value})
	} else if err := e.accumulate(to, g); err != nil {
		return err
	}
	i, err := e.param(h)
	if err != nil {
		return err
	}
	e.missing[e.plan.Params[i].Bucket]--
	for (e.Layout.Overlap || e.staged()) && e.acts() && e.next < len(e.buckets) && e.missing[e.next] == 0 {
		e.reduceFull()
	}
	return nil
}

// reduceFull adds the exchange of the next bucket.
func (e *exchanging) reduceFull() {
	if e.next == len(e.buckets) || !e.acts() {
		return
	}
	i := e.next
	e.next++
	label := e.Label
	e.Label = fmt.Sprintf("%sbucket %d", e.Layout.Prefix, i)
	(&bucketSteps{exchanging: e, i: i, all: e.bucket(i)}).add()
	e.Label = label
}

// acts reports whether a run of the program has steps for full buckets.
func (e *exchanging) acts() bool { return e.sums() || e.Manner.isVirtual() }

// sums reports whether a run of the program exchanges buckets.
func (e *exchanging) sums() bool { return !e.Manner.Local() || e.staged() }

// bucket returns all of bucket i.
func (e *exchanging) bucket(i int) draft.Operand {
	p := &e.plan.Buckets[i]
	return draft.Operand{View: program.View{Value: e.buckets[i], Strides: []int{1}}, Shape: []int{p.Elements}, DType: p.DType}
}

// isSlot reports whether an operand is a parameter's slot in a bucket.
func (e *exchanging) isSlot(o draft.Operand) bool {
	return e != nil && !o.IsNum && slices.Contains(e.buckets, o.View.Value) &&
		slices.Equal(o.View.Strides, program.Contiguous(o.Shape))
}

// bornInSlots removes copies to slots: the step that computes a gradient writes it into the slot,
// if only the copy reads it.
func (e *exchanging) bornInSlots() {
	if e == nil {
		return
	}
	drop := make([]bool, len(e.Program.Steps))
	for _, k := range e.copies {
		s := &e.Program.Steps[k.step]
		if len(s.In) != 1 { // the gradient is a constant number
			continue
		}
		from := s.In[0]
		v := &e.Program.Values[from.Value]
		n := draft.SizeOf(s.Op.(*program.Map).Space)
		if v.Place != program.Arena || v.Role != program.Temp || from.Offset != 0 || v.Len() != n ||
			!slices.Equal(from.Strides, s.Out[0].Strides) || e.Readers(from.Value) != 1 || e.IsForeign(from.Value) ||
			e.staged() && e.ReadSince(k.bucket, from.Value, k.step) {
			continue
		}
		e.Shift(from.Value, k.bucket, k.offset)
		drop[k.step] = true
	}
	e.Drop(drop)
}

// scaleGradients adds the factors of gradients, in their dtypes.
func (e *exchanging) scaleGradients() {
	e.share = e.outside("weight of the gradients", program.State, e.Layout.Weights[3])
	e.Label = "weight of the gradients"
	for k, b := range e.Layout.Factors {
		if !e.has(b.DType()) {
			continue
		}
		e.scales[k] = e.Fresh(b.DType(), nil)
		e.CopyTo(e.scales[k], e.Whole(e.share))
	}
}

// accumulate writes a weighted gradient to its slot, or adds it.
func (e *exchanging) accumulate(slot, g draft.Operand) error {
	c := e.NewCode(slot.Shape)
	r := c.Do(program.Product, c.Load(e.scales[factorOf(slot.DType)]), c.Load(g))
	rest := -1
	if e.Manner.joins() && !e.staged() { // with staged, the sums are accumulated
		rest = c.Load(slot)
		r = c.Do(program.Add, rest, r)
	}
	if e.Layout.Idle {
		if rest < 0 {
			rest = c.Constant(0)
		}
		r = c.Do(program.Select, c.Load(e.counts), r, rest)
	}
	if c.Err == nil {
		e.Add(c.MapTo(r, slot))
	}
	return c.Err
}

// sumOver adds the sum of an operand over the ranks of a group, in place.
func (e *exchanging) sumOver(g *dist.Group, o draft.Operand) {
	e.Add(program.Step{
		Op: &program.Collective{Kind: dist.KindAllReduce, Red: dist.Sum, Group: e.out.group(g)},
		In: []program.View{o.View}, Out: []program.View{o.View},
	})
}
