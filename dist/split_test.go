package dist_test

import (
	"errors"
	"math/big"
	"slices"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"pgregory.net/rapid"
)

// anyInt is a small number mostly, and one near the end of the range sometimes.
func anyInt() *rapid.Generator[int] {
	return rapid.OneOf(rapid.IntRange(-2, 14), rapid.IntRange(-2, 14), rapid.Int())
}

// SplitStrided gives color 0 and keys in their order to the ranks start + i*stride, and no color to
// others; a triple that leaves the group, in exact arithmetic, is an error before anything is sent.
func TestSplitStridedMatchesItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "ranks")
		start, stride, size := anyInt().Draw(t, "start"), anyInt().Draw(t, "stride"), anyInt().Draw(t, "size")
		last := new(big.Int).Mul(big.NewInt(int64(size)-1), big.NewInt(int64(stride)))
		last.Add(last, big.NewInt(int64(start)))
		legal := start >= 0 && stride >= 1 && size >= 1 && last.Cmp(big.NewInt(int64(n))) < 0
		var keys []int // of the members so far
		for rank := range n {
			f := newFake(rank, n)
			g, err := dist.NewGroup(f, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			sub, err := g.SplitStrided(start, stride, size)
			if !legal {
				if !errors.Is(err, dist.ErrInvalid) || len(f.splits) != 0 {
					t.Fatalf("error %v, %d splits sent", err, len(f.splits))
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			color, key := f.splits[0][0], f.splits[0][1]
			in := len(keys) < size && rank == start+len(keys)*stride
			if in != (sub != nil) || in != (color == 0) || !in && color != dist.NoColor {
				t.Fatalf("rank %d, a member %v, splits with color %d, group %v", rank, in, color, sub != nil)
			}
			if in {
				keys = append(keys, key)
			}
		}
		if legal && (len(keys) != size || !slices.IsSorted(keys) || len(slices.Compact(keys)) != size) {
			t.Fatalf("%d members with keys %v, want %d in order", len(keys), keys, size)
		}
	})
}

// Split2D puts rank r at column r%width and row r/width.
func TestSplit2DMatchesItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "ranks")
		rank := rapid.IntRange(0, n-1).Draw(t, "rank")
		width := anyInt().Draw(t, "width")
		f := newFake(rank, n)
		g, err := dist.NewGroup(f, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		x, y, err := g.Split2D(width)
		if width < 1 {
			if !errors.Is(err, dist.ErrInvalid) || len(f.splits) != 0 {
				t.Fatalf("error %v, %d splits sent", err, len(f.splits))
			}
			return
		}
		if err != nil || x == nil || y == nil || len(f.splits) != 2 {
			t.Fatalf("error %v, groups %v %v, %d splits", err, x, y, len(f.splits))
		}
		for other := range n { // in one row, or column, exactly those of one color
			sameRow, sameColumn := other/width == rank/width, other%width == rank%width
			o := splitsOf(t, other, n, width)
			if (o[0][0] == f.splits[0][0]) != sameRow || (o[1][0] == f.splits[1][0]) != sameColumn {
				t.Fatalf("ranks %d and %d of %d, rows of %d: colors %v and %v", rank, other, n, width, f.splits, o)
			}
			if (o[0][1] < f.splits[0][1]) != (other < rank) || (o[1][1] < f.splits[1][1]) != (other < rank) {
				t.Fatalf("ranks %d and %d of %d: keys %v and %v are not in their order", rank, other, n, f.splits, o)
			}
		}
	})
}

func splitsOf(t *rapid.T, rank, n, width int) [][2]int {
	f := newFake(rank, n)
	g, err := dist.NewGroup(f, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if _, _, err := g.Split2D(width); err != nil {
		t.Fatal(err)
	}
	return f.splits
}

func TestSplitWithoutColorIsNil(t *testing.T) {
	g, _ := group(t, 0, 2)
	for _, color := range []int{dist.NoColor, -7} {
		if sub, err := g.Split(color, 0); sub != nil || err != nil {
			t.Errorf("color %d: group %v, error %v", color, sub, err)
		}
	}
}

func TestTranslate(t *testing.T) {
	world, _ := group(t, 0, 5)
	f := newFake(0, 3)
	copy(f.info.Ranks, []int{4, 0, 2})
	part, err := dist.NewGroup(f, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer part.Close()
	for rank, want := range []int{1, -1, 2, -1, 0} {
		if got := world.Translate(rank, part); got != want {
			t.Errorf("rank %d of the world is rank %d of the part, want %d", rank, got, want)
		}
	}
	for rank, want := range []int{4, 0, 2} {
		if got := part.Translate(rank, world); got != want {
			t.Errorf("rank %d of the part is rank %d of the world, want %d", rank, got, want)
		}
	}
	for _, rank := range []int{-1, 5} {
		if got := world.Translate(rank, part); got != -1 {
			t.Errorf("rank %d, which is none, is rank %d of the part", rank, got)
		}
	}
	if got := world.Translate(0, nil); got != -1 {
		t.Errorf("rank 0 is rank %d of no group", got)
	}
}
