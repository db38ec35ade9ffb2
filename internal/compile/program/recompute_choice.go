package program

import (
	"cmp"
	"slices"
)

// Recompute says which results of the forward pass are computed again in the backward pass instead
// of being kept for it.
type Recompute uint8

// The choices. The zero Recompute is RecomputeNone.
const (
	RecomputeNone   Recompute = iota // none
	RecomputeBlocks                  // all between the points where few bytes pass from step to step
	RecomputeAuto                    // as few as possible, until the arena has at most ArenaLimit bytes
	RecomputeMost                    // all that can be, even where that takes more memory: to test the repetition
)

// recomputeActivations lets the backward pass compute results of the forward pass again, right
// before it needs them (Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016). The
// repeated steps are copies, so results keep their bits. It is the last pass before Pack: earlier
// ones would merge equal steps again.
//
// The choice is that with the smallest arena, or with RecomputeAuto the cheapest one that keeps the
// limit. Candidates are compared by their planned arenas. The program stays as it is if none is
// better. No collective is added: repeated steps read values that were fetched for the backward
// pass, or for them (see refetchBlocks, which returns fetched). Errors: ErrInvalid.
func recomputeActivations(p *Program, fetched []ID) error {
	if p.Recompute == RecomputeNone {
		return nil
	}
	a := activationsOf(p)
	if a.turn == 0 {
		return nil
	}
	if p.Recompute == RecomputeMost {
		most, _ := a.repeat(a.most())
		*p = *most
		return nil
	}
	c := &chooser{a: a, fetched: fetched}
	var err error
	if c.bytes, err = arenaOf(p); err != nil {
		return err
	}
	switch {
	case p.Recompute == RecomputeBlocks:
		_, err = c.blocks()
	case p.ArenaLimit > 0 && c.bytes > p.ArenaLimit:
		err = c.auto()
	}
	if err == nil && c.best != nil {
		*p = *c.best
	}
	return err
}

// chooser compares programs that keep different activations.
type chooser struct {
	a       *activations
	fetched []ID     // shards of the first fetched value of blocks: see refetchBlocks
	best    *Program // nil: the program as it is
	bytes   int64    // the arena of best
	cost    float64  // of best, without the program as it is
}

// consider plans the program that drops some values, and keeps it if it is better than the best. It
// returns the bytes of its arena.
func (c *chooser) consider(drop []bool) (int64, error) {
	p, cost := c.a.repeat(drop)
	bytes, err := arenaOf(p)
	if err != nil {
		return 0, err
	}
	better := bytes < c.bytes || bytes == c.bytes && cost < c.cost
	if c.fits(bytes) || c.fits(c.bytes) {
		better = c.fits(bytes) && (!c.fits(c.bytes) || cost < c.cost)
	}
	if better {
		c.best, c.bytes, c.cost = p, bytes, cost
	}
	return bytes, nil
}

// fits reports whether an arena keeps the limit.
func (c *chooser) fits(bytes int64) bool {
	return c.a.p.Recompute == RecomputeAuto && bytes <= c.a.p.ArenaLimit
}

// arenaOf returns the bytes of the arena that p will have.
func arenaOf(p *Program) (int64, error) {
	c := *p
	c.Values, c.Steps = slices.Clone(p.Values), slices.Clone(p.Steps)
	if err := Pack(&c); err != nil {
		return 0, err
	}
	schedule(&c)
	err := Plan(&c)
	return c.Arena, err
}

// auto considers dropping single values, those with the most bytes for their cost first, and whole
// blocks, the first ones first; in both cases only as many as the limit needs.
func (c *chooser) auto() error {
	order := c.a.byWorth()
	if err := c.fewest(len(order), func(n int) []bool { return c.a.only(order[:n]) }); err != nil {
		return err
	}
	cuts, err := c.blocks()
	if err != nil {
		return err
	}
	return c.fewest(len(cuts), func(n int) []bool { return c.a.between(cuts, n) })
}

// tries is the number of evenly spaced counts that fewest considers before it bisects.
const tries = 8

// fewest considers dropping the first n of all choices: it looks for the least n that keeps the
// limit. Dropping more may take more memory, so it begins with a few evenly spaced numbers.
func (c *chooser) fewest(all int, drop func(n int) []bool) error {
	low, high := 0, all
	for k := 1; k <= tries; k++ {
		n := all * k / tries
		if n == low {
			continue
		}
		bytes, err := c.consider(drop(n))
		if err != nil {
			return err
		}
		if high = n; c.fits(bytes) {
			break
		}
		if k < tries {
			low = n
		}
	}
	for high-low > 1 {
		n := (low + high) / 2
		bytes, err := c.consider(drop(n))
		if err != nil {
			return err
		}
		if c.fits(bytes) {
			high = n
		} else {
			low = n
		}
	}
	return nil
}

// most returns all values that can be computed again.
func (a *activations) most() []bool {
	drop := make([]bool, len(a.p.Values))
	for i := range a.made {
		for _, id := range a.made[i] {
			drop[id] = a.again[i]
		}
	}
	return drop
}

// only returns the values to drop if of all activations only some are dropped: these, and the
// results that no step of the backward pass reads.
func (a *activations) only(some []ID) []bool {
	drop := a.most()
	for id, saved := range a.saved {
		drop[id] = drop[id] && !saved
	}
	for _, id := range some {
		drop[id] = true
	}
	return drop
}

// byWorth returns the activations that can be computed again, those with the most bytes for the
// operations of computing them first. It assumes that all others are kept.
func (a *activations) byWorth() []ID {
	r := &repeater{a: a, p: a.p, drop: a.only(nil), of: map[ID]ID{}}
	worth := make([]float64, len(a.p.Values))
	var all []ID
	for i := range a.made {
		for _, id := range a.made[i] {
			steps := map[int]bool{}
			if !a.saved[id] || !r.possible(id, a.turn, steps) {
				continue
			}
			cost := 0.0
			for k, can := range steps {
				if can {
					cost += costOf(a.p, &a.p.Steps[k])
				}
			}
			worth[id] = float64(a.p.Values[id].Bytes()) / max(cost, 1)
			all = append(all, id)
		}
	}
	slices.SortStableFunc(all, func(x, y ID) int { return cmp.Compare(worth[y], worth[x]) })
	return all
}
