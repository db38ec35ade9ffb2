package blas

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// Implementation is gonum's BLAS with MKL, OpenBLAS or BLIS for its hot routines, if installed. It
// implements all of gonum's BLAS interfaces, so gorgonia.Use and tensor.Use take it.
//
// It keeps the contract of those interfaces, including panics: on bad arguments each method panics
// with gonum's value before any foreign call. Any number of goroutines may use it. It needs no
// Close.
type Implementation struct {
	gonum.Implementation
	single routines[float32]
	double routines[float64]
	info   Info
}

var (
	_ blas.Float32    = (*Implementation)(nil)
	_ blas.Float64    = (*Implementation)(nil)
	_ blas.Complex64  = (*Implementation)(nil)
	_ blas.Complex128 = (*Implementation)(nil)
)

// Every method below calls the library if that is safe and faster (the routine returns true), and
// gonum otherwise. Bad arguments go to gonum too, so their panics are gonum's.

// Sgemm is C = alpha op(A) op(B) + beta C for row-major matrices.
func (i *Implementation) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	if !i.single.gemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) {
		i.Implementation.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
	}
}

// Dgemm is C = alpha op(A) op(B) + beta C for row-major matrices.
func (i *Implementation) Dgemm(tA, tB blas.Transpose, m, n, k int, alpha float64, a []float64, lda int, b []float64, ldb int, beta float64, c []float64, ldc int) {
	if !i.double.gemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) {
		i.Implementation.Dgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
	}
}

// Sgemv is y = alpha op(A) x + beta y for a row-major matrix.
func (i *Implementation) Sgemv(tA blas.Transpose, m, n int, alpha float32, a []float32, lda int, x []float32, incX int, beta float32, y []float32, incY int) {
	if !i.single.gemv(tA, m, n, alpha, a, lda, x, incX, beta, y, incY) {
		i.Implementation.Sgemv(tA, m, n, alpha, a, lda, x, incX, beta, elements(tA, m, n, y, incY), incY)
	}
}

// Dgemv is y = alpha op(A) x + beta y for a row-major matrix.
func (i *Implementation) Dgemv(tA blas.Transpose, m, n int, alpha float64, a []float64, lda int, x []float64, incX int, beta float64, y []float64, incY int) {
	if !i.double.gemv(tA, m, n, alpha, a, lda, x, incX, beta, y, incY) {
		i.Implementation.Dgemv(tA, m, n, alpha, a, lda, x, incX, beta, y, incY)
	}
}

// Sger is A += alpha x yᵀ for a row-major matrix.
func (i *Implementation) Sger(m, n int, alpha float32, x []float32, incX int, y []float32, incY int, a []float32, lda int) {
	switch {
	case i.single.ger(m, n, alpha, x, incX, y, incY, a, lda):
	case incX < 0 || incY < 0:
		i.Implementation.Sger(m, n, 0, x, incX, y, incY, a, lda) // with alpha 0: only its checks
		gerByRows(i.Implementation.Saxpy, m, n, alpha, x, incX, y, incY, a, lda)
	default:
		i.Implementation.Sger(m, n, alpha, x, incX, y, incY, a, lda)
	}
}

// Dger is A += alpha x yᵀ for a row-major matrix.
func (i *Implementation) Dger(m, n int, alpha float64, x []float64, incX int, y []float64, incY int, a []float64, lda int) {
	switch {
	case i.double.ger(m, n, alpha, x, incX, y, incY, a, lda):
	case incX < 0 || incY < 0:
		i.Implementation.Dger(m, n, 0, x, incX, y, incY, a, lda) // with alpha 0: only its checks
		gerByRows(i.Implementation.Daxpy, m, n, alpha, x, incX, y, incY, a, lda)
	default:
		i.Implementation.Dger(m, n, alpha, x, incX, y, incY, a, lda)
	}
}

// Saxpy is y += alpha x.
func (i *Implementation) Saxpy(n int, alpha float32, x []float32, incX int, y []float32, incY int) {
	if !i.single.axpy(n, alpha, x, incX, y, incY) {
		i.Implementation.Saxpy(n, alpha, x, incX, y, incY)
	}
}

// Daxpy is y += alpha x.
func (i *Implementation) Daxpy(n int, alpha float64, x []float64, incX int, y []float64, incY int) {
	if !i.double.axpy(n, alpha, x, incX, y, incY) {
		i.Implementation.Daxpy(n, alpha, x, incX, y, incY)
	}
}

// Sdot is the sum of x[i] y[i].
func (i *Implementation) Sdot(n int, x []float32, incX int, y []float32, incY int) float32 {
	if sum, ok := i.single.dot(n, x, incX, y, incY); ok {
		return sum
	}
	return i.Implementation.Sdot(n, x, incX, y, incY)
}

// Ddot is the sum of x[i] y[i].
func (i *Implementation) Ddot(n int, x []float64, incX int, y []float64, incY int) float64 {
	if sum, ok := i.double.dot(n, x, incX, y, incY); ok {
		return sum
	}
	return i.Implementation.Ddot(n, x, incX, y, incY)
}

// Sscal is x *= alpha.
func (i *Implementation) Sscal(n int, alpha float32, x []float32, incX int) {
	if !i.single.scal(n, alpha, x, incX) {
		i.Implementation.Sscal(n, alpha, x, incX)
	}
}

// Dscal is x *= alpha.
func (i *Implementation) Dscal(n int, alpha float64, x []float64, incX int) {
	if !i.double.scal(n, alpha, x, incX) {
		i.Implementation.Dscal(n, alpha, x, incX)
	}
}

// elements returns a contiguous y up to its last element: gonum v0.17's Sgemv, with a transpose and
// beta 0, clears the whole slice (TestGonumSgemvStillNeedsHelp).
func elements(tA blas.Transpose, m, n int, y []float32, incY int) []float32 {
	length := n
	if tA == blas.NoTrans {
		length = m
	}
	if incY == 1 && length >= 0 && length < len(y) {
		return y[:length]
	}
	return y
}

// gerByRows is ger for negative increments. gonum v0.17's assembly for amd64 starts outside of the
// vectors (TestGonumGerStillNeedsHelp). The arguments are checked.
func gerByRows[T real](axpy func(n int, alpha T, x []T, incX int, y []T, incY int), m, n int, alpha T, x []T, incX int, y []T, incY int, a []T, lda int) {
	if n == 0 {
		return // a may be empty
	}
	at := 0
	if incX < 0 {
		at = (1 - m) * incX
	}
	for row := range m {
		axpy(n, alpha*x[at], y, incY, a[row*lda:row*lda+n], 1)
		at += incX
	}
}
