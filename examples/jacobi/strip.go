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

// strip is the rows of one rank, numbered from 1, with a halo row above and one below. It lies
// twice in the symmetric heap: iteration k reads copy (k-1)%2 and writes copy k%2.
type strip struct {
	w       *dist.World
	heap    symmetric.Heap
	cells   symmetric.Region // the two copies
	arrived symmetric.Region // the newest iteration of which a row has come, from above and from below
	nx      int
	inner   int // rows of all ranks
	first   int // row of the grid that is row 1 here
	rows    int
	grids   [2][]float64 // the own part of cells, as the two copies

	above, below []float64 // the neighbours' parts of cells, for --halo device; nil where there is no neighbour
}

// divide is which of n inner rows rank r of size has: so many, after so many of the ranks before
// it.
func divide(n, r, size int) (before, rows int) {
	each, more := n/size, n%size
	before = r*each + min(r, more)
	if r < more {
		each++
	}
	return before, each
}

// share tells how many rows a rank has: "127 or 128".
func share(n, size int) string {
	if n%size == 0 {
		return fmt.Sprint(n / size)
	}
	return fmt.Sprintf("%d or %d", n/size, n/size+1)
}

// newStrip allocates the rows of this rank and fills them with the values of the edge, 0 inside.
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
	return g, rank.Done(w.Barrier()) // no rank puts into a halo before it is filled
}

// free gives the memory back. After an error it is not needed: the heap is closed with the world.
//
// Collective: all ranks.
func (g *strip) free() error {
	if err := g.heap.Free(g.arrived); err != nil {
		return err
	}
	return g.heap.Free(g.cells)
}

// copyBytes is the size of one copy. It is the same on all ranks, as the symmetric heap wants it:
// room for the rank with the most rows, which is the first.
func (g *strip) copyBytes() int64 {
	_, most := divide(g.inner, 0, g.w.Size())
	return int64(most+2) * int64(g.nx) * pointBytes
}

// at is where, in cells, a row of copy k%2 begins. It holds for every rank.
func (g *strip) at(k, row int) int64 {
	return int64(k%2)*g.copyBytes() + int64(row)*int64(g.nx)*pointBytes
}

// row is a row of copy k%2 of this rank.
func (g *strip) row(k, row int) []float64 { return g.grids[k%2][row*g.nx:][:g.nx] }

// sweep computes rows lo to hi-1 of iteration k. With look it also gives the largest change of a
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

// relax is, for every point but the first and the last,
//
//	dst[i] = 0.25 * ((old[i-1] + old[i+1]) + (above[i] + below[i]))
//
// in this order, which is that of serial.
//
// Shapes: all of one length.
func relax(dst, above, old, below []float64) {
	n := len(dst)
	above, old, below = above[:n], old[:n], below[:n] // one check of the bounds for the whole row
	for i := 1; i < n-1; i++ {
		dst[i] = 0.25 * ((old[i-1] + old[i+1]) + (above[i] + below[i]))
	}
}

// furthest is the largest distance between two points of a and b.
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
