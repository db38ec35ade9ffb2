package direct

import (
	"errors"
	"fmt"
	"testing"

	"github.com/symgrad/symgrad/dist"
)

func TestTilesFitTheirScratchMemoryAndCoverSlices(t *testing.T) {
	for _, cfg := range []Config{{}, smallBoards, {TileBytes: leastPart}} {
		b := newBoard(&cfg)
		for n := 1; n <= MaxRanks; n++ {
			for _, s := range []Shape{{1, 32, 0}, {1, 32, 512}, {16, 256, 1536}, {64, 512, 4096}, {MaxBlocks, MaxThreads, mostTile}} {
				for _, slice := range []uint64{1, 512, 513, 100_001, 4 << 20, 1 << 32} {
					w := tilingOf(s, n, slice, b.tiles.half)
					tile, warps := w&(1<<32-1), w>>32
					if tile%leastTile != 0 || tile == 0 || tile > mostTile || warps == 0 || warps > uint64(s.Blocks*s.Threads/32) {
						t.Fatalf("shape %v of %d ranks, slice of %d B: %d warps with tiles of %d B", s, n, slice, warps, tile)
					}
					if used := uint64(n-1) * warps * tileSlots * tile; used > b.tiles.half {
						t.Fatalf("shape %v of %d ranks, slice of %d B: %d B of scratch memory, there are %d", s, n, slice, used, b.tiles.half)
					}
					if rounds := (slice + tile*warps - 1) / (tile * warps); rounds+1 >= 1<<tileShift || (rounds-1)*tile*warps >= slice {
						t.Fatalf("shape %v of %d ranks, slice of %d B: %d rounds of %d warps with tiles of %d B", s, n, slice, rounds, warps, tile)
					}
				}
			}
		}
	}
}

func TestTilesOfSmallSlicesAreSmall(t *testing.T) {
	for _, c := range []struct {
		shape Shape
		slice uint64
		tile  uint64
		warps uint64
	}{
		{Shape{2, 64, 0}, 4096, 1024, 4},
		{Shape{2, 64, 512}, 4096, 512, 4},
		{Shape{2, 64, 0}, 1 << 20, defaultTile, 4},
		{Shape{4, 64, 0}, 1000, 512, 2},
	} {
		got := tilingOf(c.shape, 2, c.slice, 1<<20)
		if got != c.tile|c.warps<<32 {
			t.Errorf("shape %v, %d B: %d warps with tiles of %d B, want %d with %d B", c.shape, c.slice, got>>32, got&(1<<32-1), c.warps, c.tile)
		}
	}
}

func TestRanksMeetWhereTilesCannotBeStored(t *testing.T) {
	for _, c := range []struct {
		prog      program
		symmetric bool
		place     uint64
		want      program
	}{
		{tileAll, true, place(1, 64), tileAll},
		{tileAll, true, 0, reduceAll},
		{tileAll, false, place(1, 64), reduceAll},
		{tileOwn, false, 0, tileOwn},
		{push, false, 0, push},
	} {
		if got := c.prog.apart(c.symmetric, c.place); got != c.want {
			t.Errorf("%v symmetric %v at %#x: %v, want %v", c.prog, c.symmetric, c.place, got, c.want)
		}
	}
	if tiles.programOf(dist.KindAllReduce, 2, 1<<20) != tileAll || tiles.programOf(dist.KindReduceScatter, 2, 1<<20) != tileOwn {
		t.Error("tiles have other programs")
	}
	if tiles.programOf(dist.KindAllGather, 2, 1<<20) != onceLine {
		t.Error("all-gather has no packets")
	}
}

// rounds is operations whose warps have several tiles each, so that scratch memory goes round, of
// all alignments.
func rounds(r *rank) error {
	rng := random(9)
	e := r.engines[tiles]
	for i, shape := range []Shape{{1, 32, 512}, {2, 64, 1536}, {16, 512, 0}, {7, 96, 8 << 10}, {64, 512, 32 << 10}} {
		for j, kind := range []dist.Kind{dist.KindAllReduce, dist.KindReduceScatter} {
			for k, count := range []int{3, 4096, 70001, 1000000} {
				c := someCombos[(i+j+k)%len(someCombos)]
				for _, inPlace := range []bool{false, true} {
					s := newSpec(rng, r.Size, kind, c, count, 0)
					s.lay(rng, 0, true, inPlace)
					if err := errors.Join(e.Force(shape), r.run(e, s)); err != nil {
						return fmt.Errorf("shape %v: %w", shape, err)
					}
				}
			}
		}
	}
	return e.Force(Shape{})
}
