package hosts

import (
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"github.com/symgrad/symgrad/internal/net/wire"
	"github.com/symgrad/symgrad/tensor"
)

// A chain is a large reduction over hosts, in chunks. The first host combines the elements of its
// ranks, and its leader sends the partial result to the leader of the next host, which continues
// it. So elements combine in rank order. The last host has the result, and sends it back the same
// way, to the hosts that need it. Several chunks are on their way at a time.
//
// Partial results of f16 and bf16 are f32, and are rounded once, at the end.
type chain struct {
	t      *Transport
	op     *dist.Op
	p      reduce.Partial
	acc    tensor.DType  // of a carry
	sum    reduce.Kernel // combines a carry with this host's elements
	near   *dist.Group   // blocking view of the ranks of this host; nil for one rank
	begins bool          // elements differ from a partial result
	ends   bool          // the last partial result differs from the result
	block  int           // elements of one result
	per    int           // elements of a chunk
	each   int           // chunks of a block
	chunks int           // in all
}

const (
	slots = 8 // chunks on their way
	ahead = 3 // chunks whose messages start before their turn
	late  = 3 // chunks after which a result is awaited
)

// slot is the state of one chunk on its way.
type slot struct {
	acc    []byte       // partial result
	result []byte       // result, if it has no place in the destination
	in     wire.Request // carry
	out    wire.Request // carry for the next host
	back   wire.Request // result of the next host
	on     wire.Request // result for the previous host
}

// reserve makes memory for a partial result of n bytes.
func (s *slot) reserve(n int) {
	if len(s.acc) < n {
		s.acc = make([]byte, n)
	}
}

// chunk is a range of elements, and this host's part in it.
type chunk struct {
	s    *slot
	at   int // in the source
	to   int // in the destination of a rank that needs it
	n    int
	root int // rank that needs the result; -1 for all
	pos  int // of this host in the chain
	last int // position of the last host
	low  int // lowest position that needs the result
	prev int // leader of the previous host, a rank of the group
	next int // leader of the next host
}

// chains reports whether op is a chain: large enough, on hosts whose ranks follow each other.
func (t *Transport) chains(op *dist.Op) bool {
	return op.Kind.Reduces() && t.l.ordered && len(t.l.members) > 1 && op.Src.Bytes() >= int64(t.p.cfg.ChainBytes)
}

// chain does a reduction, after all ranks have compared their calls.
//
// Errors: those of await.
func (t *Transport) chain(op *dist.Op) error {
	t.op.Blocks() // ranks of this host wait for each other in another group
	c := &chain{t: t, op: op}
	c.p = reduce.Partial{DType: op.DType(), Red: op.Red.Kind, Ranks: len(t.ranks)}
	c.acc, c.sum = c.p.Acc(), reduce.For(c.p.Acc(), c.p.Combining())
	c.begins, c.ends = c.p.Begins(), c.p.Ends()
	c.near = t.inner.group
	t.scalars(op)
	c.cut()
	err := c.run()
	if err != nil {
		t.drop()
	}
	return err
}

// run passes all chunks through the chain.
func (c *chain) run() error {
	steps := [...]struct {
		do   func(*chunk) error
		from int
	}{{c.begin, ahead}, {c.up, 0}, {c.down, -late}}
	for i := -ahead; i < c.chunks+late; i++ {
		for _, step := range steps {
			if at := i + step.from; at >= 0 && at < c.chunks {
				k := c.chunk(at)
				if err := step.do(&k); err != nil {
					return err
				}
			}
		}
	}
	for i := max(c.chunks-slots, 0); i < c.chunks; i++ {
		k := c.chunk(i)
		if err := c.sent(&k); err != nil {
			return err
		}
	}
	return nil
}

// chunkBytes returns the bytes of a chunk of a reduction of bytes bytes.
func (t *Transport) chunkBytes(bytes int) int {
	least := t.p.cfg.ChainBytes
	return min(max(bytes/8, least), 8*least)
}

// cut cuts the operation into chunks. Each belongs to one block.
func (c *chain) cut() {
	c.block = c.op.Src.Len()
	if c.op.Kind == dist.KindReduceScatter {
		c.block = c.op.Count
	}
	size := c.acc.Size()
	c.per = min(max(c.t.chunkBytes(int(c.op.Src.Bytes()))/size, 1), c.block)
	c.each = (c.block + c.per - 1) / c.per
	c.chunks = c.op.Src.Len() / c.block * c.each
	for i := range c.t.slots {
		s := &c.t.slots[i]
		s.reserve(c.per * size)
		if len(s.result) < c.per*size {
			s.result = make([]byte, c.per*size)
		}
	}
	if c.begins && len(c.t.scratch) < c.per*size {
		c.t.scratch = make([]byte, c.per*size)
	}
}

// chunk returns the i-th chunk.
func (c *chain) chunk(i int) chunk {
	l := &c.t.l
	b, at := i/c.each, i%c.each*c.per
	k := chunk{s: &c.t.slots[i%slots], at: b*c.block + at, to: at, n: min(c.per, c.block-at), root: -1}
	switch c.op.Kind {
	case dist.KindReduce:
		k.root = c.op.Root
	case dist.KindReduceScatter:
		k.root = b
	}
	k.pos, k.last = l.host, len(l.members)-1
	k.prev, k.next = l.leader(l.host-1), l.leader(l.host+1)
	if k.root >= 0 {
		k.low = l.hostOf[k.root]
	}
	return k
}

// leader returns the first rank of a host; -1 for no host.
func (l *layout) leader(host int) int {
	if host < 0 || host >= len(l.members) {
		return -1
	}
	return l.members[host][0]
}
