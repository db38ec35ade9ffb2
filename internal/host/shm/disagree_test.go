package shm

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// After many equal operations, in any order of kinds, ranks get an error with the difference in the
// end: also a rank that ran ahead, which learns of it later.
func TestWhatDiffersIsNamedBehindManyThatAgree(t *testing.T) {
	for _, same := range []int{0, 1, depth - 2, depth, 3*depth + 1} {
		for _, tt := range []struct {
			name string
			last func(w *dist.Group, count int) error
			want []string
		}{
			{"a sum", func(w *dist.Group, count int) error {
				x := tensor.Of(make([]float32, count))
				return done(w.AllReduce(x, x, dist.Sum))
			}, []string{"f32[3]", "f32[4]"}},
			{"a broadcast, whose root goes on", func(w *dist.Group, count int) error {
				x := tensor.Of(make([]float32, count))
				if err := done(w.Broadcast(x, x, 0)); err != nil {
					return err
				}
				return done(w.Barrier())
			}, []string{"f32[3]", "f32[4]"}},
		} {
			ts, err := Local(2, Mapped, Config{})
			if err != nil {
				t.Fatal(err)
			}
			for rank, err := range wrap(ts, func(w *dist.World) error {
				g := w.Blocking()
				x := tensor.Of(make([]float32, 8))
				for i := range same {
					if i%3 == 2 {
						if err := done(g.Barrier()); err != nil {
							return err
						}
						continue
					}
					if err := done(g.AllReduce(x, x, dist.Sum)); err != nil {
						return err
					}
				}
				return tt.last(g, 3+w.Rank())
			}) {
				if !errors.Is(err, dist.ErrMismatch) {
					t.Errorf("%s behind %d, rank %d: %v", tt.name, same, rank, err)
					continue
				}
				for _, word := range tt.want {
					if !strings.Contains(err.Error(), word) {
						t.Errorf("%s behind %d, rank %d: %v\ndoes not say %s", tt.name, same, rank, err, word)
					}
				}
			}
		}
	}
}

// A member of a group call is named by its operation, and by its name if it has one.
func TestErrorOfAGroupCallSaysWhichMember(t *testing.T) {
	for name, want := range map[string]string{"": "): allreduce: ranks disagree", "w": `): allreduce "w": ranks disagree`} {
		ts, err := Local(2, GoMemory, Config{})
		if err != nil {
			t.Fatal(err)
		}
		for rank, err := range wrap(ts, func(w *dist.World) error {
			return done(w.Batch(func(b *dist.Group) error {
				x := tensor.Of(make([]float32, 3+w.Rank()))
				_, err := b.With(dist.Hints{Name: name}).AllReduce(x, x, dist.Sum)
				return err
			}))
		}) {
			if !errors.Is(err, dist.ErrMismatch) || !strings.Contains(err.Error(), want) {
				t.Errorf("name %q, rank %d: %v, want %s", name, rank, err, want)
			}
		}
	}
}

// Among so many ranks that they pass news and data on, those that hear of another operation from
// others take nothing that it gave, or that came in its place.
func TestNobodyTakesWhatDiffersFromThoseThatPassOn(t *testing.T) {
	const n, other, size, right = 25, 1, 5, 7
	gather := func(g *dist.Group, x, all []int64) error { return done(g.AllGather(tensor.Of(all), tensor.Of(x))) }
	give := func(g *dist.Group, x, all []int64) error { return done(g.Gather(tensor.Of(all), tensor.Of(x), 0)) }
	cast := func(g *dist.Group, x, all []int64) error {
		return done(g.Broadcast(tensor.Of(all[:size]), tensor.Of(x), 0))
	}
	for name, tt := range map[string]struct {
		right, wrong func(g *dist.Group, x, all []int64) error
		last         bool // the one with another operation goes on when all have done theirs
	}{
		"all-gather": {gather, gather, false},
		"broadcast":  {cast, give, true},
	} {
		for range 5 {
			ts, err := Local(n, memoryOfTests(), Config{flat: 4})
			if err != nil {
				t.Fatal(err)
			}
			var others sync.WaitGroup
			others.Add(n - 1)
			for rank, err := range wrap(ts, func(w *dist.World) error {
				g := w.Blocking()
				x, all := slices.Repeat([]int64{right}, size), slices.Repeat([]int64{right}, n*size)
				if w.Rank() == other {
					err := tt.wrong(g, x[:1], all)
					if tt.last {
						others.Wait()
					}
					return errors.Join(err, done(g.Barrier()))
				}
				err := tt.right(g, x, all)
				others.Done()
				if i := slices.IndexFunc(all, func(v int64) bool { return v != right }); err == nil && i >= 0 {
					t.Errorf("%s, rank %d: element %d became %d, and no error", name, w.Rank(), i, all[i])
				}
				return errors.Join(err, done(g.Barrier()))
			}) {
				if !errors.Is(err, dist.ErrMismatch) {
					t.Errorf("%s, rank %d: %v, want ErrMismatch", name, rank, err)
				}
			}
		}
	}
}
