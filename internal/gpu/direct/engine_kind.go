package direct

import (
	"slices"

	"github.com/symgrad/symgrad/dist"
)

// engineKind is one of the group's engines.
type engineKind uint8

const (
	short     engineKind = iota // ll: packets of 8 bytes, one hop
	line                        // ll128: packets of a line, one hop
	lineTwice                   // ll128-twoshot: packets of a line, two hops
	oneshot                     // stage a copy, meet, load from all
	twoshot                     // meet, work in place, meet again
	tiles                       // tiles to the slice's owner, who sends the sum to all
	copier                      // copy: copy engines move, and the slice's owner adds
	engineKinds
)

var engineNames = [engineKinds]string{"ll", "ll128", "ll128-twoshot", "oneshot", "twoshot", "tiles", "copy"}

// Names returns the names of the engines of Make, in its order.
func Names() []string { return slices.Clone(engineNames[:]) }

func (w engineKind) name() string { return engineNames[w] }

func kindNamed(name string) (engineKind, bool) {
	i := slices.Index(engineNames[:], name)
	return engineKind(max(i, 0)), i >= 0
}

// native reports whether w has its own algorithm for kind. Packets do other kinds.
func (w engineKind) native(kind dist.Kind) bool {
	switch w {
	case short, line:
		return kind >= dist.KindAllReduce && kind <= dist.KindSync && !kind.PointToPoint()
	case lineTwice:
		return kind == dist.KindAllReduce
	case oneshot:
		return kind == dist.KindAllReduce || kind == dist.KindReduceScatter || kind == dist.KindAllGather || kind == dist.KindAllToAll
	case tiles:
		return kind == dist.KindAllReduce || kind == dist.KindReduceScatter
	case copier:
		return kind == dist.KindAllReduce || kind == dist.KindReduceScatter || kind == dist.KindAllGather
	case twoshot:
		return kind >= dist.KindAllReduce && kind <= dist.KindScatter && kind != dist.KindReduce
	}
	return false
}

// shortMost is the largest block, in bytes, of a kind that is not native, for packets of 8 bytes.
// For larger ones the doubled traffic takes longer than the votes of lines.
const shortMost = 8 << 10

// program is a kernel: a choice of KERNEL and PROTOCOL in the source, or alone.
type program uint8

const (
	onceShort program = iota
	onceLine
	twiceLine
	pull
	reduceAll
	reduceOwn
	push
	tileAll
	tileOwn
	combine // adds the data of copy engines; waits for no rank
	alone   // in a group of one, without waiting
	programs
)

// programOf returns the kernel by which w does an operation of a kind with blocks of block bytes
// among n ranks. For copier it is the kernel if copy engines cannot do it (see copying).
func (w engineKind) programOf(kind dist.Kind, n int, block uint64) program {
	switch {
	case n == 1:
		return alone
	case !w.native(kind) && block > shortMost:
		return onceLine
	case !w.native(kind) || w == short:
		return onceShort
	case w == line:
		return onceLine
	case w == lineTwice:
		return twiceLine
	case w == oneshot:
		return pull
	case w == tiles && kind == dist.KindAllReduce:
		return tileAll
	case w == tiles:
		return tileOwn
	case kind == dist.KindAllReduce:
		return reduceAll
	case kind == dist.KindReduceScatter:
		return reduceOwn
	}
	return push
}

// part returns the scratch memory that p uses.
func (b *board) part(p program) part {
	switch p {
	case onceShort:
		return b.packets
	case onceLine, twiceLine:
		return b.lines
	case tileAll, tileOwn:
		return b.tiles
	}
	return b.stage
}

// meets reports whether the kernel needs the location of its data on the other ranks, and so
// staging for data outside slabs.
func (p program) meets() bool { return p >= reduceAll && p <= push }

// needs reports whether other ranks access source and destination.
func (p program) needs() (src, dst bool) {
	return p == reduceAll || p == reduceOwn, p == reduceAll || p == push
}

// apart returns the kernel for an operation that p may not fit. Tiles of an allreduce go directly
// to the destination on all ranks. So that must have one offset in a slab, and the ranks must have
// promised it. Otherwise they meet.
func (p program) apart(symmetric bool, dstPlace uint64) program {
	if p == tileAll && (!symmetric || dstPlace == 0) {
		return reduceAll
	}
	return p
}
