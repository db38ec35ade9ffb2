package main

import (
	"fmt"
	"io"
	"math"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/rank"
	"github.com/symgrad/symgrad/tensor"
)

// verify compares the ranks' solution with the serial one, which rank 0 computes: every bit of
// every point, the number of iterations, and the last change.
//
// Collective: all ranks, after a barrier. Errors: rank.ErrWrong on every rank.
func verify(w *dist.World, s settings, g *strip, found solution, out io.Writer) error {
	bad := 0
	if w.Rank() == 0 {
		got, err := assemble(s, w.Size(), func(to []float64, r int) error {
			return g.cells.Get(tensor.Of(to), r, g.at(found.iterations, 1)) // one-sided: the owner does nothing
		})
		if err != nil {
			return err
		}
		bad = compare(s, got, found, out)
	}
	if err := rank.Verdict(w, "points that are not those of the serial solution", bad); err != nil {
		return err
	}
	fmt.Fprintf(out, "verify: the bits of the serial solution in all %d points\n", s.nx*s.ny)
	return nil
}

// compare returns the number of differences from the serial solution. It prints differences in
// iterations or change.
func compare(s settings, got []float64, found solution, out io.Writer) int {
	want, end := serial(s)
	bad := differences(got, want)
	if found != end {
		fmt.Fprintf(out, "verify: the serial solution has %d iterations, largest change %.17g, not %.17g\n", end.iterations, end.change, found.change)
		bad++
	}
	return bad
}

// assemble returns the whole grid. fetch fills to with the rows of rank r.
func assemble(s settings, size int, fetch func(to []float64, r int) error) ([]float64, error) {
	grid := make([]float64, s.nx*s.ny)
	for _, row := range []int{0, s.ny - 1} {
		for col := range s.nx {
			grid[row*s.nx+col] = boundary(row, col, s.nx, s.ny)
		}
	}
	for r := range size {
		before, rows := divide(s.ny-2, r, size)
		if err := fetch(grid[(before+1)*s.nx:][:rows*s.nx], r); err != nil {
			return nil, fmt.Errorf("rows %d to %d of rank %d: %w", before+1, before+rows, r, err)
		}
	}
	return grid, nil
}

// differences returns the number of points in which the bits of two grids differ.
func differences(a, b []float64) int {
	n := 0
	for i := range a {
		if math.Float64bits(a[i]) != math.Float64bits(b[i]) {
			n++
		}
	}
	return n
}
