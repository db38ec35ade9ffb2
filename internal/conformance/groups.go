package conformance

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// streams: operations on two streams of a group run in the order in which they were queued.
func (s *suite) streams() error {
	if s.dev == tensor.Host {
		return s.twoStreams(dist.NewHostStream())
	}
	other, err := s.g.Split(0, s.rank) // its stream is another one of the same device
	if s.opt.skipsKind(dist.KindSplit, err) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(s.twoStreams(other.Stream()), other.Close())
}

// twoStreams is streams with second as the other stream, which it closes.
func (s *suite) twoStreams(second dist.Stream) error {
	views := []*dist.Group{s.g, s.g.On(second)}
	x := [2]array[int64]{of(s.space, int64(0)), of(s.space, int64(s.rank+1))}
	const steps = 24 // 4^23 still fits 64 bits
	want := int64(s.n * (s.n + 1) / 2)
	for i := range steps { // x[0] = sum of x[1], x[1] = sum of x[0], ...: each needs the previous one
		dst, src := x[i%2].buf, x[1-i%2].buf
		if _, err := views[i/3%2].AllReduce(dst, src, dist.Sum); err != nil {
			return errors.Join(s.allowed(err), second.Close())
		}
		if i > 0 {
			want *= int64(s.n)
		}
	}
	err := errors.Join(s.g.Stream().Synchronize(), second.Synchronize())
	if last := x[(steps-1)%2].pull()[0]; err == nil && last != want {
		s.fault("%d operations on two streams: %d, want %d", steps, last, want)
	}
	if err != nil {
		return errors.Join(err, second.Close())
	}
	return errors.Join(s.joined(second), second.Close())
}

// joined: work queued after a Join waits for the joined work.
func (s *suite) joined(second dist.Stream) error {
	x := of(s.space, float32(1))
	w, err := s.g.AllReduce(x.buf, x.buf, dist.Sum)
	if err != nil {
		return err
	}
	if err := second.Join(w); err != nil {
		return err
	}
	if err := finish(s.g.On(second).AllReduce(x.buf, x.buf, dist.Sum)); err != nil {
		return err
	}
	if got, want := x.pull()[0], float32(s.n*s.n); got != want || !w.Done() {
		s.fault("two streams joined: %v, want %v; first operation done: %v", got, want, w.Done())
	}
	return nil
}

// splits tests groups made from the world and from each other.
func (s *suite) splits() error {
	for _, step := range []func() error{s.byColor, s.strided, s.grid} {
		if err := step(); s.opt.skipsKind(dist.KindSplit, err) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return s.allowed(finish(s.g.Barrier()))
}

// members checks that g has the given ranks of the world, in that order, and that it works. g is
// nil if this rank is not one of them.
func (s *suite) members(what string, g *dist.Group, ranks []int) error {
	at := slices.Index(ranks, s.rank)
	if (g != nil) != (at >= 0) {
		s.fault("%s: has a group: %v, want %v", what, g != nil, at >= 0)
		return nil
	}
	if g == nil {
		return nil
	}
	if g.Rank() != at || g.Size() != len(ranks) || !slices.Equal(g.Ranks(), ranks) {
		s.fault("%s: rank %d of %d, world ranks %v, want rank %d of %v", what, g.Rank(), g.Size(), g.Ranks(), at, ranks)
		return nil
	}
	for i, r := range ranks {
		if got := g.Translate(i, s.g); got != r {
			s.fault("%s: rank %d of it is rank %d of the world, want %d", what, i, got, r)
		}
	}
	for r := range s.n {
		if got, want := s.g.Translate(r, g), slices.Index(ranks, r); got != want {
			s.fault("%s: rank %d of the world is rank %d of it, want %d", what, r, got, want)
		}
	}
	gathered := zeros[int32](s.space, len(ranks))
	if err := finish(g.AllGather(gathered.buf, of(s.space, int32(s.rank)).buf)); s.opt.skips(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	all := gathered.pull()
	for i, r := range ranks {
		if all[i] != int32(r) {
			s.fault("%s: allgather has %v, want the ranks %v", what, all, ranks)
			break
		}
	}
	return nil
}

// byColor: odd and even ranks in reverse order, without rank 0; then a split of a part.
func (s *suite) byColor() error {
	color := s.rank % 2
	if s.rank == 0 {
		color = dist.NoColor
	}
	g, err := s.g.Split(color, -s.rank)
	if err != nil {
		return err
	}
	var want []int
	for r := s.n - 1; r > 0; r-- {
		if r%2 == s.rank%2 {
			want = append(want, r)
		}
	}
	if s.rank == 0 {
		want = nil
	}
	if err := s.members("split by parity, reversed", g, want); err != nil {
		return err
	}
	same, err := s.g.Split(5, 3) // equal keys keep the order of the ranks
	if err != nil {
		return err
	}
	everyone := make([]int, s.n)
	for r := range everyone {
		everyone[r] = r
	}
	if err := s.members("split into one part", same, everyone); err != nil {
		return err
	}
	if g == nil {
		return same.Close()
	}
	inner, err := g.Split(0, -g.Rank())
	if err != nil {
		return err
	}
	slices.Reverse(want)
	if err := s.members("split of a split", inner, want); err != nil {
		return err
	}
	return errors.Join(g.Close(), same.Close()) // g closes inner
}

// strided: groups of every start, stride and size that fit, and errors for others.
func (s *suite) strided() error {
	for _, c := range [][3]int{{0, 1, s.n}, {0, 2, (s.n + 1) / 2}, {s.n - 1, 1, 1}, {0, s.n, 1}, {s.n / 2, 1, s.n - s.n/2}} {
		g, err := s.g.SplitStrided(c[0], c[1], c[2])
		if err != nil {
			return err
		}
		var want []int
		for i := range c[2] {
			want = append(want, c[0]+i*c[1])
		}
		if err := s.members(fmt.Sprintf("split strided start %d stride %d size %d", c[0], c[1], c[2]), g, want); err != nil {
			return err
		}
		if g != nil {
			if err := g.Close(); err != nil {
				return err
			}
		}
	}
	for _, c := range [][3]int{{0, 1, s.n + 1}, {-1, 1, 1}, {0, 0, 1}, {0, 1, 0}, {s.n, 1, 1}} {
		_, err := s.g.SplitStrided(c[0], c[1], c[2])
		s.expect(fmt.Sprintf("split strided start %d stride %d size %d", c[0], c[1], c[2]), err, dist.ErrInvalid)
	}
	return nil
}

// grid: rows and columns, used concurrently from two goroutines.
func (s *suite) grid() error {
	for _, width := range []int{1, 2, s.n, s.n + 3} {
		x, y, err := s.g.Split2D(width)
		if err != nil {
			return err
		}
		w := min(width, s.n)
		var row, column []int
		for r := range s.n {
			if r/w == s.rank/w {
				row = append(row, r)
			}
			if r%w == s.rank%w {
				column = append(column, r)
			}
		}
		if err := s.members(fmt.Sprintf("row of a grid %d wide", width), x, row); err != nil {
			return err
		}
		if err := s.members(fmt.Sprintf("column of a grid %d wide", width), y, column); err != nil {
			return err
		}
		var both sync.WaitGroup
		var errs [2]error
		for i, g := range []*dist.Group{x, y} {
			both.Go(func() { errs[i] = s.allowed(sums(g, s.space, 30)) })
		}
		both.Wait()
		if err := errors.Join(errs[0], errs[1], x.Close(), y.Close()); err != nil {
			return fmt.Errorf("rows and columns of a grid %d wide at once: %w", width, err)
		}
	}
	_, _, err := s.g.Split2D(0)
	s.expect("split 2D into rows of 0", err, dist.ErrInvalid)
	return nil
}

// sums runs allreduces on g and checks them.
func sums(g *dist.Group, p *space, times int) error {
	for i := range times {
		x := of(p, int32(i), int32(g.Rank()))
		if err := finish(g.AllReduce(x.buf, x.buf, dist.Sum)); err != nil {
			return err
		}
		got, n := x.pull(), int32(g.Size())
		if got[0] != int32(i)*n || got[1] != n*(n-1)/2 {
			return fmt.Errorf("allreduce %d has %v, want %v", i, got, []int32{int32(i) * n, n * (n - 1) / 2})
		}
	}
	return nil
}
