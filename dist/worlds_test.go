package dist_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/tensor"
)

// inWorld runs body on every rank of a simulated world of n, closes the ranks and fails t on
// errors.
func inWorld(t interface {
	Helper()
	Fatal(args ...any)
}, n int, body func(w *dist.World) error,
) {
	t.Helper()
	worlds, err := sim.New(n, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, n)
	var running sync.WaitGroup
	for r, w := range worlds {
		running.Go(func() {
			if err := errors.Join(body(w), w.Close()); err != nil {
				errs[r] = fmt.Errorf("rank %d: %w", r, err)
			}
		})
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// members checks that g has the world ranks want in that order, by its methods and by a collective.
func members(w *dist.World, g *dist.Group, want []int) error {
	if len(want) == 0 || g == nil {
		if len(want) > 0 || g != nil {
			return fmt.Errorf("group %v, want ranks %v", g != nil, want)
		}
		return nil
	}
	if !slices.Equal(g.Ranks(), want) || g.Size() != len(want) || want[g.Rank()] != w.Rank() {
		return fmt.Errorf("rank %d of %v, want rank %d of %v", g.Rank(), g.Ranks(), slices.Index(want, w.Rank()), want)
	}
	seen := make([]int64, len(want))
	work, err := g.AllGather(tensor.Of(seen), tensor.Of([]int64{int64(w.Rank())}))
	if err == nil {
		err = work.Wait()
	}
	if err != nil {
		return err
	}
	for i, r := range want {
		if seen[i] != int64(r) {
			return fmt.Errorf("gathered %v from %v", seen, want)
		}
		if there, back := w.Translate(r, g), g.Translate(i, w.Group); there != i || back != r {
			return fmt.Errorf("rank %d of the world is %d there and %d back, want %d and %d", r, there, back, i, r)
		}
	}
	for r := range w.Size() {
		if !slices.Contains(want, r) && w.Translate(r, g) != -1 {
			return fmt.Errorf("rank %d of the world is rank %d of %v", r, w.Translate(r, g), want)
		}
	}
	return nil
}

// part of a split: the ranks of one color by key, then by rank.
func colored(colors, keys []int, color int) []int {
	var in []int
	for r, c := range colors {
		if c == color && c >= 0 {
			in = append(in, r)
		}
	}
	slices.SortStableFunc(in, func(a, b int) int { return cmp.Compare(keys[a], keys[b]) })
	return in
}

func TestSplitGroupsByColorAndOrdersByKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "ranks")
		colors := rapid.SliceOfN(rapid.IntRange(dist.NoColor, 2), n, n).Draw(t, "colors")
		keys := rapid.SliceOfN(rapid.IntRange(-2, 2), n, n).Draw(t, "keys")
		inWorld(t, n, func(w *dist.World) error {
			r := w.Rank()
			g, err := w.Split(colors[r], keys[r])
			if err != nil {
				return err
			}
			return members(w, g, colored(colors, keys, colors[r]))
		})
	})
}

func TestSplitOfASplit(t *testing.T) {
	inWorld(t, 6, func(w *dist.World) error {
		odd, err := w.Split(w.Rank()%2, -w.Rank()) // 4 2 0 and 5 3 1
		if err != nil {
			return err
		}
		pair, err := odd.Split(min(odd.Rank(), 1), 0) // 4, 2 0 and 5, 3 1
		if err != nil {
			return err
		}
		want := []int{2 + w.Rank()%2, w.Rank() % 2}
		if w.Rank() >= 4 {
			want = []int{w.Rank()}
		}
		if err := members(w, pair, want); err != nil {
			return err
		}
		if got := odd.Translate(2, pair); got != slices.Index(want, w.Rank()%2) {
			return fmt.Errorf("rank 2 of %v is rank %d of %v", odd.Ranks(), got, pair.Ranks())
		}
		return nil
	})
}

func TestSplitStridedTable(t *testing.T) {
	for _, tt := range []struct{ n, start, stride, size int }{
		{1, 0, 1, 1}, {4, 0, 1, 4}, {4, 3, 1, 1}, {4, 3, 9, 1}, {4, 0, 3, 2}, {5, 1, 2, 2}, {6, 0, 2, 3}, {6, 1, 2, 3}, {6, 2, 3, 2},
	} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			var in []int
			for i := range tt.size {
				in = append(in, tt.start+i*tt.stride)
			}
			inWorld(t, tt.n, func(w *dist.World) error {
				g, err := w.SplitStrided(tt.start, tt.stride, tt.size)
				if err != nil {
					return err
				}
				if !slices.Contains(in, w.Rank()) {
					return members(w, g, nil)
				}
				return members(w, g, in)
			})
		})
	}
}

func TestSplitStridedRefusals(t *testing.T) {
	const most = int(^uint(0) >> 1)
	for _, tt := range []struct {
		start, stride, size int
		text                string
	}{
		{-1, 1, 2, "start -1 stride 1 size 2 of 4 ranks"},
		{4, 1, 1, "start 4 stride 1 size 1 of 4 ranks"},
		{0, 0, 2, "start 0 stride 0 size 2 of 4 ranks"},
		{3, -1, 2, "start 3 stride -1 size 2 of 4 ranks"},
		{0, 1, 0, "start 0 stride 1 size 0 of 4 ranks"},
		{0, 1, -3, "start 0 stride 1 size -3 of 4 ranks"},
		{0, 1, 5, "ranks must be in 0 to 3"},
		{0, 2, 3, "ranks must be in 0 to 3"},
		{2, 2, 2, "ranks must be in 0 to 3"},
		{0, most/2 + 1, 5, "ranks must be in 0 to 3"}, // four strides wrap around to 0
		{most, 1, 1, "ranks must be in 0 to 3"},
		{1, most, most, "ranks must be in 0 to 3"},
	} {
		g, f := group(t, 0, 4)
		sub, err := g.SplitStrided(tt.start, tt.stride, tt.size)
		wantInvalid(t, err, tt.text)
		if sub != nil || len(f.splits) != 0 {
			t.Errorf("%+v: group %v, %d splits sent", tt, sub != nil, len(f.splits))
		}
	}
}

func TestSplit2DRefusals(t *testing.T) {
	for _, width := range []int{0, -1, -1 << 30} {
		g, f := group(t, 0, 4)
		x, y, err := g.Split2D(width)
		wantInvalid(t, err, fmt.Sprintf("rows of %d ranks", width))
		if x != nil || y != nil || len(f.splits) != 0 {
			t.Errorf("width %d: groups %v, %v, %d splits sent", width, x != nil, y != nil, len(f.splits))
		}
	}
}

func TestSplit2DTable(t *testing.T) {
	for _, tt := range []struct {
		n, width      int
		rows, columns [][]int
	}{
		{1, 1, [][]int{{0}}, [][]int{{0}}},
		{4, 1, [][]int{{0}, {1}, {2}, {3}}, [][]int{{0, 1, 2, 3}}},
		{4, 2, [][]int{{0, 1}, {2, 3}}, [][]int{{0, 2}, {1, 3}}},
		{4, 4, [][]int{{0, 1, 2, 3}}, [][]int{{0}, {1}, {2}, {3}}},
		{4, 1 << 30, [][]int{{0, 1, 2, 3}}, [][]int{{0}, {1}, {2}, {3}}},
		{5, 2, [][]int{{0, 1}, {2, 3}, {4}}, [][]int{{0, 2, 4}, {1, 3}}},
		{7, 3, [][]int{{0, 1, 2}, {3, 4, 5}, {6}}, [][]int{{0, 3, 6}, {1, 4}, {2, 5}}},
	} {
		t.Run(fmt.Sprintf("%d ranks in rows of %d", tt.n, tt.width), func(t *testing.T) {
			inWorld(t, tt.n, func(w *dist.World) error {
				x, y, err := w.Split2D(tt.width)
				if err != nil {
					return err
				}
				width := min(tt.width, tt.n)
				return errors.Join(members(w, x, tt.rows[w.Rank()/width]), members(w, y, tt.columns[w.Rank()%width]))
			})
		})
	}
}

func wantInvalid(t *testing.T, err error, text string) {
	t.Helper()
	if !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v, want ErrInvalid that says %q", err, text)
	}
}

func TestOrdinalCountsEachKind(t *testing.T) {
	inWorld(t, 1, func(w *dist.World) error {
		part, err := w.Split(0, 0)
		if err != nil {
			return err
		}
		var got []int
		for _, kind := range []string{"a", "a", "b", "a"} {
			got = append(got, w.With(dist.Hints{Name: "x"}).Ordinal(kind))
		}
		if got = append(got, part.Ordinal("a")); !slices.Equal(got, []int{1, 2, 1, 3, 1}) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
}

func TestMembersOfAGroupAndAWorld(t *testing.T) {
	inWorld(t, 1, func(w *dist.World) error {
		if dist.Members(w).Members() != w.Group || dist.Members(w.Group).Members() != w.Group || (*dist.World)(nil).Members() != nil {
			return errors.New("another group")
		}
		return nil
	})
}
