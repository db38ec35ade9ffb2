package lower

import (
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/draft"
	"github.com/symgrad/symgrad/tensor"
)

// reduceNarrow adds the sum of bucket i in the WireDType of ddp: factor*bucket is rounded, summed
// and copied back to the bucket. The message has its own memory, in the symmetric heap if there is
// one, since all buckets may be in flight at the same time.
func (e *exchanging) reduceNarrow(i int) {
	n := []int{e.plan.Buckets[i].Elements}
	bucket := e.bucket(i)
	wire := e.wire(i, n)
	m := e.NewCode(n)
	r := m.Load(bucket)
	if !e.Manner.Local() {
		r = m.Do(program.Mul, m.Load(e.Whole(e.factors[factorOf(bucket.DType)])), r)
	}
	if e.guards() {
		r = m.Do(program.Select, m.Load(e.counts), r, m.Constant(0))
	}
	e.Add(m.MapTo(r, wire))
	if e.shard == nil {
		e.sumOver(e.Layout.Group, wire)
		e.CopyTo(bucket, wire)
		return
	}
	e.shard.scatter(i, wire, dist.Sum)
}

// wire returns the message of bucket i. With Stage 2 messages share memory, as their buckets do.
func (e *exchanging) wire(i int, shape []int) draft.Operand {
	if len(e.Layout.Wires) == 0 {
		return e.Fresh(e.Layout.WireDType, shape)
	}
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
func (e *exchanging) guards() bool { return e.Layout.Idle && e.Manner == WholeBatch }

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
