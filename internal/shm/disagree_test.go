package shm

import (
	"errors"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Ranks that have done the same many times, in any order of kinds, are told what differs in the end: also a rank that ran ahead, which
// learns of it later.
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
				_, err := b.Named(name).AllReduce(x, x, dist.Sum)
				return err
			}))
		}) {
			if !errors.Is(err, dist.ErrMismatch) || !strings.Contains(err.Error(), want) {
				t.Errorf("name %q, rank %d: %v, want %s", name, rank, err, want)
			}
		}
	}
}
