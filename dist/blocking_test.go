package dist_test

import (
	"errors"
	"testing"

	"github.com/symgrad/symgrad/dist"
)

// Work on the stream of a view runs first, also if operations could run on their caller.
func TestBlockingViewOnAnotherStreamKeepsItsOrder(t *testing.T) {
	g, f := inlineGroup(t)
	s := dist.NewHostStream()
	t.Cleanup(func() { _ = s.Close() })
	x := f32(3)
	for what, verb := range map[string]func(b *dist.Group) error{
		"allreduce": func(b *dist.Group) error { _, err := b.AllReduce(x, x, dist.Sum); return err },
		"group call": func(b *dist.Group) error {
			_, err := b.Batch(func(v *dist.Group) error { _, err := v.AllReduce(x, x, dist.Sum); return err })
			return err
		},
	} {
		filled := false
		f.runErr = func(*dist.Op) error {
			if !filled {
				t.Errorf("%s runs before what its stream was given", what)
			}
			return nil
		}
		before := len(f.ops())
		if _, err := s.Do(func() error { filled = true; return nil }); err != nil {
			t.Fatal(err)
		}
		if err := verb(g.On(s).Blocking()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if ops := f.ops(); len(ops) != before+1 || f.streams[before] != dist.Stream(s) {
			t.Errorf("%s: %d operations on streams, want one more than %d", what, len(ops), before)
		}
		if err := verb(g.On(nil).Blocking()); !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("%s on no stream: error %v, want ErrInvalid", what, err)
		}
	}
	if len(f.ran) != 0 {
		t.Errorf("%d operations ran on their caller", len(f.ran))
	}
	if _, err := g.On(g.Stream()).Blocking().Barrier(); err != nil || len(f.ran) != 1 {
		t.Errorf("on the group's own stream: error %v, %d operations ran on their caller, want 1", err, len(f.ran))
	}
}
