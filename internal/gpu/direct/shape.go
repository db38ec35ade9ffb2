package direct

import (
	"fmt"
	"math/bits"

	"github.com/symgrad/symgrad/dist"
)

// Shape is the shape of a launch: blocks, threads and tiles. The zero Shape is unset.
type Shape struct {
	Blocks  int // 1 to MaxBlocks, at most 7/8 of the multiprocessors and Config.MaxCTAs; in a group of one up to 1024
	Threads int // of a block: a multiple of 32 up to MaxThreads
	Tile    int // most bytes of a tile: a multiple of 512 up to 32 KiB; 0 means 2 KiB
}

// String returns "16x512", or "16x512/4096" with tiles of 4 KiB.
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

// Rule is a measured shape: for operations of a kind up to a size, by an engine among a number of
// ranks.
type Rule struct {
	Engine string
	Kind   dist.Kind
	Ranks  int   // 0 means any
	Bytes  int64 // of the whole vector, as in the dispatcher's tables; a power of two
	Shape  Shape
}

func (r *Rule) validate() error {
	way, ok := kindNamed(r.Engine)
	switch {
	case !ok:
		return fmt.Errorf("%w: unknown engine %q: use one of %v", dist.ErrInvalid, r.Engine, Names())
	case r.Bytes < 1 || r.Bytes&(r.Bytes-1) != 0:
		return fmt.Errorf("%w: %d B is not a power of two", dist.ErrInvalid, r.Bytes)
	case r.Ranks < 0 || r.Ranks > MaxRanks:
		return fmt.Errorf("%w: %d ranks, at most %d", dist.ErrInvalid, r.Ranks, MaxRanks)
	case !way.native(r.Kind):
		return fmt.Errorf("%w: engine %q has no kernel of its own for %v", dist.ErrInvalid, r.Engine, r.Kind)
	}
	return r.Shape.validate()
}

// sizeClasses is the number of size classes: powers of two up to 2^47 bytes.
const sizeClasses = 48

// sizeClass returns the exponent of the smallest power of two that is at least bytes.
func sizeClass(bytes uint64) int {
	if bytes <= 1 {
		return 0
	}
	return min(bits.Len64(bytes-1), sizeClasses-1)
}

// shapes has an engine's shapes by kind and size class.
type shapes [dist.KindSync + 1][sizeClasses]Shape

// greetShape is the shape of operations without data.
var greetShape = Shape{Blocks: 1, Threads: MaxBlocks} // a thread for each count of epochs

// newShapes returns the shapes of engine w among n ranks. A size uses the rule of the next larger
// size, or else of the largest. Without any rule the shape is guessed. Without rules for n ranks,
// those of the next larger number of ranks apply, or else of the largest. most is the number of
// blocks that run at once on every rank.
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

// within limits the blocks of a launch in t. Few blocks need many threads: 512 were the fastest for
// 16 blocks, for any larger shape (TestSweep).
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

// nearest returns the number of ranks whose rules apply to n.
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

// ruled returns the rule for exactly this class; a rule for the number of ranks precedes one for
// any.
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

// guess returns a shape for unmeasured sizes: about one unit of work for each thread, until the
// blocks fill the links.
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
		blocks := int(min(max(bytes>>16, 8), 112)) // 64 KiB of the vector occupy a block
		return Shape{Blocks: blocks, Threads: 256, Tile: 8 << 10}
	case twoshot:
		unit, most = 32, 96
	case copier: // of the kernel that adds
		unit, most = 64, 112
	}
	return Shape{Blocks: int(min(max((bytes+unit*threads-1)/(unit*threads), 1), most)), Threads: threads}
}

// sweepShapes returns the shapes that a tuner tries, from low latency to high bandwidth. MaxBlocks
// is the most that run at once.
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
