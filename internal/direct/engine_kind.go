package direct

import (
	"slices"

	"github.com/symgrad/symgrad/dist"
)

// engineKind is one engine of the group's.
type engineKind uint8

const (
	short     engineKind = iota // packets of 8 bytes, one hop
	line                        // packets of a line, one hop
	lineTwice                   // packets of a line, two hops
	oneshot                     // copy, meet, load from all
	twoshot                     // meet, work where the data lie, meet again
	tiles                       // tiles to the slice's owner, whose sum goes to all
	copier                      // copy engines move, and the slice's owner adds up what they have brought
	ways
)

var wayNames = [ways]string{"ll", "ll128", "ll128-twoshot", "oneshot", "twoshot", "tiles", "copy"}

// Names is the names of the engines that Make gives, in its order.
func Names() []string { return slices.Clone(wayNames[:]) }

func (w engineKind) name() string { return wayNames[w] }

func wayNamed(name string) (engineKind, bool) {
	i := slices.Index(wayNames[:], name)
	return engineKind(max(i, 0)), i >= 0
}

// native reports whether w has a way of its own for kind. The others it does by packets.
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

// shortMost is the bytes of a block up to which an operation that an engine has no way of its own
// for goes by packets of 8 bytes: above, what they carry twice takes longer than what lines take to
// vote.
const shortMost = 8 << 10

// program is a kernel: what KERNEL and PROTOCOL choose in the source, or alone.
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
	combine // what copy engines have brought, which waits for nobody
	alone   // in a group of one, which has nobody to meet
	programs
)

// programOf is the kernel by which w does an operation of a kind with blocks of so many bytes among
// n ranks; of copier, where copy engines cannot (see copying).
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

// part is the scratch memory that p uses.
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

// meets reports whether the kernel needs the places of its data on the other ranks, and so staging
// for what has none.
func (p program) meets() bool { return p >= reduceAll && p <= push }

// needs reports which of source and destination other ranks access.
func (p program) needs() (src, dst bool) {
	return p == reduceAll || p == reduceOwn, p == reduceAll || p == push
}
