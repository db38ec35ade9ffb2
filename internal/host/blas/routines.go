package blas

import (
	"math"
	"unsafe"

	"gonum.org/v1/gonum/blas"
)

// real is the two element types that have all of the routines below.
type real interface{ float32 | float64 }

// routines are a library's routines for one element type; the zero value takes no call. Each method
// reports whether it did the work. It leaves calls to gonum, which computes or panics, if the
// library is not safe or not faster:
//
//   - arguments that gonum panics on;
//   - empty operands and alpha == 0, for which libraries differ in their reads and writes;
//   - negative increments;
//   - sizes beyond 32 bits, and those below the thresholds, for which a foreign call costs more
//     than it saves.
//
// Row-major to column-major only changes names: a row-major matrix is the column-major transpose of
// itself, with the same leading dimension.
type routines[T real] struct {
	foreign bool
	least   thresholds
	frames  framePool[T]

	gemmProc, gemvProc, gerProc, axpyProc, scalProc entry
	dotFunc                                         dotEntry[T]
}

func isTrans(t blas.Transpose) (trans, ok bool) {
	return t != blas.NoTrans, t == blas.NoTrans || t == blas.Trans || t == blas.ConjTrans
}

// positive32 reports, given an OR of ints, whether each was at least 0 and at most the largest
// Fortran INTEGER.
func positive32(or int) bool { return or >= 0 && or <= math.MaxInt32 }

// holds reports whether a slice of length n has count >= 1 elements, inc >= 1 apart, all within the
// range of a Fortran INTEGER index. The product cannot overflow: both factors have 32 bits.
func holds(n, count, inc int) bool {
	last := (count - 1) * inc
	return last < n && last <= math.MaxInt32
}

// flag returns the TRANS argument of a column-major routine for a row-major matrix.
func flag(trans bool) byte {
	if trans {
		return 'T'
	}
	return 'N'
}

// gemm computes Cᵀ = alpha op(B)ᵀ op(A)ᵀ + beta Cᵀ in column-major order.
func (r *routines[T]) gemm(tA, tB blas.Transpose, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int) bool {
	transA, okA := isTrans(tA)
	transB, okB := isTrans(tB)
	if !r.foreign || !okA || !okB || alpha == 0 || m <= 0 || n <= 0 || k <= 0 || !positive32(m|n|k|lda|ldb|ldc) {
		return false
	}
	rowsA, colsA, rowsB, colsB := m, k, k, n
	if transA {
		rowsA, colsA = k, m
	}
	if transB {
		rowsB, colsB = n, k
	}
	if lda < colsA || ldb < colsB || ldc < n ||
		len(a) < (rowsA-1)*lda+colsA || len(b) < (rowsB-1)*ldb+colsB || len(c) < (m-1)*ldc+n {
		return false
	}
	if float64(m)*float64(n)*float64(k) < r.least.gemm {
		return false
	}
	f := r.frames.get()
	f.trans[0], f.trans[1] = flag(transB), flag(transA)
	f.ints = [6]int32{int32(n), int32(m), int32(k), int32(ldb), int32(lda), int32(ldc)}
	f.alpha, f.beta = alpha, beta
	r.gemmProc.call(&f.words,
		uintptr(unsafe.Pointer(&f.trans[0])), uintptr(unsafe.Pointer(&f.trans[1])),
		uintptr(unsafe.Pointer(&f.ints[0])), uintptr(unsafe.Pointer(&f.ints[1])), uintptr(unsafe.Pointer(&f.ints[2])),
		uintptr(unsafe.Pointer(&f.alpha)),
		uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&f.ints[3])),
		uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&f.ints[4])),
		uintptr(unsafe.Pointer(&f.beta)),
		uintptr(unsafe.Pointer(&c[0])), uintptr(unsafe.Pointer(&f.ints[5])),
		1, 1) // the lengths of the two character arguments, which Fortran passes last
	r.frames.put(f)
	return true
}

// gemv calls the column-major routine on Aᵀ, n by m.
func (r *routines[T]) gemv(tA blas.Transpose, m, n int, alpha T, a []T, lda int, x []T, incX int, beta T, y []T, incY int) bool {
	trans, ok := isTrans(tA)
	if !r.foreign || !ok || alpha == 0 || m <= 0 || n <= 0 || incX <= 0 || incY <= 0 || !positive32(m|n|lda|incX|incY) {
		return false
	}
	lenX, lenY := n, m
	if trans {
		lenX, lenY = m, n
	}
	if lda < n || len(a) < (m-1)*lda+n || !holds(len(x), lenX, incX) || !holds(len(y), lenY, incY) || m*n < r.least.gemv {
		return false
	}
	f := r.frames.get()
	f.trans[0] = flag(!trans)
	f.ints = [6]int32{int32(n), int32(m), int32(lda), int32(incX), int32(incY)}
	f.alpha, f.beta = alpha, beta
	r.gemvProc.call(&f.words,
		uintptr(unsafe.Pointer(&f.trans[0])),
		uintptr(unsafe.Pointer(&f.ints[0])), uintptr(unsafe.Pointer(&f.ints[1])),
		uintptr(unsafe.Pointer(&f.alpha)),
		uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&f.ints[2])),
		uintptr(unsafe.Pointer(&x[0])), uintptr(unsafe.Pointer(&f.ints[3])),
		uintptr(unsafe.Pointer(&f.beta)),
		uintptr(unsafe.Pointer(&y[0])), uintptr(unsafe.Pointer(&f.ints[4])),
		1, 0, 0, 0)
	r.frames.put(f)
	return true
}

// ger computes Aᵀ += alpha y xᵀ in column-major order.
func (r *routines[T]) ger(m, n int, alpha T, x []T, incX int, y []T, incY int, a []T, lda int) bool {
	if !r.foreign || alpha == 0 || m <= 0 || n <= 0 || incX <= 0 || incY <= 0 || !positive32(m|n|lda|incX|incY) {
		return false
	}
	if lda < n || len(a) < (m-1)*lda+n || !holds(len(x), m, incX) || !holds(len(y), n, incY) || m*n < r.least.ger {
		return false
	}
	f := r.frames.get()
	f.ints = [6]int32{int32(n), int32(m), int32(incY), int32(incX), int32(lda)}
	f.alpha = alpha
	r.gerProc.call(&f.words,
		uintptr(unsafe.Pointer(&f.ints[0])), uintptr(unsafe.Pointer(&f.ints[1])),
		uintptr(unsafe.Pointer(&f.alpha)),
		uintptr(unsafe.Pointer(&y[0])), uintptr(unsafe.Pointer(&f.ints[2])),
		uintptr(unsafe.Pointer(&x[0])), uintptr(unsafe.Pointer(&f.ints[3])),
		uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&f.ints[4])),
		0, 0, 0, 0, 0, 0)
	r.frames.put(f)
	return true
}

func (r *routines[T]) axpy(n int, alpha T, x []T, incX int, y []T, incY int) bool {
	if !r.foreign || alpha == 0 || n <= 0 || incX <= 0 || incY <= 0 || !positive32(n|incX|incY) ||
		!holds(len(x), n, incX) || !holds(len(y), n, incY) || n < r.least.axpy {
		return false
	}
	f := r.frames.get()
	f.ints = [6]int32{int32(n), int32(incX), int32(incY)}
	f.alpha = alpha
	r.axpyProc.call(&f.words,
		uintptr(unsafe.Pointer(&f.ints[0])),
		uintptr(unsafe.Pointer(&f.alpha)),
		uintptr(unsafe.Pointer(&x[0])), uintptr(unsafe.Pointer(&f.ints[1])),
		uintptr(unsafe.Pointer(&y[0])), uintptr(unsafe.Pointer(&f.ints[2])),
		0, 0, 0, 0, 0, 0, 0, 0, 0)
	r.frames.put(f)
	return true
}

func (r *routines[T]) scal(n int, alpha T, x []T, incX int) bool {
	if !r.foreign || alpha == 0 || n <= 0 || incX <= 0 || !positive32(n|incX) || !holds(len(x), n, incX) || n < r.least.scal {
		return false
	}
	f := r.frames.get()
	f.ints = [6]int32{int32(n), int32(incX)}
	f.alpha = alpha
	r.scalProc.call(&f.words,
		uintptr(unsafe.Pointer(&f.ints[0])),
		uintptr(unsafe.Pointer(&f.alpha)),
		uintptr(unsafe.Pointer(&x[0])), uintptr(unsafe.Pointer(&f.ints[1])),
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	r.frames.put(f)
	return true
}

// dot uses a converted call, because a call with machine words cannot return a float. That costs
// some 200 ns and a few small allocations, so only long vectors use it.
func (r *routines[T]) dot(n int, x []T, incX int, y []T, incY int) (T, bool) {
	if !r.foreign || n <= 0 || incX <= 0 || incY <= 0 || !positive32(n|incX|incY) ||
		!holds(len(x), n, incX) || !holds(len(y), n, incY) || n < r.least.dot {
		return 0, false
	}
	f := r.frames.get()
	f.ints = [6]int32{int32(n), int32(incX), int32(incY)}
	sum := r.dotFunc.call(&f.ints[0], &x[0], &f.ints[1], &y[0], &f.ints[2])
	r.frames.put(f)
	return sum, true
}
