package hosts

import (
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/net/wire"
	"github.com/symgrad/symgrad/tensor"
)

// A direct move is a large collective that only copies. After the ranks have compared their calls,
// each block travels once to every host that needs it, into the destination of one rank there. That
// rank passes it on to the others of its host.
type direct struct {
	t    *Transport
	op   *dist.Op
	near *dist.Group // blocking view of the ranks of this host; nil for one rank
}

// largeMessage is the most bytes of a message of a direct move.
const largeMessage = 64 << 20

// copies reports whether op is a direct move.
func (t *Transport) copies(op *dist.Op) bool {
	return !op.Kind.Reduces() && len(t.l.far) > 0 && op.DType() != tensor.Invalid &&
		blocks(op, len(t.ranks))*op.Count*op.DType().Size() > t.board.most
}

// direct does a collective, after all ranks have compared their calls.
//
// Errors: those of await.
func (t *Transport) direct(op *dist.Op) error {
	t.op.Blocks() // ranks of this host wait for each other in another group
	d := &direct{t: t, op: op, near: t.inner.group}
	var err error
	switch op.Kind {
	case dist.KindBroadcast:
		err = d.broadcast()
	case dist.KindAllGather:
		err = d.allGather()
	default:
		err = d.each()
	}
	if err == nil {
		err = t.landAll(t.flows)
	}
	if err != nil {
		t.drop()
	}
	t.flows = t.flows[:0]
	return err
}

// block returns the i-th block of a buffer.
func (d *direct) block(b tensor.Buffer, i int) tensor.Buffer {
	part, _ := b.Slice(i*d.op.Count, (i+1)*d.op.Count) // the group has checked the length
	return part
}

// send starts to send a block to a rank of another host.
func (d *direct) send(to int, b tensor.Buffer) {
	for data := b.Raw(); len(data) > 0; data = data[min(len(data), largeMessage):] {
		d.t.p.w.Send(d.t.flow(), d.t.ranks[to], d.t.tag(channelBulk), data[:min(len(data), largeMessage)])
	}
}

// recv starts to receive a block of a rank of another host.
func (d *direct) recv(from int, b tensor.Buffer) {
	for data := b.Raw(); len(data) > 0; data = data[min(len(data), largeMessage):] {
		d.t.p.w.Recv(d.t.flow(), d.t.ranks[from], d.t.tag(channelBulk), data[:min(len(data), largeMessage)])
	}
}

// flow returns a request of the running direct move.
func (t *Transport) flow() *wire.Request {
	r := fitting()
	t.flows = append(t.flows, r)
	return r
}

// landAll waits for messages.
func (t *Transport) landAll(rs []*wire.Request) error {
	for _, r := range rs {
		if err := t.wait(r, -1); err != nil {
			return err
		}
	}
	return nil
}

// entry returns the rank of a host that receives the block of rank. The ranks take turns.
func (d *direct) entry(host, rank int) int {
	m := d.t.l.members[host]
	return m[rank%len(m)]
}

// share passes memory on to the ranks of this host. from, a rank of the group, has its data.
func (d *direct) share(b tensor.Buffer, from int) error {
	if d.near == nil {
		return nil
	}
	_, err := d.near.Broadcast(b, b, d.t.near(from))
	return d.t.inside(err)
}

// allGather sends this rank's block to every other host. Blocks of other hosts are passed on after
// all messages of this rank are done: a rank that waits for its host moves no messages.
func (d *direct) allGather() error {
	t := d.t
	own := d.block(d.op.Dst, t.rank)
	copy(own.Raw(), d.op.Src.Raw())
	for r := range t.ranks {
		if t.l.hostOf[r] != t.l.host && d.entry(t.l.host, r) == t.rank {
			d.recv(r, d.block(d.op.Dst, r))
		}
	}
	for _, h := range t.l.far {
		d.send(d.entry(h, t.rank), own)
	}
	for _, r := range t.l.members[t.l.host] { // while the others are on their way
		if err := d.share(d.block(d.op.Dst, r), r); err != nil {
			return err
		}
	}
	if err := t.landAll(t.flows); err != nil {
		return err
	}
	for r := range t.ranks {
		if t.l.hostOf[r] == t.l.host {
			continue
		}
		if err := d.share(d.block(d.op.Dst, r), d.entry(t.l.host, r)); err != nil {
			return err
		}
	}
	return nil
}

// broadcast passes the data from host to host in chunks, as long as those of a pair. Several chunks
// are on their way at a time. The root passes them on from its host, the leaders from the others.
func (d *direct) broadcast() error {
	t, hosts := d.t, len(d.t.l.members)
	first := t.l.hostOf[d.op.Root]
	pos := (t.l.host - first + hosts) % hosts
	entry := func(pos int) int {
		if pos == 0 {
			return d.op.Root
		}
		return t.l.leader((first + pos) % hosts)
	}
	if t.rank == d.op.Root {
		copy(d.op.Dst.Raw(), d.op.Src.Raw())
	}
	dst, lead := d.op.Dst.Raw(), entry(pos) == t.rank
	chunk := func(i int) []byte { return dst[min(i*longChunk, len(dst)):min((i+1)*longChunk, len(dst))] }
	chunks := (len(dst) + longChunk - 1) / longChunk
	for i := -slots + 1; i < chunks; i++ {
		if k := i + slots - 1; lead && pos > 0 && k < chunks {
			t.p.w.Recv(&t.slots[k%slots].in, t.ranks[entry(pos-1)], t.tag(channelBulk), chunk(k))
		}
		if i < 0 {
			continue
		}
		if lead {
			s := &t.slots[i%slots]
			if err := t.landAll([]*wire.Request{&s.in, &s.out}); err != nil {
				return err
			}
			if pos < hosts-1 {
				t.p.w.Send(&s.out, t.ranks[entry(pos+1)], t.tag(channelBulk), chunk(i))
			}
		}
		part, err := view(chunk(i), len(chunk(i)), tensor.U8)
		if err != nil {
			return err
		}
		if err := d.share(part, entry(pos)); err != nil {
			return err
		}
	}
	for i := range t.slots {
		if err := t.wait(&t.slots[i].out, -1); err != nil {
			return err
		}
	}
	return nil
}

// each sends every rank its own block: scatter, gather and all-to-all.
func (d *direct) each() error {
	t, op := d.t, d.op
	out := func(r int) (b tensor.Buffer, has bool) {
		if op.Kind == dist.KindGather {
			return op.Src, r == op.Root
		}
		if op.Kind == dist.KindScatter && t.rank != op.Root {
			return b, false
		}
		return d.block(op.Src, r), true
	}
	in := func(r int) (b tensor.Buffer, has bool) {
		if op.Kind == dist.KindScatter {
			return op.Dst, r == op.Root
		}
		if op.Kind == dist.KindGather && t.rank != op.Root {
			return b, false
		}
		return d.block(op.Dst, r), true
	}
	for r := range t.ranks {
		src, sends := out(r)
		dst, receives := in(r)
		switch {
		case r == t.rank:
			if sends && receives {
				copy(dst.Raw(), src.Raw())
			}
		case t.l.hostOf[r] != t.l.host:
			if receives {
				d.recv(r, dst)
			}
			if sends {
				d.send(r, src)
			}
		}
	}
	return d.eachNear(out, in)
}

// eachNear exchanges blocks with the other ranks of this host, in an order in which no two wait for
// each other.
func (d *direct) eachNear(out, in func(r int) (tensor.Buffer, bool)) error {
	t := d.t
	for i, r := range t.l.members[t.l.host] {
		if r == t.rank {
			continue
		}
		for turn := range 2 {
			var err error
			if (turn == 0) == (t.rank < r) {
				if b, has := out(r); has {
					_, err = d.near.Send(b, i)
				}
			} else if b, has := in(r); has {
				_, err = d.near.Recv(b, i)
			}
			if err != nil {
				return t.inside(err)
			}
		}
	}
	return nil
}
