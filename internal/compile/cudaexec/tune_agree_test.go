package cudaexec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/tensor"
)

// tried returns trials with these times, and the candidate taken in each; -1 for none yet.
func tried(times ...[]time.Duration) (list []*trial, taken []int) {
	taken = slices.Repeat([]int{-1}, len(times))
	for i, took := range times {
		var names []string
		for k := range took {
			names = append(names, fmt.Sprint("algorithm ", k))
		}
		list = append(list, newTrial(fmt.Sprint("product ", i), names, took, func(k int) error {
			taken[i] = k
			return nil
		}))
	}
	return list, taken
}

func TestTheLeastTimeOfEachTrialIsTaken(t *testing.T) {
	list, taken := tried([]time.Duration{5, 3, 3}, []time.Duration{0, 0}, nil, []time.Duration{0, 7})
	if err := takeLeast(list, timesOf(list)); err != nil {
		t.Fatal(err)
	}
	if want := []int{1, -1, -1, 1}; !slices.Equal(taken, want) {
		t.Errorf("taken %v, want %v", taken, want)
	}
	for i, want := range []float32{3, 0, 0, 7} {
		if list[i].worst != want {
			t.Errorf("trial %d took %v, want %v", i, list[i].worst, want)
		}
	}
	list[0].worst = 1
	if err := takeLeast(list, []float32{0, 0, 0, 9, 8, 0, 6}); err != nil || list[0].worst != 0 || list[1].worst != 8 {
		t.Errorf("%v, %v ns and %v ns, want 0 and 8", err, list[0].worst, list[1].worst)
	}
	if want := []int{1, 1, -1, 1}; !slices.Equal(taken, want) {
		t.Errorf("taken %v, want %v: what works on no rank leaves what there was", taken, want)
	}
	list[3].take = func(int) error { return cuda.ErrInvalid }
	if err := takeLeast(list, timesOf(list)); !errors.Is(err, cuda.ErrInvalid) || !strings.Contains(err.Error(), "product 3") {
		t.Errorf("error %v, want that of product 3", err)
	}
}

func TestHeadsTellListsApart(t *testing.T) {
	list := func() []*trial {
		l, _ := tried([]time.Duration{5, 3}, []time.Duration{4})
		return l
	}
	head := headOf(list(), nil)
	if len(head) != headLen || head[headFailure] != 0 || head[headCount] != 3 {
		t.Errorf("head %v", head)
	}
	for _, h := range head {
		if h != float32(int(h)) || h < 0 || h >= 1<<16 {
			t.Errorf("%v is no whole number of 16 bits", h)
		}
	}
	other := list()
	other[0].took[1], other[1].worst = 77, 5
	if got := headOf(other, nil); !slices.Equal(got, head) {
		t.Errorf("with other times the head is %v, without %v", got, head)
	}
	for name, change := range map[string]func(l []*trial) []*trial{
		"another product":   func(l []*trial) []*trial { l[1].what = "product 2"; return l },
		"another candidate": func(l []*trial) []*trial { l[0].names[1] = "algorithm 9"; return l },
		"another order":     func(l []*trial) []*trial { return []*trial{l[1], l[0]} },
		"one word of two": func(l []*trial) []*trial {
			l[0].names = []string{`algorithm 0" "algorithm 1`}
			return l
		},
		"a product less": func(l []*trial) []*trial { return l[:1] },
		"none":           func([]*trial) []*trial { return nil },
	} {
		if got := headOf(change(list()), nil); slices.Equal(got[headDigest:], head[headDigest:]) {
			t.Errorf("%s: the same digest", name)
		}
	}
}

func TestFailuresAreTold(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want error
	}{{cuda.ErrMemory, cuda.ErrMemory}, {fmt.Errorf("x: %w", dist.ErrInvalid), dist.ErrInvalid}, {errors.New("x"), nil}} {
		err := failed([][]float32{{0}, {0}, {failureOf(tt.err)}, {1}}, []int{4, 5, 6, 7})
		if err == nil || !strings.Contains(err.Error(), "rank 6 cannot load it") || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%v is told as %v", tt.err, err)
		}
	}
	if err := failed([][]float32{{0}, {failureOf(nil)}}, []int{0, 1}); err != nil {
		t.Error(err)
	}
}

func TestMergeIsTheSlowestOfRanksThatAreAlike(t *testing.T) {
	alike, other := []float32{0, 3, 1}, []float32{0, 2, 8}
	own := []float32{5, 3, 2}
	got := merge(own, alike, [][]float32{alike, other, alike}, [][]float32{{5, 3, 2}, {99, 99, 0}, {4, 6, 0}})
	if want := []float32{5, 6, 0}; !slices.Equal(got, want) || own[1] != 3 {
		t.Errorf("got %v, want %v; its own are %v", got, want, own)
	}
	if got := merge(own, other, [][]float32{alike}, [][]float32{{9, 9, 9}}); !slices.Equal(got, own) {
		t.Errorf("a rank that is alone has %v, want its own", got)
	}
	if got := merge([]float32{0, 1}, alike, [][]float32{alike}, [][]float32{{7, 7}}); !slices.Equal(got, []float32{0, 7}) {
		t.Errorf("got %v: what does not work here works nowhere", got)
	}
}

// around returns the council of a rank whose groups are on the host. It counts the gathers.
func around(groups []*dist.Group, gathers *[]int) *council {
	c := &council{program: "p"}
	for _, g := range groups {
		c.circles = append(c.circles, circle{g.Ranks(), func(own []float32) ([][]float32, error) {
			*gathers = append(*gathers, len(own))
			all := parted(own, g.Rank(), g.Size())
			b := tensor.Of(all)
			if _, err := g.Blocking().AllReduce(b, b, dist.Sum); err != nil {
				return nil, err
			}
			return slices.Collect(slices.Chunk(all, len(own))), nil
		}})
	}
	return c
}

// onRanks runs body on each rank of a world of n.
func onRanks(t *testing.T, n int, body func(g *dist.Group) error) {
	t.Helper()
	worlds, err := sim.New(n, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var ranks sync.WaitGroup
	for r, w := range worlds {
		ranks.Go(func() {
			if err := errors.Join(body(w.Group), w.Close()); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	ranks.Wait()
}

// told is the result of a rank.
type told struct {
	times   []float32
	err     error
	gathers []int
}

// asked3 returns the results of three ranks with these lists and errors.
func asked3(t *testing.T, lists [3][]*trial, errs [3]error) (all [3]told) {
	t.Helper()
	onRanks(t, 3, func(g *dist.Group) error {
		r := &all[g.Rank()]
		r.times, r.err = around([]*dist.Group{g}, &r.gathers).slowest(lists[g.Rank()], errs[g.Rank()])
		return nil
	})
	for r := range all {
		if !slices.Equal(all[r].gathers, all[0].gathers) {
			t.Errorf("rank %d gathers %v, rank 0 %v", r, all[r].gathers, all[0].gathers)
		}
	}
	return all
}

func TestRanksComeToTheSameCandidates(t *testing.T) {
	a, takenA := tried([]time.Duration{10, 12, 11}, []time.Duration{4, 0})
	b, takenB := tried([]time.Duration{9, 8, 14}, []time.Duration{6, 5})
	other, takenOther := tried([]time.Duration{3, 2}, []time.Duration{1}, []time.Duration{6, 5, 4})
	lists := [3][]*trial{a, other, b}
	all := asked3(t, lists, [3]error{})
	for r, want := range [][]float32{{10, 12, 14, 6, 0}, {3, 2, 1, 6, 5, 4}, {10, 12, 14, 6, 0}} {
		if all[r].err != nil || !slices.Equal(all[r].times, want) {
			t.Errorf("rank %d has %v, %v, want %v", r, all[r].times, all[r].err, want)
		}
		if err := takeLeast(lists[r], all[r].times); err != nil {
			t.Error(err)
		}
	}
	if want := []int{headLen, 6}; !slices.Equal(all[0].gathers, want) {
		t.Errorf("%v numbers were gathered, want %v", all[0].gathers, want)
	}
	if !slices.Equal(takenA, []int{0, 0}) || !slices.Equal(takenB, takenA) || !slices.Equal(takenOther, []int{1, 0, 2}) {
		t.Errorf("taken %v and %v, and %v by the rank with other products", takenA, takenB, takenOther)
	}
}

func TestRanksWithNothingToTimeGatherAlike(t *testing.T) {
	for r, got := range asked3(t, [3][]*trial{}, [3]error{}) {
		if got.err != nil || len(got.times) != 0 || !slices.Equal(got.gathers, []int{headLen}) {
			t.Errorf("rank %d: %+v", r, got)
		}
	}
	list, _ := tried([]time.Duration{2, 1})
	for r, got := range asked3(t, [3][]*trial{2: list}, [3]error{}) {
		if got.err != nil || len(got.times) != len([3][]*trial{2: list}[r])*2 || !slices.Equal(got.gathers, []int{headLen, 2}) {
			t.Errorf("rank %d, of which only 2 has a product: %+v", r, got)
		}
	}
}

func TestARankThatFailsEndsAll(t *testing.T) {
	a, _ := tried([]time.Duration{2, 1})
	b, _ := tried([]time.Duration{2, 1})
	own := fmt.Errorf("rank 1's own words: %w", cuda.ErrMemory)
	for r, got := range asked3(t, [3][]*trial{a, nil, b}, [3]error{1: own}) {
		if !errors.Is(got.err, cuda.ErrMemory) || !slices.Equal(got.gathers, []int{headLen}) {
			t.Errorf("rank %d: %+v", r, got)
		}
		if text := got.err.Error(); (r == 1) != (got.err == own) || r != 1 && !strings.Contains(text, `program "p"`) || r != 1 && !strings.Contains(text, "rank 1 cannot load it") {
			t.Errorf("rank %d: %s", r, text)
		}
	}
}

// Four ranks in rows and columns: no group has them all.
func TestRowsAndColumnsAgree(t *testing.T) {
	times := [4][]time.Duration{{1, 5}, {1, 5}, {1, 5}, {9, 5}}
	for _, broken := range []int{-1, 2} {
		var all [4]told
		onRanks(t, 4, func(g *dist.Group) error {
			rank := g.Rank()
			row, err := g.Split(rank/2, rank)
			if err != nil {
				return err
			}
			col, err := g.Split(rank%2, rank)
			if err != nil {
				return err
			}
			var own error
			if rank == broken {
				own = cuda.ErrMemory
			}
			list, _ := tried(times[rank])
			r := &all[rank]
			c := around([]*dist.Group{row, col}, &r.gathers)
			if r.times, r.err = c.slowest(list, own); r.err != nil {
				return nil
			}
			for _, short := range []int{-1, 1} {
				if got, err := c.anyone(rank == short, nil); got != (short >= 0) || err != nil {
					return fmt.Errorf("memory of rank %d is short: told %t, %w", short, got, err)
				}
			}
			return nil
		})
		for rank, r := range all {
			if broken >= 0 {
				if !errors.Is(r.err, cuda.ErrMemory) {
					t.Errorf("rank %d: %v, want the error of rank %d", rank, r.err, broken)
				}
			} else if r.err != nil || !slices.Equal(r.times, []float32{9, 5}) {
				t.Errorf("rank %d has %v, %v", rank, r.times, r.err)
			}
		}
	}
}

// In a grid that lacks a rank, a rank may not hear of a failure that its neighbours hear of: it
// must not hang.
func TestAFailureInARaggedGridEndsAll(t *testing.T) {
	onRanks(t, 3, func(g *dist.Group) error {
		row, column, err := g.Split2D(2)
		if err != nil {
			return err
		}
		var groups []*dist.Group
		for _, part := range []*dist.Group{row, column} {
			if part.Size() > 1 {
				groups = append(groups, part)
			}
		}
		var own error
		if g.Rank() == 2 {
			own = cuda.ErrMemory
		}
		list, _ := tried([]time.Duration{1, 2})
		var gathers []int
		c := around(groups, &gathers)
		_, err = c.slowest(list, own)
		if _, err = c.anyone(false, err); !errors.Is(err, cuda.ErrMemory) {
			return fmt.Errorf("after %v numbers: error %w, want ErrMemory", gathers, err)
		}
		return nil
	})
}

func TestAnErrorOfOneRankIsOneOfAll(t *testing.T) {
	onRanks(t, 3, func(g *dist.Group) error {
		var gathers []int
		var own error
		if g.Rank() == 2 {
			own = errors.New("rank 2's own words")
		}
		short, err := around([]*dist.Group{g}, &gathers).anyone(g.Rank() == 0, own)
		if !short || err == nil || !slices.Equal(gathers, []int{2}) || (g.Rank() == 2) != errors.Is(err, own) {
			return fmt.Errorf("short %t, error %w", short, err)
		}
		return nil
	})
}

func TestOneRankAgreesWithItself(t *testing.T) {
	list, _ := tried([]time.Duration{2, 1})
	c := &council{program: "p"}
	times, err := c.slowest(list, nil)
	if err != nil || !slices.Equal(times, []float32{2, 1}) {
		t.Errorf("%v, %v", times, err)
	}
	if _, err := c.slowest(nil, cuda.ErrMemory); err != cuda.ErrMemory {
		t.Error(err)
	}
	if short, err := c.anyone(true, nil); !short || err != nil {
		t.Errorf("%t, %v", short, err)
	}
	if short, err := c.anyone(false, cuda.ErrMemory); short || err != cuda.ErrMemory {
		t.Errorf("%t, %v", short, err)
	}
}

// Groups of one rank exchange nothing, nor do those whose ranks share an earlier group. Without
// Tune no group does.
func TestEachGroupThatAddsARankIsACircle(t *testing.T) {
	onRanks(t, 3, func(g *dist.Group) error {
		pair, err := g.Split(min(g.Rank(), 1), g.Rank()) // 0 alone, and 1 with 2
		if err != nil {
			return err
		}
		groups := []*dist.Group{nil, pair, g, g.With(dist.Hints{Name: "again"}), pair}
		x := &Exec{p: summing(0), cfg: Config{Tune: true}, comm: &comm{groups: groups}}
		var got [][]int
		for _, c := range x.council().circles {
			got = append(got, c.ranks)
		}
		want := [][]int{{1, 2}, {0, 1, 2}}
		if g.Rank() == 0 {
			want = want[1:]
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("circles of %v, want %v", got, want)
		}
		x.cfg.Tune = false
		if n := len(x.council().circles); n != 0 {
			return fmt.Errorf("without Tune there are %d circles", n)
		}
		x.cfg.Tune, x.comm = true, nil
		if n := len(x.council().circles); n != 0 {
			return fmt.Errorf("without groups there are %d circles", n)
		}
		return nil
	})
}
