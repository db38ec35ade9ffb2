package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/rank"
	"github.com/symgrad/symgrad/examples/internal/ranktest"
)

// Whatever the number of ranks, the solution has the bits of one: with rows that the ranks do not
// divide, with one row each, with more iterations than are queued at once, and with an end by the
// tolerance.
func TestRanksHaveTheBitsOfOne(t *testing.T) {
	for n := 1; n <= 4; n++ {
		ranktest.Worlds(t, n, func(t *testing.T, run func(ranktest.Run) (string, error)) {
			for _, s := range []settings{
				{nx: 3, ny: 3 + n, iters: 5, normEvery: 2},
				{nx: 3, ny: 2 + n, iters: 9, normEvery: 3},
				{nx: 17, ny: 2 + n, iters: 150, normEvery: 1000},
				{nx: 16, ny: 15, iters: 131, normEvery: 1},
				{nx: 9, ny: 31, iters: 100_000, normEvery: 10, tol: 1e-3},
			} {
				for _, s.halo = range halos() {
					for _, s.noOverlap = range []bool{false, true} {
						s.verify = true
						out, err := run(s.run)
						if err != nil || !strings.Contains(out, fmt.Sprintf("the serial solution in all %d points", s.nx*s.ny)) {
							t.Fatalf("%+v: %v\n%s", s, err, out)
						}
					}
				}
			}
		})
	}
}

func TestToleranceEndsTheIteration(t *testing.T) {
	s := settings{nx: 20, ny: 20, iters: 100_000, normEvery: 7, tol: 1e-6, halo: haloPut}
	_, end := serial(s)
	if end.iterations%7 != 0 || end.change > s.tol || end.iterations == s.iters {
		t.Fatalf("the serial solution ends with %+v", end)
	}
	if _, earlier := serial(settings{nx: 20, ny: 20, iters: end.iterations - 7, normEvery: 7}); earlier.change <= s.tol {
		t.Errorf("a look earlier the change was %v", earlier.change)
	}
	ranktest.Worlds(t, 3, func(t *testing.T, run func(ranktest.Run) (string, error)) {
		out, err := run(s.run)
		if want := fmt.Sprintf("%d iterations, largest change %.3g,", end.iterations, end.change); err != nil || !strings.Contains(out, want) {
			t.Errorf("%v: %q is missing in\n%s", err, want, out)
		}
	})
}

// The difference scheme is of second order: with half the step a quarter of the error is left.
func TestSerialSolutionConvergesToThatOfTheEquation(t *testing.T) {
	err := func(n int) float64 {
		grid, end := serial(settings{nx: n, ny: n, iters: 1_000_000, normEvery: 10, tol: 1e-13})
		if end.iterations == 1_000_000 {
			t.Fatalf("%d points a side: no end", n)
		}
		worst := 0.0
		for i, u := range grid {
			worst = max(worst, math.Abs(u-exact(i/n, i%n, n, n)))
		}
		return worst
	}
	coarse, fine := err(9), err(17)
	if coarse > 0.01 || coarse/fine < 3.5 || coarse/fine > 4.5 {
		t.Errorf("errors %.2e with 9 points a side and %.2e with 17: want a quarter", coarse, fine)
	}
}

func TestVerifySeesOneWrongBit(t *testing.T) {
	s := settings{nx: 12, ny: 14, iters: 40, normEvery: 10, halo: haloPut}
	ranktest.Worlds(t, 3, func(t *testing.T, run func(ranktest.Run) (string, error)) {
		_, err := run(func(ctx context.Context, w *dist.World, out io.Writer) error {
			g, err := newStrip(w, s)
			if err != nil {
				return err
			}
			found, err := solve(ctx, g, s, new(meter), out)
			if err != nil {
				return err
			}
			if w.Rank() == 1 {
				p := &g.row(found.iterations, g.rows)[5]
				*p = math.Float64frombits(math.Float64bits(*p) ^ 1)
			}
			if err := rank.Done(w.Barrier()); err != nil {
				return err
			}
			return verify(w, s, g, found, out)
		})
		if want := "wrong result: rank 0 has 1 points that are not those of the serial solution"; !errors.Is(err, rank.ErrWrong) || strings.Count(err.Error(), want) != 3 {
			t.Errorf("error %v, want %q on three ranks", err, want)
		}
	})
}

func TestVerifyComparesTheEndToo(t *testing.T) {
	s := settings{nx: 8, ny: 8, iters: 10, normEvery: 5, halo: haloPut}
	ranktest.Worlds(t, 2, func(t *testing.T, run func(ranktest.Run) (string, error)) {
		out, err := run(func(ctx context.Context, w *dist.World, out io.Writer) error {
			g, err := newStrip(w, s)
			if err != nil {
				return err
			}
			found, err := solve(ctx, g, s, new(meter), out)
			if err != nil {
				return err
			}
			found.change = math.Nextafter(found.change, 1)
			return verify(w, s, g, found, out)
		})
		if !errors.Is(err, rank.ErrWrong) || !strings.Contains(out, "verify: the serial solution has 10 iterations, largest change ") {
			t.Errorf("error %v after\n%s", err, out)
		}
	})
}

// stopper is a writer that calls stop at one of its lines.
type stopper struct {
	lines int
	stop  func()
}

func (s *stopper) Write(b []byte) (int, error) {
	if s.lines--; s.lines == 0 {
		s.stop()
	}
	return len(b), nil
}

var errStopped = errors.New("stopped by the test")

// A rank that fails between iterations leaves its neighbours waiting for a row: they must be told,
// and no stream may keep its world from closing.
func TestRankThatFailsEndsTheOthers(t *testing.T) {
	s := settings{nx: 64, ny: 64, iters: 1 << 30, normEvery: 5}
	for i := range 2 * len(halos()) {
		s.halo, s.noOverlap = halos()[i/2], i%2 == 1
		ranktest.Worlds(t, 3, func(t *testing.T, run func(ranktest.Run) (string, error)) {
			_, err := run(func(ctx context.Context, w *dist.World, out io.Writer) error {
				if w.Rank() == 1 {
					var stop context.CancelCauseFunc
					ctx, stop = context.WithCancelCause(ctx)
					out = &stopper{lines: 20, stop: func() { stop(errStopped) }}
				}
				return s.run(ctx, w, out)
			})
			if !errors.Is(err, errStopped) || !errors.Is(err, dist.ErrAborted) {
				t.Errorf("error %v, want the reason on rank 1 and an abort on the others", err)
			}
		})
	}
}
