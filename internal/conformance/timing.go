package conformance

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// timing: timed operations have a time, others have none, and every collective can be called by its
// name.
func (s *suite) timing() error {
	dst, src := s.floats(8*s.n), s.floats(8*s.n)
	if err := s.timed(s.g, dst, src); err != nil {
		return err
	}
	w, err := s.g.AllReduce(dst, src, dist.Sum)
	if err != nil {
		return err
	}
	if d, err := w.Elapsed(); !errors.Is(err, dist.ErrUnsupported) && !errors.Is(err, dist.ErrAborted) {
		s.fault("an operation that was not timed took %v, %v", d, err)
	}
	for _, name := range dist.CallNames() {
		if err := s.byName(name); s.allowed(err) != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if _, err := s.g.Run(dist.Call{Collective: "allsum", Dst: dst, Src: src}); !errors.Is(err, dist.ErrInvalid) {
		s.fault("a collective of an unknown name: %v, want ErrInvalid", err)
	}
	return nil
}

// timed checks the times of operations of a view, of a blocking view of it, and of small and large
// ones.
func (s *suite) timed(g *dist.Group, dst, src tensor.Buffer) error {
	large := s.floats(1 << 14)
	for range 2 { // the second repeats the operation, for backends with cached launches
		for _, view := range []struct {
			what string
			g    *dist.Group
		}{{"", g.Timed()}, {"blocking ", g.Timed().Blocking()}, {"named blocking ", g.Blocking().With(dist.Hints{Name: "t"}).Timed()}} {
			for _, b := range [][2]tensor.Buffer{{dst, src}, {large, large}} {
				w, err := view.g.AllReduce(b[0], b[1], dist.Sum)
				if err != nil {
					return err
				}
				d, err := w.Elapsed()
				if err != nil || d <= 0 || d > time.Minute {
					s.fault("a timed %sallreduce of %v took %v, %v", view.what, b[0], d, err)
				}
			}
		}
	}
	return nil
}

// byName calls a collective by its name on untyped bytes, as elements of i32, and checks its time.
func (s *suite) byName(name string) error {
	dst, src := of(s.space, slices.Repeat([]int32{0}, s.n*s.n)...), of(s.space, slices.Repeat([]int32{1}, s.n*s.n)...)
	c := dist.Call{Collective: name, Dst: dst.buf, Src: src.buf, DType: tensor.I32, Timing: true}
	switch name {
	case "barrier", "sync":
		c.Dst, c.Src = tensor.Buffer{}, tensor.Buffer{}
	case "allgather", "fcollect", "gather":
		c.Src, _ = c.Src.Slice(0, s.n)
	case "scatter":
		c.Dst, _ = c.Dst.Slice(0, s.n)
	}
	c.Dst, c.Src = c.Dst.Untyped(), c.Src.Untyped()
	ms, err := s.g.Run(c)
	if err != nil {
		return err
	}
	if !(ms > 0 && ms < math.MaxInt32) {
		s.fault("%s took %v ms", name, ms)
	}
	c.Timing = false
	if ms, err = s.g.Run(c); err != nil || ms != 0 {
		s.fault("%s that is not timed took %v ms, %v", name, ms, err)
	}
	want := int32(1)
	if slices.Contains([]string{"allreduce", "reduce", "reducescatter"}, name) {
		want = int32(s.n)
	}
	if c.Dst.IsZero() || s.rank != 0 && (name == "reduce" || name == "gather") {
		want = 0
	}
	if got := dst.pull()[0]; got != want {
		s.fault("%s of ones gave %d, want %d", name, got, want)
	}
	return nil
}
