package blas

import (
	"runtime"
	"slices"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// Two mistakes of gonum v0.17 that Implementation keeps from its users, with and without a library.
// When one of these fails because gonum is right, its remedy can go.

func TestGonumGerStillNeedsHelp(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the mistake is in gonum's assembly for amd64")
	}
	room := make([]float64, 66) // around the vector, so that the stray reads stay in our memory
	x := room[32:34]
	x[0], x[1] = 1, 2
	right := []float64{2, 1, 4, 2}

	theirs := make([]float64, 4)
	gonum.Implementation{}.Dger(2, 2, 1, x, 1, x, -1, theirs, 2)
	if slices.Equal(theirs, right) {
		t.Error("gonum's Dger is right with a negative increment: gerByRows can go")
	}
	ours := make([]float64, 4)
	mustOpen(t, Config{Disable: true}).Dger(2, 2, 1, x, 1, x, -1, ours, 2)
	if !slices.Equal(ours, right) {
		t.Errorf("Dger = %v, want %v", ours, right)
	}
}

func TestGonumSgemvStillNeedsHelp(t *testing.T) {
	a, x := []float32{1, 2, 3, 4}, []float32{1, 1}
	gemv := func(b blas.Float32Level2) []float32 {
		y := []float32{9, 9, 9, 9}
		b.Sgemv(blas.Trans, 2, 2, 1, a, 2, x, 1, 0, y, 1)
		return y
	}
	right := []float32{4, 6, 9, 9}
	if slices.Equal(gemv(gonum.Implementation{}), right) {
		t.Error("gonum's Sgemv leaves alone what lies behind y: elements can go")
	}
	if got := gemv(mustOpen(t, Config{Disable: true})); !slices.Equal(got, right) {
		t.Errorf("without a library: y = %v, want %v", got, right)
	}
	eachLibrary(t, 1, func(t *testing.T, impl *Implementation) {
		if got := gemv(impl); !slices.Equal(got, right) {
			t.Errorf("y = %v, want %v", got, right)
		}
	})
}
