package direct

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/sim"
)

// folder is a cache that some ranks share.
type folder struct {
	mu   sync.Mutex
	kept map[unit][]byte
}

// compiling has the images of one rank, as texts without a compiler. It counts its compilations.
type compiling struct {
	folder *folder // nil: nothing is kept
	fails  unit    // cannot be compiled
	mu     sync.Mutex
	count  map[unit]int
}

var errSyntax = errors.New("syntax error")

func (c *compiling) cached(u unit) []byte {
	if c.folder == nil {
		return nil
	}
	c.folder.mu.Lock()
	defer c.folder.mu.Unlock()
	return c.folder.kept[u]
}

func (c *compiling) compile(u unit) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count[u]++
	if u == c.fails {
		return nil, errSyntax
	}
	if c.folder != nil {
		c.folder.mu.Lock()
		defer c.folder.mu.Unlock()
		c.folder.kept[u] = []byte(u.String())
	}
	return []byte(u.String()), nil
}

// together gathers units on ranks with the images by, and checks the results.
func together(t *testing.T, by []*compiling, units []unit, need []bool, want error) {
	t.Helper()
	n := len(by)
	worlds, err := sim.New(n, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var ranks sync.WaitGroup
	for r, w := range worlds {
		ranks.Go(func() {
			p := &gpu.Member{Rank: r, Size: n, World: w.Ranks(), Control: w.Group, Memory: new(gpu.Memory)}
			got, err := gather(p, by[r], units, need[r], 1+r%3)
			if (err == nil) != (want == nil) || r == n-1 && !errors.Is(err, want) {
				t.Errorf("rank %d: error %v, want %v", r, err, want)
			}
			for i := range got {
				if need[r] && string(got[i]) != units[i].String() {
					t.Errorf("rank %d: unit %v is %q", r, units[i], got[i])
				}
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	ranks.Wait()
}

// crewOf is n ranks; those of one number in caches share one, and 0 is none.
func crewOf(caches ...int) (by []*compiling, need []bool) {
	folders := map[int]*folder{}
	for _, c := range caches {
		if c != 0 && folders[c] == nil {
			folders[c] = &folder{kept: map[unit][]byte{}}
		}
		by, need = append(by, &compiling{folder: folders[c], count: map[unit]int{}}), append(need, true)
	}
	return by, need
}

func TestRanksOfOneCacheCompileEachUnitOnce(t *testing.T) {
	for _, n := range []int{1, 2, 3, 8} {
		units := unitsOf(n)
		by, need := crewOf(slices.Repeat([]int{1}, n)...)
		together(t, by, units, need, nil)
		total, most := 0, 0
		for _, c := range by {
			total, most = total+len(c.count), max(most, len(c.count))
		}
		if total != len(units) || n > 1 && most == total { // who has more workers does more
			t.Errorf("%d ranks compiled %d of %d units, one of them %d", n, total, len(units), most)
		}
		again, _ := crewOf(slices.Repeat([]int{1}, n)...)
		for r := range again {
			again[r].folder = by[0].folder
		}
		together(t, again, units, need, nil)
		for r, c := range again {
			if len(c.count) != 0 {
				t.Errorf("rank %d of %d compiled %d units that are in the cache", r, n, len(c.count))
			}
		}
	}
}

func TestWhatRanksLackIsSharedOutEvenly(t *testing.T) {
	lacks := [][]byte{{1, 1, 1, 0, 1, 1, 0}, {1, 1, 1, 0, 0, 1, 1}, {1, 1, 1, 0, 1, 1, 0}}
	for rank, want := range [][]int{{0, 4}, {1, 5, 6}, {2}} {
		if own, done := share(lacks, rank); done || !slices.Equal(own, want) {
			t.Errorf("rank %d has %v to compile, done %v; want %v", rank, own, done, want)
		}
	}
	if own, done := share([][]byte{{0, 0}, {0, 0}}, 1); !done || own != nil {
		t.Errorf("of nothing rank 1 has %v, done %v", own, done)
	}
}

func TestRanksWithoutACommonCacheCompileForThemselves(t *testing.T) {
	units := unitsOf(4)
	by, need := crewOf(0, 1, 1, 2)
	together(t, by, units, need, nil)
	for _, c := range []struct {
		ranks []int
		want  int
	}{{[]int{0}, len(units)}, {[]int{1, 2}, len(units)}, {[]int{3}, len(units)}} {
		got := 0
		for _, r := range c.ranks {
			for u, times := range by[r].count {
				if got++; times != 1 {
					t.Errorf("rank %d compiled %v %d times", r, u, times)
				}
			}
		}
		if got < c.want {
			t.Errorf("ranks %v compiled %d units, want %d", c.ranks, got, c.want)
		}
	}
}

// A rank whose other groups have the kernels takes part, and gets and compiles nothing.
func TestRanksThatNeedNothingCompileNothing(t *testing.T) {
	units := unitsOf(3)
	by, need := crewOf(1, 1, 1)
	need[1] = false
	together(t, by, units, need, nil)
	if got := len(by[0].count) + len(by[2].count); len(by[1].count) != 0 || got != len(units) {
		t.Errorf("rank 1 compiled %d units, the others %d of %d", len(by[1].count), got, len(units))
	}
	by, _ = crewOf(0, 0)
	together(t, by, units, []bool{false, false}, nil)
	if len(by[0].count)+len(by[1].count) != 0 {
		t.Error("units were compiled that nobody needs")
	}
}

func TestWhatOneRankCannotCompileIsAnErrorOfAll(t *testing.T) {
	units := unitsOf(2)
	by, need := crewOf(0, 0)
	by[1].fails = units[5]
	together(t, by, units, need, errSyntax)
	for i := range units {
		by[1].fails = units[i]
		if _, err := by[1].compile(units[i]); !errors.Is(err, errSyntax) {
			t.Fatal("the compiler takes what it should not")
		}
	}
}

func TestEachCallsForAllAndGivesTheFirstError(t *testing.T) {
	for _, workers := range []int{1, 3, 100} {
		seen := make([]int, 20)
		items := []int{3, 5, 7, 11, 19}
		err := each(workers, items, func(i int) error {
			seen[i]++
			if i == 7 || i == 19 {
				return fmt.Errorf("%w %d", dist.ErrInvalid, i)
			}
			return nil
		})
		if err == nil || err.Error() != fmt.Sprint(dist.ErrInvalid, " 7") {
			t.Errorf("%d workers: error %v", workers, err)
		}
		for i, n := range seen {
			if want := slices.Index(items, i) >= 0; (n == 1) != want || n > 1 {
				t.Errorf("%d workers: item %d was done %d times", workers, i, n)
			}
		}
	}
	if err := each(4, nil, func(int) error { return errSyntax }); err != nil {
		t.Error(err)
	}
}

func TestKernelsAreSharedUntilTheLastGroupEnds(t *testing.T) {
	h := new(shelf)
	k := &kernels{ranks: 2}
	h.put(k)
	if h.take(nil, 3) != nil || h.take(nil, 2) != k {
		t.Fatal("the shelf gives other kernels than it has")
	}
	h.put(k) // the group that took them
	other := &kernels{ranks: 3}
	h.put(other) // of a part
	for i, c := range []struct {
		drop *kernels
		left int
	}{{other, 2}, {k, 2}, {k, 0}} {
		if err := h.drop(c.drop); err != nil || len(h.sets) != c.left {
			t.Errorf("after %d groups ended there are kernels of %d sizes, want %d; error %v", i+1, len(h.sets), c.left, err)
		}
	}
	if _, err := k.of(variant{push, 2, 0, redNone}); !errors.Is(err, dist.ErrUnsupported) {
		t.Errorf("a kernel that is not there: error %v", err)
	}
	if err := h.drop(nil); err != nil {
		t.Error(err)
	}
}
