package conformance

import (
	"slices"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

var (
	reducing = []dist.Kind{dist.KindAllReduce, dist.KindReduce, dist.KindReduceScatter}
	copying  = []dist.Kind{dist.KindBroadcast, dist.KindAllGather, dist.KindAllToAll, dist.KindGather, dist.KindScatter}
	places   = []bool{false, true}
)

// redsOf returns the reductions of a type: bitwise ones only for integers.
func redsOf(dt tensor.DType) []dist.RedKind {
	return slices.DeleteFunc(dist.RedKinds(), func(red dist.RedKind) bool { return red.Bitwise() && dt.IsFloat() })
}

// counts returns zero, one, a prime, and a number that n does not divide.
func counts(n int) []int { return []int{0, 1, 13, 5*n + 1} }

// reductionRows returns cases that use the rows of all reductions: reducescatter has the longest.
func reductionRows(o Options, n int) []scenario {
	var all []scenario
	for _, dt := range tensor.DTypes() {
		for _, red := range redsOf(dt) {
			for _, data := range append(o.others(red, dt), exact) {
				all = append(all, scenario{kind: dist.KindReduceScatter, dt: dt, red: red, data: data, count: slices.Max(counts(n))})
			}
		}
	}
	return all
}

// reductions crosses collective, dtype, reduction, length, in place and memory. Root, place of the
// scalar and length of the destination vary without crossing. Roots are crossed afterwards for two
// pairs of dtype and reduction.
func (s *suite) reductions() error {
	for _, kind := range reducing {
		for _, dt := range tensor.DTypes() {
			for _, red := range redsOf(dt) {
				for _, count := range counts(s.n) {
					for _, inPlace := range places {
						c := s.vary(scenario{kind: kind, dt: dt, red: red, count: count, inPlace: inPlace})
						if err := s.tryData(c); err != nil {
							return err
						}
					}
				}
			}
		}
		if err := s.rootsAndMemories(scenario{kind: kind, dt: tensor.F32, red: dist.RedSum}); err != nil {
			return err
		}
		if err := s.rootsAndMemories(scenario{kind: kind, dt: tensor.BF16, red: dist.RedPreMulSum, atHeap: true}); err != nil {
			return err
		}
	}
	return nil
}

// vary sets the parameters that are not crossed.
func (s *suite) vary(c scenario) scenario {
	h := hash(s.cases, 0, 9)
	c.root = int(h >> 8 % uint64(s.n))
	c.atHeap = h>>16&1 == 1
	c.longer = h>>17&1 == 1
	return c
}

// tryData runs c with exact data in every memory, and with every other suitable kind of data in
// one.
func (s *suite) tryData(c scenario) error {
	for c.mem = range s.memories(c) {
		if err := s.sample(c); err != nil {
			return err
		}
	}
	for _, c.data = range s.opt.others(c.red, c.dt) {
		if c.data == special && c.count <= 1 {
			continue
		}
		c.mem = memKind(hash(s.cases, 1, 9) % uint64(memKinds))
		if err := s.sample(c); err != nil {
			return err
		}
	}
	return nil
}

// memories returns the number of memories for c. The last one, only for devices, is the promise of
// equal offsets. It does not hold if only the root has its buffers in place, because one of them is
// then elsewhere than on other ranks.
func (s *suite) memories(c scenario) memKind {
	apart := c.kind == dist.KindReduce || c.kind == dist.KindGather || c.kind == dist.KindScatter
	if s.mem == nil || s.heap == nil || c.inPlace && apart {
		return memKinds
	}
	return promised + 1
}

func (s *suite) rootsAndMemories(c scenario) error {
	roots := 1
	if c.kind.Rooted() {
		roots = s.n
	}
	for c.root = range roots {
		for c.mem = range s.memories(scenario{kind: c.kind}) {
			for _, c.inPlace = range places {
				if c.inPlace && c.kind == dist.KindAllToAll || c.mem >= s.memories(c) {
					continue
				}
				for _, c.count = range counts(s.n) {
					c.longer = !c.longer
					if err := s.sample(c); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// sample is try for one of Options.Every cases, and only counts the others.
func (s *suite) sample(c scenario) error {
	if every := s.opt.Every; every > 1 && s.cases%every != 0 {
		s.cases++
		return nil
	}
	return s.try(c)
}

// copyRows returns cases that use the rows of all copies: alltoall has the longest.
func copyRows(_ Options, n int) []scenario {
	var all []scenario
	for _, dt := range tensor.DTypes() {
		all = append(all, scenario{kind: dist.KindAllToAll, dt: dt, data: anyBits, count: slices.Max(counts(n))})
	}
	return all
}

// copies crosses collective, dtype, root, memory, length and in place for operations that only move
// data.
func (s *suite) copies() error {
	for _, kind := range copying {
		for _, dt := range tensor.DTypes() {
			if err := s.rootsAndMemories(scenario{kind: kind, dt: dt, data: anyBits}); err != nil {
				return err
			}
		}
	}
	for range 3 {
		for _, kind := range []dist.Kind{dist.KindBarrier, dist.KindSync} {
			err := finish(issue(s.g, kind, tensor.Buffer{}, tensor.Buffer{}, dist.RedOp{}, 0))
			if err := s.allowed(err); err != nil {
				return err
			}
		}
	}
	return nil
}

// largeCases tries the large scenarios in every other memory.
func (s *suite) largeCases() error {
	for i, c := range s.opt.largeScenarios(s.n) {
		for half := range memKinds / 2 { // of the memories; the next case has the other half
			c.mem = 2*half + memKind(i)%2
			c.inPlace = (i/2+int(half))%2 == 1 && c.kind != dist.KindAllToAll
			if err := s.try(c); err != nil {
				return err
			}
		}
		if c.inPlace = false; s.memories(c) <= promised {
			continue
		}
		c.mem = promised
		if err := s.try(c); err != nil {
			return err
		}
	}
	return nil
}

// largeScenarios returns cases with buffers that no backend moves in one piece.
func (o Options) largeScenarios(n int) []scenario {
	var all []scenario
	for _, kind := range reducing {
		all = append(all,
			scenario{kind: kind, dt: tensor.F32, red: dist.RedSum, data: random},
			scenario{kind: kind, dt: tensor.BF16, red: dist.RedPreMulSum, data: random, atHeap: true},
			scenario{kind: kind, dt: tensor.I8, red: dist.RedMax, data: random},
			scenario{kind: kind, dt: tensor.U16, red: dist.RedXor, data: random})
	}
	for _, kind := range copying {
		all = append(all, scenario{kind: kind, dt: tensor.U16, data: anyBits}, scenario{kind: kind, dt: tensor.F64, data: anyBits})
	}
	for i := range all {
		c := &all[i]
		c.count, c.root = o.large(), i%n
		if c.kind != dist.KindAllReduce && c.kind != dist.KindReduce && c.kind != dist.KindBroadcast {
			c.count /= n // the ranks' blocks together are large
		}
	}
	return all
}
