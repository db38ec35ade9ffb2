package shm

import (
	"unsafe"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/reduce"
	"github.com/symgrad/symgrad/internal/host/ticks"
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
)

// mostClaimed is the largest number of destinations that a sum claims: with 16 of them sums of up
// to 64 KiB took longer.
const mostClaimed = 8

// directPath runs operations by loads and stores in the symmetric heaps of all ranks.
type directPath struct {
	*announcer
	*reducer
	sides  []sides   // of the current operation, by rank
	habits [21]habit // of out-of-place allreduces, by the logarithm of their bytes
}

func (p *directPath) init(a *announcer, d *reducer) {
	p.announcer, p.reducer, p.sides = a, d, make([]sides, a.size)
	for i := range p.habits {
		p.habits[i].n = between - settling - measured // the first trial comes soon
	}
}

// declare fills this rank's sides of op, which it will announce.
func (p *directPath) declare(op *dist.Op, bytes int) error {
	own := &p.sides[p.rank]
	*own = sides{src: p.locate(op.Src), dst: p.locate(op.Dst)}
	if op.Kind.Reduces() && op.Red.Kind == dist.RedPreMulSum {
		bits, err := reduce.ScalarBits(op.Red.Scalar)
		if err != nil {
			return err
		}
		own.scalar = bits
	}
	if p.prefersStaged(op.Kind, bytes) {
		own.src = place{}
	}
	h := p.habitOf(op, bytes)
	own.pulls = h != nil && h.nextPulls()
	own.helps = op.Kind == dist.KindBroadcast && p.rank == op.Root && own.src.heap != 0 && own.src == own.dst &&
		!p.crowded() && bytes >= helpBroadcast
	return nil
}

// allFit reads the sides of all ranks, and reports whether their buffers are as the direct route
// needs.
func (p *directPath) allFit(op *dist.Op) bool {
	all := true
	for r := range p.sides {
		p.sides[r].get(p.ctl.entry(r, p.round))
		p.scalars[r] = p.sides[r].scalar
		all = all && p.fits(op, r)
	}
	return all
}

// prefersStaged reports whether this rank declares its source private memory, so that all ranks
// take the staged route.
func (p *directPath) prefersStaged(k dist.Kind, bytes int) bool {
	switch {
	case !p.crowded():
		return false
	case k == dist.KindBroadcast:
		return bytes <= stageBroadcast
	case k == dist.KindAllReduce: // with many ranks both routes wait twice
		return false
	}
	return bytes <= stageOthers
}

// fits reports whether rank's buffers of op are in symmetric heaps as the direct route needs:
// sources, and for sums the destinations that the owners of blocks write.
func (p *directPath) fits(op *dist.Op, rank int) bool {
	src, dst := p.sides[rank].src.heap != 0, p.sides[rank].dst.heap != 0
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

// run runs op by loads and stores in the heaps. All sources are ready at its start. After its
// end no rank accesses them.
func (p *directPath) run(op *dist.Op, bytes int) error {
	route := p.move
	if p.sides[0].pulls && p.apart() { // rank 0 decides, even if this rank, with other cores, would not
		route = p.pullSum
	}
	h := p.habitOf(op, bytes)
	if h == nil || !p.apart() {
		return p.runBy(route, op, bytes)
	}
	begin := ticks.Now()
	err := p.runBy(route, op, bytes)
	h.took(ticks.Now() - begin)
	return err
}

// runBy runs op by one route and ends the round.
func (p *directPath) runBy(route func(*dist.Op, int) error, op *dist.Op, bytes int) error {
	if err := route(op, bytes); err != nil {
		p.ctl.fail(abortFault, p.rank, err.Error())
		return err
	}
	return p.close()
}

func (p *directPath) move(op *dist.Op, bytes int) error {
	block := op.Count * op.DType().Size()
	switch op.Kind {
	case dist.KindAllReduce, dist.KindReduce:
		return p.sumBlock(op, bytes)
	case dist.KindReduceScatter:
		p.dsts[0] = op.Dst.Pointer()
		return p.sumDirect(op, p.dsts[:1], p.rank*block, op.Count, bytes)
	case dist.KindScatter:
		return p.pull(op, op.Root, p.rank*block, 0, block, 0)
	case dist.KindGather:
		if p.rank != op.Root {
			return nil
		}
	}
	how := p.storing(p.size * block)
	for i := range p.size { // AllGather, Gather, AllToAll; the own block first, then a different rank on each
		r, from := (p.rank+i)%p.size, 0
		if op.Kind == dist.KindAllToAll {
			from = p.rank * block
		}
		if err := p.pull(op, r, from, r*block, block, how); err != nil {
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
func (p *directPath) sumBlock(op *dist.Op, bytes int) error {
	lo, hi := block(op.Count, p.size, p.rank)
	if lo == hi {
		return nil
	}
	size := op.DType().Size()
	dsts := p.dsts[:0]
	for r := range p.size {
		if op.Kind == dist.KindReduce && r != op.Root {
			continue
		}
		dst, err := p.at(r, p.sides[r].dst, lo*size, (hi-lo)*size)
		if err != nil {
			return err
		}
		dsts = append(dsts, dst)
	}
	return p.sumDirect(op, dsts, lo*size, hi-lo, bytes)
}

// sumDirect reduces n elements at byte from of all ranks' sources to dsts.
func (p *directPath) sumDirect(op *dist.Op, dsts []unsafe.Pointer, from, n, bytes int) error {
	inPlace := true
	for r := range p.srcs {
		src, err := p.at(r, p.sides[r].src, from, n*op.DType().Size())
		if err != nil {
			return err
		}
		p.srcs[r] = src
		inPlace = inPlace && p.sides[r].src == p.sides[r].dst
	}
	how := p.storing(bytes)
	switch {
	case inPlace:
		how = 0 // the stored line was just read
	case how == 0 && len(dsts) > 1 && len(dsts) <= mostClaimed:
		how = reduce.Claim
	}
	p.sum(op, dsts, n, how)
	return nil
}

// pull copies n bytes at from of rank r's source to byte to of the own destination, unless both are
// the same.
func (p *directPath) pull(op *dist.Op, r, from, to, n int, how reduce.How) error {
	src, err := p.at(r, p.sides[r].src, from, n)
	if dst := unsafe.Add(op.Dst.Pointer(), to); err == nil && src != dst {
		reduce.Copy(dst, src, n, how)
	}
	return err
}

// readable reads the sides of a broadcast's root, and reports whether the others can read its
// source.
func (p *directPath) readable(root int) bool {
	p.sides[root].get(p.ctl.entry(root, p.round))
	return p.sides[root].src.heap != 0
}

// broadcast runs a broadcast of a root whose source is readable.
func (p *directPath) broadcast(op *dist.Op, bytes int) error {
	if p.rank == op.Root {
		return p.give(op, bytes)
	}
	mine := p.pulled(p.rank, op.Root, bytes)
	if err := p.pull(op, op.Root, 0, 0, mine, p.storing(bytes)); err != nil {
		p.ctl.fail(abortFault, p.rank, err.Error())
		return err
	}
	p.finish()
	if mine < bytes {
		return p.finished(op.Root)
	}
	return nil
}

// pulled returns the bytes of a broadcast that rank r pulls itself. The root stores the rest to r;
// in total it stores as much as each of the others pulls.
func (p *directPath) pulled(r, root, bytes int) int {
	const page = 4096
	if !p.sides[root].helps || p.sides[r].dst.heap == 0 {
		return bytes
	}
	return min((bytes-bytes/p.size+page-1)/page*page, bytes)
}

// give is the root's part of a broadcast that the others pull.
func (p *directPath) give(op *dist.Op, bytes int) error {
	move(op.Dst.Pointer(), op.Src.Pointer(), bytes)
	for i := 1; i < p.size && p.sides[p.rank].helps; i++ {
		r := (p.rank + i) % p.size
		p.sides[r].get(p.ctl.entry(r, p.round))
		from := p.pulled(r, p.rank, bytes)
		if from >= bytes {
			continue
		}
		dst, err := p.at(r, p.sides[r].dst, from, bytes-from)
		if err != nil {
			p.ctl.fail(abortFault, p.rank, err.Error())
			return err
		}
		reduce.Copy(dst, unsafe.Add(op.Src.Pointer(), from), bytes-from, p.storing(bytes))
	}
	p.finish()
	for r := range p.size {
		if r == p.rank {
			continue
		}
		if err := p.finished(r); err != nil {
			return err
		}
	}
	return nil
}
