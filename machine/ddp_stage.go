package machine

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/program"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// staged reports whether buckets of gradients exist only while they fill and are summed: Stages 2
// and 3 of ddp.
func (e *exchange) staged() bool { return e != nil && e.plan.Stage >= 2 }

// gathers reports whether a rank has only its own part of each bucket of weights: Stage 3.
func (e *exchange) gathers() bool { return e != nil && e.plan.Stage == 3 }

// stage adds one value for all buckets that share memory, and values for this rank's parts of the
// sums. Since the buckets are one value, a step that fills a bucket follows the readers of the
// bucket before it.
func (l *lowering) stage() {
	e := l.exchange
	copy(e.buckets, l.shared("buckets", program.Gradient, e.layout.Buckets))

	for i, b := range e.layout.Shards {
		e.shard.shards[i] = l.outside(fmt.Sprintf("gradients %d", i), program.Gradient, b, b.Len())
	}
}

// shared adds values for buffers, one for all buffers with the same start.
func (l *lowering) shared(name string, role program.Role, buffers []tensor.Buffer) []program.ID {
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
		id := l.outside(fmt.Sprintf("%s %d", name, n), role, b, b.Len())
		for _, j := range same {
			ids[j] = id
		}
		n++
	}
	return ids
}

// join adds part to to, this rank's sums of earlier parts. In the last run it multiplies these by
// the factor, which part already has.
func (l *lowering) join(to, part operand) {
	e := l.exchange
	m := l.newCode(to.shape)
	before := m.load(to)
	if !e.manner.local() {
		before = m.do(program.Mul, m.load(l.whole(e.factors[factorOf(to.dtype)])), before)
	}
	l.add(m.mapTo(m.do(program.Add, before, m.load(part)), to))
}

// shard returns the input from which Stage 3 gathers a bucket of weights; false for other nodes.
func (l *lowering) shard(n *gorgonia.Node) (operand, bool) {
	if !l.exchange.gathers() {
		return operand{}, false
	}
	i, ok := ddp.ShardOf(n)
	if !ok {
		return operand{}, false
	}
	l.exchange.shard.views[n] = []int{i}
	return l.whole(l.ownWeights(i)), true
}

// ownWeights returns this rank's part of bucket i of weights.
func (l *lowering) ownWeights(i int) program.ID {
	e := l.exchange
	id := &e.shard.homes[i]
	if *id == program.None {
		*id = l.outside(fmt.Sprintf("shard %d", i), program.Param, e.layout.Own[i], e.layout.Own[i].Len())
	}
	return *id
}

// pieces returns the pieces of a parameter and its gradient that this rank updates.
func (l *lowering) pieces(n *gorgonia.Node, weight, grad operand, p ddp.Piece) (w, g operand) {
	e := l.exchange
	w, g = weight, grad
	if !e.gathers() {
		w = l.piece(weight, p)
	}
	if !e.staged() {
		return w, l.piece(grad, p)
	}
	bucket, from := e.inShard(n, p)
	own := func(of program.ID) operand {
		o := l.whole(of)
		if p.Len == 0 {
			return cut(o, 0, 0, 1, 0)
		}
		return cut(o, 0, from, 1, p.Len)
	}
	if e.gathers() {
		w = own(l.ownWeights(bucket))
	}
	return w, own(e.shard.shards[bucket])
}

// inShard returns the bucket of a parameter, and the offset of its piece in this rank's part.
func (e *exchange) inShard(n *gorgonia.Node, p ddp.Piece) (bucket, from int) {
	q := e.plan.Params[slices.Index(e.shard.params, n)]
	return q.Bucket, q.Offset + p.Offset - e.shard.rank*e.plan.Buckets[q.Bucket].Shard
}

// ownAt returns the device memory of the piece of a parameter that this rank updates; the zero
// Buffer for none.
func (s *solver) ownAt(i int) (tensor.Buffer, error) {
	n, piece := s.nodes[i], s.pieces[i]
	if piece.Len == 0 {
		return tensor.Buffer{}, nil
	}
	if e := s.m.now.exchange; e.gathers() {
		bucket, from := e.inShard(n, piece)
		return e.layout.Own[bucket].Slice(from, from+piece.Len)
	}
	p, ok := s.m.device.params[n]
	if !ok {
		return tensor.Buffer{}, fmt.Errorf("it is not on the device: %w", optim.ErrMismatch)
	}
	return p.at.Slice(piece.Offset, piece.Offset+piece.Len)
}
