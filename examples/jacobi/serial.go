package main

import "math"

// boundary returns u on the edges of the unit square: sin(πx) at the lower edge (the last row), 0
// at the others. Laplace's equation then has the solution exact.
//
// Shapes/units: point (row, col) of a grid of ny rows and nx columns.
func boundary(row, col, nx, ny int) float64 {
	if row != ny-1 || col == 0 || col == nx-1 {
		return 0
	}
	return math.Sin(math.Pi * float64(col) / float64(nx-1))
}

// exact returns sin(πx) sinh(πy) / sinh(π), the solution of the continuous problem, at a point of
// the grid.
func exact(row, col, nx, ny int) float64 {
	x, y := float64(col)/float64(nx-1), float64(row)/float64(ny-1)
	return math.Sin(math.Pi*x) * math.Sinh(math.Pi*y) / math.Sinh(math.Pi)
}

// solution describes the end of an iteration.
type solution struct {
	iterations int
	change     float64 // the largest change of a point in the last iteration
}

// serial solves the problem on the whole grid with two loops and shares no code with the ranks. It
// returns the grid, row after row.
func serial(s settings) ([]float64, solution) {
	old, next := make([]float64, s.nx*s.ny), make([]float64, s.nx*s.ny)
	for row := range s.ny {
		for col := range s.nx {
			u := boundary(row, col, s.nx, s.ny)
			old[row*s.nx+col], next[row*s.nx+col] = u, u
		}
	}
	for k := 1; ; k++ {
		change := 0.0
		for row := 1; row < s.ny-1; row++ {
			for col := 1; col < s.nx-1; col++ {
				i := row*s.nx + col
				next[i] = 0.25 * ((old[i-1] + old[i+1]) + (old[i-s.nx] + old[i+s.nx]))
				change = max(change, math.Abs(next[i]-old[i]))
			}
		}
		old, next = next, old
		if s.last(k, change) {
			return old, solution{k, change}
		}
	}
}
