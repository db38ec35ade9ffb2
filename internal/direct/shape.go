package direct

import (
	"fmt"
	"math/bits"

	"github.com/symgrad/symgrad/dist"
)

// Shape is the shape of a launch: blocks of threads, and tiles. The zero Shape is none.
type Shape struct {
	Blocks  int // 1 to MaxBlocks, and no more than seven eighths of the GPU's multiprocessors, nor than Config.MaxCTAs; in a group of one up to 1024
	Threads int // of a block: a multiple of 32 up to MaxThreads
	Tile    int // bytes of a tile at most, for engines that have tiles: a multiple of 512 up to 32 KiB; 0 means 2 KiB
}

// String is "16x512", or "16x512/4096" with tiles of 4 KiB.
func (s Shape) String() string {
	if s.Tile == 0 {
		return fmt.Sprintf("%dx%d", s.Blocks, s.Threads)
	}
	return fmt.Sprintf("%dx%d/%d", s.Blocks, s.Threads, s.Tile)
}

func (s Shape) validate() error {
	if s.Blocks < 1 || s.Blocks > MaxBlocks || s.Threads < 32 || s.Threads > MaxThreads || s.Threads%32 != 0 {
		return fmt.Errorf("%w: shape %v: from 1 to %d blocks of 32, 64, ... or %d threads", dist.ErrInvalid, s, MaxBlocks, MaxThreads)
	}
	if s.Tile < 0 || s.Tile > mostTile || s.Tile%leastTile != 0 {
		return fmt.Errorf("%w: shape %v: tiles of 0, %d, %d, ... or %d B", dist.ErrInvalid, s, leastTile, 2*leastTile, mostTile)
	}
	return nil
}

// Rule is a shape that was measured: for operations of a kind and up to a number of bytes, by an
// engine among a number of ranks.
type Rule struct {
	Engine string
	Kind   dist.Kind
	Ranks  int   // 0 means any
	Bytes  int64 // of the whole vector, as the dispatcher's tables count; a power of two
	Shape  Shape
}

func (r *Rule) validate() error {
	way, ok := wayNamed(r.Engine)
	switch {
	case !ok:
		return fmt.Errorf("%w: there is no engine %q, only %v", dist.ErrInvalid, r.Engine, Names())
	case r.Bytes < 1 || r.Bytes&(r.Bytes-1) != 0:
		return fmt.Errorf("%w: %d B is no power of two", dist.ErrInvalid, r.Bytes)
	case r.Ranks < 0 || r.Ranks > MaxRanks:
		return fmt.Errorf("%w: %d ranks, at most %d", dist.ErrInvalid, r.Ranks, MaxRanks)
	case !way.native(r.Kind):
		return fmt.Errorf("%w: engine %q has no kernel of its own for %v", dist.ErrInvalid, r.Engine, r.Kind)
	}
	return r.Shape.validate()
}

// sizeClasses is powers of two up to 2^47 bytes.
const sizeClasses = 48

// sizeClass is the number of the smallest power of two that is no less than bytes.
func sizeClass(bytes uint64) int {
	if bytes <= 1 {
		return 0
	}
	return min(bits.Len64(bytes-1), sizeClasses-1)
}

// shapes is what an engine looks up: by kind and class of size.
type shapes [dist.KindSync + 1][sizeClasses]Shape

// greetShape is that of operations without data.
var greetShape = Shape{Blocks: 1, Threads: MaxBlocks} // a thread for each count of epochs

// newShapes is the shapes of way among n ranks: those of rules, of which the one for the nearest
// size not smaller counts, or else the largest, and where there are none a guess. Where there are
// none for n ranks, nor for any number, those of the next larger number count, or else of the
// largest. most is the blocks that run at once on every rank.
func newShapes(w engineKind, n, most int, rules []Rule) *shapes {
	t := new(shapes)
	for kind := range t {
		row := &t[kind]
		for c := range row {
			row[c] = w.guess(uint64(1) << c)
		}
		var last int
		known := false
		m := nearest(rules, w, dist.Kind(kind), n)
		for c := range row {
			if s, ok := ruled(rules, w, dist.Kind(kind), m, c); ok {
				for i := last; i <= c; i++ {
					row[i] = s
				}
				last, known = c+1, true
			}
		}
		for c := last; known && c < len(row); c++ {
			row[c] = row[last-1]
		}
		for c := range row {
			row[c].Blocks = min(row[c].Blocks, most)
		}
	}
	for c := range sizeClasses {
		t[dist.KindBarrier][c], t[dist.KindSync][c] = greetShape, greetShape
	}
	return t
}

// within is t with no more than limit blocks in a launch. Few blocks want many threads: 512 were
// the fastest for 16 blocks, whatever they were for more (TestSweep).
func (t *shapes) within(limit int) *shapes {
	for kind := range t {
		for c := range t[kind] {
			if s := &t[kind][c]; s.Blocks > limit {
				s.Blocks, s.Threads = limit, MaxThreads
			}
		}
	}
	return t
}

// nearest is the number of ranks whose rules count among n.
func nearest(rules []Rule, w engineKind, kind dist.Kind, n int) int {
	above, most := MaxRanks+1, 0
	for i := range rules {
		r := &rules[i]
		if r.Engine != w.name() || r.Kind != kind {
			continue
		}
		switch {
		case r.Ranks == 0 || r.Ranks == n:
			return n
		case r.Ranks > n:
			above = min(above, r.Ranks)
		default:
			most = max(most, r.Ranks)
		}
	}
	if above <= MaxRanks {
		return above
	}
	return max(most, 1)
}

// ruled is the rule for exactly this class; one for the number of ranks comes before one for any.
func ruled(rules []Rule, w engineKind, kind dist.Kind, n, class int) (Shape, bool) {
	var found Shape
	ok := false
	for i := range rules {
		r := &rules[i]
		if r.Engine != w.name() || r.Kind != kind || r.Ranks != 0 && r.Ranks != n || sizeClass(uint64(r.Bytes)) != class {
			continue
		}
		if !ok || r.Ranks == n {
			found, ok = r.Shape, true
		}
	}
	return found, ok
}

// guess is a shape for bytes that were not measured: about one unit of work for each thread, until
// there are as many blocks as fill the links.
func (w engineKind) guess(bytes uint64) Shape {
	const threads = 512
	unit, most := uint64(16), uint64(64)
	switch w {
	case short:
		unit, most = 8, 64
	case line, lineTwice:
		unit, most = 15, 96
	case oneshot:
		unit, most = 16, 64
	case tiles:
		blocks := int(min(max(bytes>>16, 8), 112)) // 64 KiB of the vector keep a block busy
		return Shape{Blocks: blocks, Threads: 256, Tile: 8 << 10}
	case twoshot:
		unit, most = 32, 96
	case copier: // of the kernel that adds up
		unit, most = 64, 112
	}
	return Shape{Blocks: int(min(max((bytes+unit*threads-1)/(unit*threads), 1), most)), Threads: threads}
}

// sweepShapes is the shapes that a tuner tries: from a latency's to a bandwidth's. MaxBlocks is as
// many as run at once.
func (w engineKind) sweepShapes() []Shape {
	var s []Shape
	if w == tiles {
		for _, blocks := range []int{4, 8, 16, 32, 48, 64, 96, 112, MaxBlocks} {
			for _, threads := range []int{256, 512} {
				for _, tile := range []int{512, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10} {
					s = append(s, Shape{blocks, threads, tile})
				}
			}
		}
		return s
	}
	for _, blocks := range []int{1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, MaxBlocks} {
		for _, threads := range []int{128, 256, 512} {
			s = append(s, Shape{blocks, threads, 0})
		}
	}
	return s
}
