package lower

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
	"github.com/symgrad/symgrad/internal/drive"
	"github.com/symgrad/symgrad/tensor"
)

// bucketSteps adds the exchange of one full bucket: the Actions of package drive as steps.
type bucketSteps struct {
	*exchanging
	i    int
	all  draft.Operand // the bucket
	sent draft.Operand // the message, or this rank's runs of virtual ranks; without a type at first
	sum  draft.Operand // the sum over the ranks, or this rank's part of it; without a type before there is one
	got  draft.Operand // slices of this rank, of all virtual ranks
	by   float64       // factor of the sum
}

// add adds all steps.
func (x *bucketSteps) add() {
	x.clearGaps()
	if x.guards() && x.Layout.WireDType == tensor.Invalid {
		m := x.NewCode(x.all.Shape)
		x.Add(m.MapTo(x.guarded(m, m.Load(x.all)), x.all))
	}
	if x.Manner.isVirtual() {
		x.pack(x.runs(), x.Manner.part(), false)
		return
	}
	if x.Layout.Hosted {
		x.callHook()
	} else {
		for _, a := range x.Layout.Actions[x.i] {
			x.do(a)
		}
	}
	if x.sum.DType != tensor.Invalid {
		x.doubt(x.settle())
	}
}

// do adds the steps of one action.
func (x *bucketSteps) do(a drive.Action) {
	switch a.Do {
	case drive.Scale:
		m := x.NewCode(x.all.Shape)
		x.Add(m.MapTo(x.guarded(m, x.product(m)), x.all))
	case drive.Encode:
		if x.trust.DType == tensor.Invalid {
			x.encode()
		} else {
			x.encodeWithResiduals()
		}
	case drive.Sum:
		x.sumUp(a.Message != drive.NoMessage)
	case drive.Decode:
		x.by = a.By
	case drive.Pack:
		x.packAll()
	case drive.Trade:
		x.trade()
	case drive.Add:
		x.addUpSlices()
	case drive.Gather:
		x.gather()
	}
}

// callHook adds a call of ddp's hook, which works on a copy of the bucket on the host.
func (x *bucketSteps) callHook() {
	in := []program.View{x.all.View}
	if !x.Manner.Local() {
		in = append(in, x.Program.Whole(x.factors[factorOf(x.all.DType)]))
	}
	if x.Sum != program.None {
		in = append(in, x.Program.Whole(x.Sum))
	}
	of, i, part := x.DDP.Machine(), x.i, x.Layout.Share.Part
	x.sum, x.by = x.Fresh(x.all.DType, x.all.Shape), 1
	x.call(&Call{label: fmt.Sprintf("hook of bucket %d", i), hook: func(in, out []tensor.Buffer) error {
		copy(out[0].Raw(), in[0].Raw())
		c := drive.HookCall{Gradients: out[0], Share: part}
		if len(in) > 1 {
			c.Share = program.Element(in[1].DType(), in[1].Raw(), 0)
		}
		if len(in) > 2 {
			c.Sum = program.Element(tensor.F64, in[2].Raw(), 0)
		}
		return of.Hook(i, c)
	}}, in, []program.View{x.sum.View})
	if x.shard != nil {
		x.sum = draft.Cut(x.sum, 0, x.shard.rank*x.plan.Buckets[i].Shard, 1, x.plan.Buckets[i].Shard)
	}
}

// guarded returns register r, or 0 if the gradients of this run do not count.
func (x *bucketSteps) guarded(m *draft.Code, r int) int {
	if !x.guards() {
		return r
	}
	return m.Do(program.Select, m.Load(x.counts), r, m.Constant(0))
}

// product returns a register with the share times the bucket.
func (x *bucketSteps) product(m *draft.Code) int {
	r := m.Load(x.all)
	switch part := x.Layout.Share.Part; {
	case !x.Manner.Local():
		r = m.Do(program.Product, m.Load(x.Whole(x.factors[factorOf(x.all.DType)])), r)
	case part != 1: // with Stage 2, a part of a batch
		r = m.Do(program.Product, m.Constant(part), r)
	}
	return r
}

// message returns the message of the bucket. It has its own memory, since all messages may be in
// flight at the same time.
func (x *bucketSteps) message() draft.Operand {
	if x.sent.DType == tensor.Invalid {
		x.sent = x.wire(x.i, x.all.Shape)
	}
	return x.sent
}

// encode rounds the product to the message.
func (x *bucketSteps) encode() {
	m := x.NewCode(x.all.Shape)
	r := x.guarded(m, x.product(m))
	if x.all.DType == tensor.F64 { // a store would round twice, by f32
		r = m.Do(x.narrow(), r)
	}
	x.Add(m.MapTo(r, x.message()))
}

// narrow returns the operation that rounds to the message's dtype.
func (x *bucketSteps) narrow() program.Scalar {
	if x.Layout.WireDType == tensor.F16 {
		return program.ToF16
	}
	return program.ToBF16
}

// encodeWithResiduals rounds the product plus the residual to the message, and keeps the rest.
func (x *bucketSteps) encodeWithResiduals() {
	residual := x.Whole(x.outside(fmt.Sprintf("residual %d", x.i), program.State, x.Layout.Feedback.Residuals[x.i], x.all.Len()))
	m := x.NewCode(x.all.Shape)
	none := m.Constant(0)
	fed := m.Do(program.Add, x.guarded(m, x.product(m)), m.Do(program.Select, m.Load(x.trust), m.Load(residual), none))
	sent := m.Do(x.narrow(), fed)
	rest := m.Do(program.Sub, fed, sent)
	finite := m.Do(program.Equal, m.Do(program.Sub, rest, rest), none)
	rest = m.Do(program.Select, finite, rest, none)
	_ = m.Store([]draft.Operand{x.message(), residual}, sent, rest)
}

// clearGaps zeroes the elements between gradients, with error feedback and shared buckets. They
// would have residuals of other buckets' gradients.
func (x *bucketSteps) clearGaps() {
	if x.trust.DType == tensor.Invalid || !x.staged() {
		return
	}
	end := 0
	clear := func(to int) {
		if to > end {
			x.CopyTo(draft.Cut(x.all, 0, end, 1, to-end), draft.Number(0, x.all.DType, []int{to - end}))
		}
	}
	for _, j := range x.plan.Buckets[x.i].Params {
		q := x.plan.Params[j]
		clear(q.Offset)
		end = q.Offset + q.Len()
	}
	clear(x.all.Len())
}

// sumUp adds the sum over the ranks, of the message or of the share times the bucket, in place.
func (x *bucketSteps) sumUp(message bool) {
	of, red, factor := x.all, dist.Sum, []program.View(nil)
	switch part := x.Layout.Share.Part; {
	case message:
		of = x.message()
	case !x.Manner.Local():
		red, factor = dist.RedOp{Kind: dist.RedPreMulSum}, []program.View{x.Program.Whole(x.factors[factorOf(of.DType)])}
	case part != 1 && of.DType == tensor.F64: // with Stage 2, a part of a batch
		red = dist.PreMulSum(part)
	case part != 1:
		red = dist.PreMulSum(float32(part))
	}
	x.by = 1
	if x.shard != nil {
		x.sum = x.shard.scatter(x.i, of, red, factor...)
		return
	}
	x.sum = of
	x.Add(program.Step{
		Op: &program.Collective{Kind: dist.KindAllReduce, Red: red, Group: x.group},
		In: append([]program.View{of.View}, factor...), Out: []program.View{of.View},
	})
}

// settle moves the sum, times its factor, to its place, and returns that.
func (x *bucketSteps) settle() draft.Operand {
	if x.shard != nil {
		return x.shard.settle(x.i, x.sum, x.by)
	}
	x.moveTo(x.all, x.sum, x.by)
	return x.all
}

// moveTo adds a copy of an operand times a number, unless it would change nothing.
func (e *exchanging) moveTo(to, from draft.Operand, by float64) {
	switch {
	case by != 1:
		m := e.NewCode(to.Shape)
		e.Add(m.MapTo(m.Do(program.Product, m.Constant(by), m.Load(from)), to))
	case from.View.Value != to.View.Value:
		e.CopyTo(to, from)
	}
}

// doubt notes, with error feedback, whether this rank's part of a gradient is finite, as are the
// squares of f64, and after the last bucket whether all are. If not, residuals restart at 0 in the
// next run, since the update is skipped.
func (x *bucketSteps) doubt(part draft.Operand) {
	if x.trust.DType == tensor.Invalid {
		return
	}
	m := x.NewCode(part.Shape)
	r := m.Load(part)
	if part.DType == tensor.F64 {
		r = m.Do(program.Mul, r, r)
	}
	m.Do(program.Sub, r, r)
	finite := x.Whole(x.finite)
	_ = m.SumTo(finite, x.i)
	if x.next < len(x.buckets) {
		return
	}
	x.Label = x.Layout.Prefix + "finite gradients"
	m = x.NewCode(finite.Shape)
	m.Load(finite)
	_ = m.SumTo(x.Whole(x.distrust), 0)
	if x.shard == nil { // all ranks have the same sums
		return
	}
	x.sumOver(x.Layout.Group, x.Whole(x.distrust))
	if r := x.Layout.Replicas; r != nil {
		x.sumOver(r, x.Whole(x.distrust))
	}
}

// wire returns the message of bucket i. With Stage 2 messages share memory, as their buckets do.
func (e *exchanging) wire(i int, shape []int) draft.Operand {
	if e.staged() {
		if len(e.wires) == 0 {
			e.wires = e.shared("message", program.Temp, e.Layout.Wires)
		}
		return draft.Operand{View: program.View{Value: e.wires[i], Strides: []int{1}}, Shape: shape, DType: e.Layout.WireDType}
	}
	return e.Whole(e.outside(fmt.Sprintf("message %d", i), program.Temp, e.Layout.Wires[i], shape...))
}

// guards reports whether gradients must be cleared at weight 0 before they are summed. accumulate
// does so for accumulated ones.
func (e *exchanging) guards() bool { return e.Layout.Idle && e.Manner.plain() }

// shared adds values for buffers, one for all buffers with the same start.
func (e *exchanging) shared(name string, role program.Role, buffers []tensor.Buffer) []program.ID {
	ids := slices.Repeat([]program.ID{program.None}, len(buffers))
	n := 0
	for i, b := range buffers {
		if ids[i] != program.None {
			continue
		}
		var same []int
		for j, other := range buffers {
			if other.Pointer() != b.Pointer() {
				continue
			}
			if same = append(same, j); other.Len() > b.Len() {
				b = other
			}
		}
		id := e.outside(fmt.Sprintf("%s %d", name, n), role, b, b.Len())
		for _, j := range same {
			ids[j] = id
		}
		n++
	}
	return ids
}
