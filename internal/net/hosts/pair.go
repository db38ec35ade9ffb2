package hosts

import (
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"github.com/symgrad/symgrad/tensor"
)

// A pair is a reduction of two ranks on two hosts that is too large for one exchange. The first
// elements travel in the exchange that compares the calls, and the others in chunks that follow it
// at once. Each rank sends the elements that the other combines, and combines those that it needs.
type pair struct {
	t      *Transport
	op     *dist.Op
	sum    reduce.Kernel
	size   int // bytes of an element
	peer   int
	out    part // elements that this rank sends, in the source
	in     part // elements that it combines, in the source
	first  int  // elements in the exchange
	per    int  // elements of a chunk
	chunks int
	lead   int // chunks on their way
}

// part is a range of elements.
type part struct{ at, n int }

// chunk returns the range of a chunk, which may be empty at the end.
func (c *pair) chunk(p part, i int) part {
	from := min(c.first+i*c.per, p.n)
	return part{p.at + from, min(c.per, p.n-from)}
}

// Chunks of a pair. Open MPI sends up to 64 KiB at once. For a longer message it first asks the
// receiver, which must be worth it. Long chunks fit in a cache of the second level.
const (
	shortChunk = 48 << 10
	longChunk  = 512 << 10
	mostShort  = 128 << 10 // most bytes of an operation in short chunks
)

// pairs reports whether op is a pair.
func (t *Transport) pairs(op *dist.Op) bool {
	return op.Kind.Reduces() && len(t.ranks) == 2 && len(t.l.members) == 2 && op.Src.Bytes() > int64(t.board.most)
}

// pair does a reduction.
//
// Errors: those of await; ErrMismatch if signatures differ, which breaks the group.
func (t *Transport) pair(op *dist.Op, h *header) error {
	c := t.newPair(op)
	x := &exchange{
		own: *h, bytes: c.first * c.size, sent: c.send,
		from: func(rank int) bool { return op.Kind != dist.KindReduce || rank != op.Root },
	}
	if c.out.n > 0 {
		x.fill = func(data []byte) { copy(data, op.Src.Raw()[c.out.at*c.size:]) }
	}
	err := t.meet(x)
	if err == nil {
		t.scalars(op)
		err = c.run(pointer(t.board.data(t.round, c.peer, x.bytes)))
	}
	if err != nil {
		t.drop()
	}
	return err
}

func (t *Transport) newPair(op *dist.Op) *pair {
	c := &pair{t: t, op: op, size: op.DType().Size(), peer: 1 - t.rank, sum: t.kernel(op), lead: 1}
	n, large := op.Src.Len(), op.Src.Bytes() > mostShort
	c.in, c.out = part{0, n}, part{0, n}
	switch {
	case op.Kind == dist.KindReduceScatter:
		c.in, c.out = part{t.rank * op.Count, op.Count}, part{c.peer * op.Count, op.Count}
	case op.Kind == dist.KindReduce && op.Root == t.rank:
		c.out = part{}
	case op.Kind == dist.KindReduce:
		c.in = part{}
	}
	c.per = longChunk / c.size
	if !large {
		c.per, c.lead = shortChunk/c.size, slots
	}
	most := max(c.in.n, c.out.n)
	c.first = min(t.board.most/c.size, most)
	c.chunks = (most - c.first + c.per - 1) / c.per
	return c
}

// run combines the elements of the exchange, at early, and those of the chunks.
func (c *pair) run(early unsafe.Pointer) error {
	for i := range min(c.lead, c.chunks) {
		c.recv(i)
	}
	c.combine(part{c.in.at, min(c.first, c.in.n)}, early)
	for i := range c.chunks {
		if err := c.wait(i); err != nil {
			return err
		}
		c.combine(c.chunk(c.in, i), pointer(c.t.slots[i%slots].acc))
		if i += c.lead; i < c.chunks {
			c.recv(i)
			c.start(i)
		}
	}
	return nil
}

// wait waits for the messages of a chunk. The destination may be the source, so that a chunk must
// have been sent before its result is stored.
func (c *pair) wait(i int) error {
	s := &c.t.slots[i%slots]
	if err := c.t.wait(&s.in, c.peer); err != nil {
		return err
	}
	return c.t.wait(&s.out, c.peer)
}

// send starts to send the first chunks.
func (c *pair) send() {
	for i := range min(c.lead, c.chunks) {
		c.start(i)
	}
}

// start starts to send a chunk.
func (c *pair) start(i int) {
	if c.out.n > 0 {
		k := c.chunk(c.out, i)
		c.t.p.w.Send(&c.t.slots[i%slots].out, c.t.ranks[c.peer], c.t.tag(channelBulk), c.bytes(c.op.Src, k))
	}
}

// recv starts to receive a chunk.
func (c *pair) recv(i int) {
	if c.in.n > 0 {
		s, k := &c.t.slots[i%slots], c.chunk(c.in, i)
		s.reserve(min(c.per, c.in.n) * c.size)
		c.t.p.w.Recv(&s.in, c.t.ranks[c.peer], c.t.tag(channelBulk), s.acc[:k.n*c.size])
	}
}

// bytes returns the memory of a part of b.
func (c *pair) bytes(b tensor.Buffer, p part) []byte {
	return b.Raw()[p.at*c.size : (p.at+p.n)*c.size]
}

// combine combines elements of the source with those of the other rank, in rank order.
func (c *pair) combine(p part, other unsafe.Pointer) {
	if p.n == 0 {
		return
	}
	srcs := [2]unsafe.Pointer{pointer(c.bytes(c.op.Src, p)), other}
	if c.peer < c.t.rank {
		srcs[0], srcs[1] = srcs[1], srcs[0]
	}
	dsts := [1]unsafe.Pointer{pointer(c.op.Dst.Raw()[(p.at-c.in.at)*c.size:])}
	c.sum(dsts[:], srcs[:], p.n, c.t.mults, 0)
}
