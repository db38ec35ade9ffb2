package main

import (
	"fmt"
	"math"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/rank"
	"github.com/symgrad/symgrad/symmetric"
)

// pointBytes is the size of a float64.
const pointBytes = 8

// strip has the rows of one rank, numbered from 1, with one halo row above and one below. The
// symmetric heap has two copies: iteration k reads copy (k-1)%2 and writes copy k%2.
type strip struct {
	w       *dist.World
	heap    symmetric.Heap
	cells   symmetric.Region // the two copies
	arrived symmetric.Region // newest iteration whose row has arrived, from above and from below
	nx      int
	inner   int // rows of all ranks
	first   int // row of the grid that is row 1 of the strip
	rows    int
	grids   [2][]float64 // the two copies in this rank's part of cells

	above, below []float64 // the neighbours' parts of cells, for --halo device; nil without a neighbour
}

// divide returns the number of the n inner rows that rank r of size has, and how many the ranks
// before it have.
func divide(n, r, size int) (before, rows int) {
	each, more := n/size, n%size
	before = r*each + min(r, more)
	if r < more {
		each++
	}
	return before, each
}

// share returns how many rows a rank has: "127 or 128".
func share(n, size int) string {
	if n%size == 0 {
		return fmt.Sprint(n / size)
	}
	return fmt.Sprintf("%d or %d", n/size, n/size+1)
}

// newStrip allocates the rows of this rank and sets them to the boundary values, 0 inside.
//
// Collective: all ranks. Owns: the caller calls free.
func newStrip(w *dist.World, s settings) (*strip, error) {
	g := &strip{w: w, nx: s.nx, inner: s.ny - 2}
	before, rows := divide(g.inner, w.Rank(), w.Size())
	g.first, g.rows = before+1, rows
	cells := 2 * g.copyBytes()
	var err error
	if g.heap, err = w.Heap(cells + 2*symmetric.Alignment); err != nil {
		return nil, err
	}
	if g.cells, err = g.heap.Alloc(cells); err != nil {
		return nil, err
	}
	if g.arrived, err = g.heap.Alloc(2 * signalBytes); err != nil {
		return nil, err
	}
	all, err := symmetric.View[float64](g.cells)
	if err != nil {
		return nil, err
	}
	points := len(all) / 2
	g.grids = [2][]float64{all[:points], all[points:]}
	for i := range (g.rows + 2) * g.nx {
		u := boundary(g.first-1+i/g.nx, i%g.nx, s.nx, s.ny)
		g.grids[0][i], g.grids[1][i] = u, u
	}
	return g, rank.Done(w.Barrier()) // no rank may put into a halo before it is initialized
}

// free frees the memory. After an error it is not needed: closing the world closes the heap.
//
// Collective: all ranks.
func (g *strip) free() error {
	if err := g.heap.Free(g.arrived); err != nil {
		return err
	}
	return g.heap.Free(g.cells)
}

// copyBytes returns the size of one copy. It is the same on all ranks, as symmetric memory
// requires: enough for the rank with the most rows, the first.
func (g *strip) copyBytes() int64 {
	_, most := divide(g.inner, 0, g.w.Size())
	return int64(most+2) * int64(g.nx) * pointBytes
}

// at returns the offset in cells of a row of copy k%2. It is valid for every rank.
func (g *strip) at(k, row int) int64 {
	return int64(k%2)*g.copyBytes() + int64(row)*int64(g.nx)*pointBytes
}

// row returns a row of copy k%2 of this rank.
func (g *strip) row(k, row int) []float64 { return g.grids[k%2][row*g.nx:][:g.nx] }

// sweep computes rows lo to hi-1 of iteration k. With look it returns the largest change of a
// point, else 0.
func (g *strip) sweep(k, lo, hi int, look bool) (change float64) {
	for i := lo; i < hi; i++ {
		dst, above, old, below := g.row(k, i), g.row(k-1, i-1), g.row(k-1, i), g.row(k-1, i+1)
		relax(dst, above, old, below)
		if look {
			change = max(change, furthest(dst, old))
		}
	}
	return change
}

// relax computes, for every point except the first and the last,
//
//	dst[i] = 0.25 * ((old[i-1] + old[i+1]) + (above[i] + below[i]))
//
// in this order, as serial does.
//
// Shapes: all of one length.
func relax(dst, above, old, below []float64) {
	n := len(dst)
	above, old, below = above[:n], old[:n], below[:n] // one bounds check for the whole row
	for i := 1; i < n-1; i++ {
		dst[i] = 0.25 * ((old[i-1] + old[i+1]) + (above[i] + below[i]))
	}
}

// furthest returns the largest difference between points of a and b.
//
// Shapes: both of one length.
func furthest(a, b []float64) float64 {
	most := 0.0
	b = b[:len(a)]
	for i, x := range a {
		if d := math.Abs(x - b[i]); d > most {
			most = d
		}
	}
	return most
}
