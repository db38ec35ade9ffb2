package shm

import (
	"fmt"
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/reduce"
	"github.com/symgrad/symgrad/internal/ticks"
)

// Sizes in bytes, of the larger buffer, at which another route becomes faster; measured, see
// bench/.
const (
	helpBroadcast = 256 << 10 // from here a root without a copy of its own stores a part of a broadcast to the others

	// Total of all ranks: from here out-of-place sums and copies bypass the cache when they store;
	// from the second if the last-level cache is large enough. In-place sums never do.
	streamApart, streamRoomy = 32 << 20, 64 << 20

	// If ranks share cores, the direct route, which waits twice, costs more than a copy of new data
	// up to this size.
	stageBroadcast = 64 << 10
	stageOthers    = 32 << 10

	// Up to here an operation that filled a staging slot claims the next one at its end. For larger
	// slots that costs more than it saves.
	claimBroadcast = 64 << 10
	claimOthers    = 16 << 10
)

// mostClaimed is the largest number of destinations that a sum claims: with 16 of them sums of up
// to 64 KiB took longer.
const mostClaimed = 8

// collective runs one lockstep operation. Its route follows from its signature, which is equal on
// all ranks, and from the announcements of all ranks.
func (t *Transport) collective(op *dist.Op) error {
	if op.Memo == 0 {
		op.Memo = t.plan(op)
	}
	if op.Memo&planSmall != 0 {
		return t.runSmall(op)
	}
	bytes := int(op.Memo >> planBytes)
	own := &t.sides[t.rank]
	*own = sides{src: t.locate(op.Src), dst: t.locate(op.Dst)}
	if op.Kind.Reduces() && op.Red.Kind == dist.RedPreMulSum {
		bits, err := reduce.ScalarBits(op.Red.Scalar)
		if err != nil {
			return err
		}
		own.scalar = bits
	}
	if t.prefersStaged(op.Kind, bytes) {
		own.src = place{}
	}
	h := t.habitOf(op, bytes)
	own.pulls = h != nil && h.nextPulls()
	own.helps = op.Kind == dist.KindBroadcast && t.rank == op.Root && own.src.heap != 0 && own.src == own.dst &&
		!t.crowded() && bytes >= helpBroadcast
	if err := t.open(op.Hash()); err != nil {
		return err
	}
	if !t.direct(op, t.rank) { // then the route is not direct on any rank, and the data can be ready early
		if err := t.putFirst(op); err != nil {
			return err
		}
	}
	own.put(t.entry())
	t.announce(op)
	if op.Kind == dist.KindBroadcast {
		return t.broadcast(op, bytes)
	}
	if err := t.meetAll(); err != nil {
		return err
	}
	direct := true
	for r := range t.sides {
		t.sides[r].get(t.ctl.entry(r, t.round))
		t.reducer.scalars[r] = t.sides[r].scalar
		direct = direct && t.direct(op, r)
	}
	if direct {
		return t.runDirect(op, bytes)
	}
	return t.runStaged(op)
}

// prefersStaged reports whether this rank declares its source private memory, so that all ranks
// take the staged route.
func (t *Transport) prefersStaged(k dist.Kind, bytes int) bool {
	switch {
	case !t.crowded():
		return false
	case k == dist.KindBroadcast:
		return bytes <= stageBroadcast
	case k == dist.KindAllReduce: // with many ranks both routes wait twice
		return false
	}
	return bytes <= stageOthers
}

// direct reports whether rank's buffers of op are in symmetric heaps as the direct route needs:
// sources, and for sums the destinations that the owners of blocks write.
func (t *Transport) direct(op *dist.Op, rank int) bool {
	src, dst := t.sides[rank].src.heap != 0, t.sides[rank].dst.heap != 0
	switch op.Kind {
	case dist.KindAllReduce:
		return src && dst
	case dist.KindReduce:
		return src && (dst || rank != op.Root)
	case dist.KindScatter:
		return src || rank != op.Root
	}
	return src // AllGather, ReduceScatter, AllToAll, Gather
}

// runDirect runs op by loads and stores in the heaps. All sources are ready at its start. After its
// end no rank accesses them.
func (t *Transport) runDirect(op *dist.Op, bytes int) error {
	route := t.moveDirect
	if t.sides[0].pulls && t.apart() { // rank 0 decides, even if this rank, with other cores, would not
		route = t.pullSum
	}
	h := t.habitOf(op, bytes)
	if h == nil || !t.apart() {
		return t.runBy(route, op, bytes)
	}
	begin := ticks.Now()
	err := t.runBy(route, op, bytes)
	h.took(ticks.Now() - begin)
	return err
}

// runBy runs op by one route and ends the round.
func (t *Transport) runBy(route func(*dist.Op, int) error, op *dist.Op, bytes int) error {
	if err := route(op, bytes); err != nil {
		t.ctl.fail(abortFault, t.rank, err.Error())
		return err
	}
	return t.close()
}

func (t *Transport) moveDirect(op *dist.Op, bytes int) error {
	block := op.Count * op.DType().Size()
	switch op.Kind {
	case dist.KindAllReduce, dist.KindReduce:
		return t.sumBlock(op, bytes)
	case dist.KindReduceScatter:
		t.reducer.dsts[0] = op.Dst.Pointer()
		return t.sumDirect(op, t.reducer.dsts[:1], t.rank*block, op.Count, bytes)
	case dist.KindScatter:
		return t.pull(op, op.Root, t.rank*block, 0, block, 0)
	case dist.KindGather:
		if t.rank != op.Root {
			return nil
		}
	}
	how := t.storing(t.size * block)
	for i := range t.size { // AllGather, Gather, AllToAll; the own block first, then a different rank on each
		r, from := (t.rank+i)%t.size, 0
		if op.Kind == dist.KindAllToAll {
			from = t.rank * block
		}
		if err := t.pull(op, r, from, r*block, block, how); err != nil {
			return err
		}
	}
	return nil
}

// block returns the part of count elements that rank sums: whole cache lines, in rank order.
func block(count, n, rank int) (lo, hi int) {
	const line = 64 // elements; at least a cache line for every dtype
	per := (count/n + line - 1) / line * line
	if per == 0 {
		per = line
	}
	lo, hi = min(rank*per, count), min((rank+1)*per, count)
	if rank == n-1 {
		hi = count
	}
	return lo, hi
}

// sumBlock sums the own block of all sources in rank order and stores it to all destinations: the
// reduce-scatter and the allgather of an allreduce in one pass.
func (t *Transport) sumBlock(op *dist.Op, bytes int) error {
	lo, hi := block(op.Count, t.size, t.rank)
	if lo == hi {
		return nil
	}
	size := op.DType().Size()
	dsts := t.reducer.dsts[:0]
	for r := range t.size {
		if op.Kind == dist.KindReduce && r != op.Root {
			continue
		}
		p, err := t.at(r, t.sides[r].dst, lo*size, (hi-lo)*size)
		if err != nil {
			return err
		}
		dsts = append(dsts, p)
	}
	return t.sumDirect(op, dsts, lo*size, hi-lo, bytes)
}

// sumDirect reduces n elements at byte from of all ranks' sources to dsts.
func (t *Transport) sumDirect(op *dist.Op, dsts []unsafe.Pointer, from, n, bytes int) error {
	inPlace := true
	for r := range t.reducer.srcs {
		p, err := t.at(r, t.sides[r].src, from, n*op.DType().Size())
		if err != nil {
			return err
		}
		t.reducer.srcs[r] = p
		inPlace = inPlace && t.sides[r].src == t.sides[r].dst
	}
	how := t.storing(bytes)
	switch {
	case inPlace:
		how = 0 // the stored line was just read
	case how == 0 && len(dsts) > 1 && len(dsts) <= mostClaimed:
		how = reduce.Claim
	}
	t.reducer.sum(op, dsts, n, how)
	return nil
}

// pull copies n bytes at from of rank r's source to byte to of the own destination, unless both are
// the same.
func (t *Transport) pull(op *dist.Op, r, from, to, n int, how reduce.How) error {
	src, err := t.at(r, t.sides[r].src, from, n)
	if dst := unsafe.Add(op.Dst.Pointer(), to); err == nil && src != dst {
		reduce.Copy(dst, src, n, how)
	}
	return err
}

// broadcast runs a large broadcast. The other ranks wait only for the root. The root waits for them
// only if they read its memory.
func (t *Transport) broadcast(op *dist.Op, bytes int) error {
	staged := t.sides[t.rank].src.heap == 0 // on the root, which decides, this is the announced value
	met := t.meetEach
	switch {
	case t.eager && t.rank != op.Root:
		met = func() error {
			if err := t.meet(op.Root); err != nil {
				return err
			}
			return t.same()
		}
	case t.eager && staged:
		met = func() error { return nil }
	}
	if err := met(); err != nil {
		return err
	}
	t.sides[op.Root].get(t.ctl.entry(op.Root, t.round))
	if t.sides[op.Root].src.heap == 0 {
		return t.runStaged(op)
	}
	if t.rank == op.Root {
		return t.give(op, bytes)
	}
	mine := t.pulled(t.rank, op.Root, bytes)
	if err := t.pull(op, op.Root, 0, 0, mine, t.storing(bytes)); err != nil {
		t.ctl.fail(abortFault, t.rank, err.Error())
		return err
	}
	t.finish()
	if mine < bytes {
		return t.finished(op.Root)
	}
	return nil
}

// pulled returns the bytes of a broadcast that rank r pulls itself. The root stores the rest to r;
// in total it stores as much as each of the others pulls.
func (t *Transport) pulled(r, root, bytes int) int {
	const page = 4096
	if !t.sides[root].helps || t.sides[r].dst.heap == 0 {
		return bytes
	}
	return min((bytes-bytes/t.size+page-1)/page*page, bytes)
}

// give is the root's part of a broadcast that the others pull.
func (t *Transport) give(op *dist.Op, bytes int) error {
	move(op.Dst.Pointer(), op.Src.Pointer(), bytes)
	for i := 1; i < t.size && t.sides[t.rank].helps; i++ {
		r := (t.rank + i) % t.size
		t.sides[r].get(t.ctl.entry(r, t.round))
		from := t.pulled(r, t.rank, bytes)
		if from >= bytes {
			continue
		}
		dst, err := t.at(r, t.sides[r].dst, from, bytes-from)
		if err != nil {
			t.ctl.fail(abortFault, t.rank, err.Error())
			return err
		}
		reduce.Copy(dst, unsafe.Add(op.Src.Pointer(), from), bytes-from, t.storing(bytes))
	}
	t.finish()
	for r := range t.size {
		if r == t.rank {
			continue
		}
		if err := t.finished(r); err != nil {
			return err
		}
	}
	return nil
}

// batch runs the members of a group call: first the collectives in order, then all sends and
// receives together.
func (t *Transport) batch(op *dist.Op) error {
	for i := range op.Ops {
		if op.Ops[i].Kind.PointToPoint() {
			continue
		}
		if err := t.collective(&op.Ops[i]); err != nil {
			what := op.Ops[i].Kind.String()
			if name := op.Ops[i].Name; name != "" {
				what += fmt.Sprintf(" %q", name)
			}
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return t.exchange(op.Ops)
}
