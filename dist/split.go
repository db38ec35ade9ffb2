package dist

import "fmt"

// NoColor is the color of a rank that is in no part of a Split.
const NoColor = -1

// Split divides the group: ranks that pass the same color form a new group, numbered by key and,
// among equal keys, by their rank here. A negative color (NoColor) gives a nil group. The parent
// closes the new group with itself.
//
// Collective: all ranks of g. Errors: ErrAborted, ErrTimeout, ErrClosed; ErrUnsupported if a rank
// cannot open a resource of the new group.
func (g *Group) Split(color, key int) (*Group, error) {
	if err := g.c.open(); err != nil {
		return nil, fmt.Errorf("split color %d, rank %d/%d: %w", color, g.Rank(), g.Size(), err)
	}
	t, err := g.c.t.Split(color, key)
	if err != nil {
		return nil, fmt.Errorf("split color %d, rank %d/%d: %w", color, g.Rank(), g.Size(), err)
	}
	if t == nil {
		return nil, nil
	}
	sub, err := newGroup(t, newRecorder(len(g.c.rec.entries), g.c.rec.clock))
	if err != nil {
		return nil, err
	}
	if err := g.c.adopt(sub); err != nil {
		return nil, fmt.Errorf("split color %d, rank %d/%d: %w", color, g.Rank(), g.Size(), err)
	}
	return sub, nil
}

// SplitStrided returns the group of ranks start, start+stride, ... (size of them), in that order,
// as nvshmem_team_split_strided; nil on the other ranks.
//
// Collective: all ranks of g, same arguments. Errors: ErrInvalid when a rank of the triple is
// outside the group, or stride < 1, or size < 1; else as Split.
func (g *Group) SplitStrided(start, stride, size int) (*Group, error) {
	last := g.Size() - 1
	if start < 0 || start > last || stride < 1 || size < 1 || size > 1 && stride > (last-start)/(size-1) {
		return nil, fmt.Errorf("split strided start %d stride %d size %d of %d ranks: %w: ranks must be in 0 to %d",
			start, stride, size, g.Size(), ErrInvalid, last)
	}
	color, d := NoColor, g.Rank()-start
	if d >= 0 && d%stride == 0 && d/stride < size {
		color = 0
	}
	return g.Split(color, d)
}

// Split2D arranges the ranks in rows of width xrange, rank r at (r%xrange, r/xrange), and returns
// the group of this rank's row (x) and of its column (y), as nvshmem_team_split_2d. The last row
// may be shorter.
//
// Collective: all ranks of g, same xrange. Errors: ErrInvalid for xrange < 1; else as Split.
func (g *Group) Split2D(xrange int) (x, y *Group, err error) {
	if xrange < 1 {
		return nil, nil, fmt.Errorf("split 2D with rows of %d ranks: %w: want at least 1", xrange, ErrInvalid)
	}
	xrange = min(xrange, g.Size())
	if x, err = g.Split(g.Rank()/xrange, g.Rank()); err != nil {
		return nil, nil, err
	}
	y, err = g.Split(g.Rank()%xrange, g.Rank())
	return x, y, err
}

// Translate returns the number in other of rank of g, or -1 if that rank is not in other, as
// nvshmem_team_translate_pe. A nil other, Split's result for no color, has no ranks.
func (g *Group) Translate(rank int, other *Group) int {
	if other == nil || rank < 0 || rank >= g.Size() {
		return -1
	}
	for i, w := range other.c.info.Ranks {
		if w == g.c.info.Ranks[rank] {
			return i
		}
	}
	return -1
}

// Members returns g.
func (g *Group) Members() *Group { return g }

// Ordinal returns the number of calls for this kind, including this one: the number of an object
// made over the group. Operation names contain it, to distinguish objects in errors and traces.
//
// Not collective: ranks that make the same things in the same order have the same numbers.
func (g *Group) Ordinal(kind string) int {
	g.c.rec.mu.Lock()
	defer g.c.rec.mu.Unlock()
	if g.c.kinds == nil {
		g.c.kinds = map[string]int{}
	}
	g.c.kinds[kind]++
	return g.c.kinds[kind]
}
