package oracle_test

import (
	"math"
	"testing"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// square is windows of 2x2 over one image of 3x3.
func square() program.Window {
	return program.Window{N: 1, C: 1, H: 3, W: 3, R: 2, S: 2, StrideH: 1, StrideW: 1, DilationH: 1, DilationW: 1, OutH: 2, OutW: 2}
}

func TestConvolutionAgainstHand(t *testing.T) {
	w := square()
	x, f := of([]int{1, 1, 3, 3}, 1, 2, 3, 4, 5, 6, 7, 8, 9), of([]int{1, 1, 2, 2}, 1, 10, 100, 1000)
	runs(t, &program.Conv{Window: w, K: 1}, []operand{x, f}, of([]int{1, 1, 2, 2}, 5421, 6532, 8754, 9865))
	dy := of([]int{1, 1, 2, 2}, 1, 0, 0, 2)
	runs(t, &program.ConvGradInput{Window: w, K: 1}, []operand{dy, f}, of([]int{1, 1, 3, 3}, 1, 10, 0, 100, 1002, 20, 0, 200, 2000))
	runs(t, &program.ConvGradFilter{Window: w, K: 1}, []operand{x, dy}, of([]int{1, 1, 2, 2}, 11, 14, 20, 23))
}

func TestConvolutionIsColumnsTimesFilter(t *testing.T) {
	w := program.Window{N: 1, C: 1, H: 2, W: 3, R: 2, S: 1, PadH: 1, StrideH: 1, StrideW: 2, DilationH: 2, DilationW: 1, OutH: 2, OutW: 2}
	x := of([]int{1, 1, 2, 3}, 1, 2, 3, 4, 5, 6)
	// Window (0, j) has rows -1 and 1; window (1, j) rows 0 and 2, which is outside.
	runs(t, &program.Im2Col{Window: w}, []operand{x}, of([]int{1, 2, 2, 2}, 0, 4, 0, 6, 1, 0, 3, 0))
	runs(t, &program.Conv{Window: w, K: 1}, []operand{x, of([]int{1, 1, 2, 1}, 1, 10)}, of([]int{1, 1, 2, 2}, 40, 60, 1, 3))
	runs(t, &program.Col2Im{Window: w}, []operand{of([]int{1, 2, 2, 2}, 1, 2, 3, 4, 5, 6, 7, 8)}, of([]int{1, 1, 2, 3}, 5, 0, 7, 2, 0, 4))
}

func TestMaxPoolGivesTiesToTheFirst(t *testing.T) {
	w := square()
	x := of([]int{1, 1, 3, 3}, 1, 5, 5, 5, 5, 2, 0, 0, 0)
	y := of([]int{1, 1, 2, 2}, 5, 5, 5, 5)
	runs(t, &program.MaxPool{Window: w}, []operand{x}, y)
	dy := of([]int{1, 1, 2, 2}, 1, 10, 100, 1000)
	runs(t, &program.MaxPoolGrad{Window: w}, []operand{x, y, dy}, of([]int{1, 1, 3, 3}, 0, 11, 0, 100, 1000, 0, 0, 0, 0))
}

// As in Maximum, a NaN wins over +inf at any place of the window. The window then passes on no
// gradient.
func TestMaxPoolOfANaNIsNaN(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	w := square()
	w.N, w.H, w.W, w.OutH, w.OutW = 6, 2, 2, 1, 1
	x := of([]int{6, 1, 2, 2},
		nan, inf, 0, -inf,
		inf, 1, 2, nan,
		-inf, -inf, nan, -inf,
		nan, nan, nan, nan,
		3, inf, inf, -inf,
		-inf, -inf, -inf, -inf)
	y := of([]int{6, 1, 1, 1}, nan, nan, nan, nan, inf, -inf)
	runs(t, &program.MaxPool{Window: w}, []operand{x}, y)
	dx := of([]int{6, 1, 2, 2}, make([]float64, 24)...)
	dx.data[17], dx.data[20] = 5, 6 // the first +inf, and the first of equals
	runs(t, &program.MaxPoolGrad{Window: w}, []operand{x, y, of([]int{6, 1, 1, 1}, 1, 2, 3, 4, 5, 6)}, dx)
}

func TestPoolsWithPadding(t *testing.T) {
	w := program.Window{N: 1, C: 2, H: 1, W: 1, R: 2, S: 2, PadH: 1, PadW: 1, StrideH: 1, StrideW: 1, DilationH: 1, DilationW: 1, OutH: 1, OutW: 2}
	x := of([]int{1, 2, 1, 1}, -3, 8)
	runs(t, &program.MaxPool{Window: w}, []operand{x}, of([]int{1, 2, 1, 2}, -3, -3, 8, 8))
	runs(t, &program.AvgPool{Window: w}, []operand{x}, of([]int{1, 2, 1, 2}, -0.75, -0.75, 2, 2))
	runs(t, &program.AvgPoolGrad{Window: w}, []operand{of([]int{1, 2, 1, 2}, 4, 8, 0, 4)}, of([]int{1, 2, 1, 1}, 3, 1))
}
