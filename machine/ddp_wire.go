package machine

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/program"
)

// reduceNarrow adds the sum of bucket i in the WireDType of ddp: factor*bucket is rounded, summed
// and copied back to the bucket. The message has its own memory, in the symmetric heap if there is
// one, since all buckets may be in flight at the same time.
func (l *lowering) reduceNarrow(i int) {
	e := l.exchange
	n := []int{e.plan.Buckets[i].Elements}
	bucket := l.bucket(i)
	wire := l.wire(i, n)
	m := l.newCode(n)
	r := m.load(bucket)
	if !e.manner.local() {
		r = m.do(program.Mul, m.load(l.whole(e.factors[factorOf(bucket.dtype)])), r)
	}
	if e.guards() {
		r = m.do(program.Select, m.load(e.counts), r, m.constant(0))
	}
	l.add(m.mapTo(r, wire))
	if e.shard == nil {
		l.sumOver(e.layout.Group, wire)
		l.copyTo(bucket, wire)
		return
	}
	l.scatter(i, wire, dist.Sum)
}

// wire returns the message of bucket i. With Stage 2 messages share memory, as their buckets do.
func (l *lowering) wire(i int, shape []int) operand {
	e := l.exchange
	if len(e.layout.Wires) == 0 {
		return l.fresh(e.layout.WireDType, shape)
	}
	if e.staged() {
		if len(e.wires) == 0 {
			e.wires = l.shared("message", program.Temp, e.layout.Wires)
		}
		return operand{view: program.View{Value: e.wires[i], Strides: []int{1}}, shape: shape, dtype: e.layout.WireDType}
	}
	return l.whole(l.outside(fmt.Sprintf("message %d", i), program.Temp, e.layout.Wires[i], shape...))
}

// guards reports whether gradients must be cleared at weight 0 before they are summed. accumulate
// does so for accumulated ones.
func (e *exchange) guards() bool { return e.idle && e.manner == wholeBatch }
