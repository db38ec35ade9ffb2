package blas

import "gonum.org/v1/gonum/blas"

// definition has the routines as the BLAS standard defines them, in plain loops with float64 sums,
// as a second reference in addition to gonum's. The arguments must be valid.
func definition[T real]() level[T] {
	return level[T]{gemm: defGemm[T], gemv: defGemv[T], ger: defGer[T], axpy: defAxpy[T], scal: defScal[T], dot: defDot[T]}
}

// combine returns alpha sum + beta old. A factor of zero means that the other one is not read.
func combine[T real](alpha T, sum float64, beta, old T) T {
	result := 0.0
	if alpha != 0 {
		result = float64(alpha) * sum
	}
	if beta != 0 {
		result += float64(beta) * float64(old)
	}
	return T(result)
}

func defGemm[T real](tA, tB blas.Transpose, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int) {
	for i := range m {
		for j := range n {
			sum := 0.0
			for p := range k {
				sum += at(tA, a, lda, i, p) * at(tB, b, ldb, p, j)
			}
			c[i*ldc+j] = combine(alpha, sum, beta, c[i*ldc+j])
		}
	}
}

func defGemv[T real](tA blas.Transpose, m, n int, alpha T, a []T, lda int, x []T, incX int, beta T, y []T, incY int) {
	lenX, lenY := n, m
	if tA != blas.NoTrans {
		lenX, lenY = m, n
	}
	for i := range lenY {
		sum := 0.0
		for j := range lenX {
			sum += at(tA, a, lda, i, j) * float64(x[offset(j, lenX, incX)])
		}
		out := offset(i, lenY, incY)
		y[out] = combine(alpha, sum, beta, y[out])
	}
}

func defGer[T real](m, n int, alpha T, x []T, incX int, y []T, incY int, a []T, lda int) {
	for i := range m {
		for j := range n {
			product := float64(x[offset(i, m, incX)]) * float64(y[offset(j, n, incY)])
			a[i*lda+j] = combine(alpha, product, 1, a[i*lda+j])
		}
	}
}

func defAxpy[T real](n int, alpha T, x []T, incX int, y []T, incY int) {
	for i := range n {
		out := offset(i, n, incY)
		y[out] = combine(alpha, float64(x[offset(i, n, incX)]), 1, y[out])
	}
}

// defScal does nothing for a negative increment: so has it the standard.
func defScal[T real](n int, alpha T, x []T, incX int) {
	for i := range n {
		if incX > 0 {
			x[i*incX] *= alpha
		}
	}
}

func defDot[T real](n int, x []T, incX int, y []T, incY int) T {
	sum := 0.0
	for i := range n {
		sum += float64(x[offset(i, n, incX)]) * float64(y[offset(i, n, incY)])
	}
	return T(sum)
}
