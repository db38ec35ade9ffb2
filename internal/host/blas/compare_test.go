package blas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/blas"
)

// level is one element type's routines of an implementation, so that the tests are written once for
// both types.
type level[T real] struct {
	gemm func(tA, tB blas.Transpose, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int)
	gemv func(tA blas.Transpose, m, n int, alpha T, a []T, lda int, x []T, incX int, beta T, y []T, incY int)
	ger  func(m, n int, alpha T, x []T, incX int, y []T, incY int, a []T, lda int)
	axpy func(n int, alpha T, x []T, incX int, y []T, incY int)
	scal func(n int, alpha T, x []T, incX int)
	dot  func(n int, x []T, incX int, y []T, incY int) T
}

type both interface {
	blas.Float32
	blas.Float64
}

func single(b both) level[float32] {
	return level[float32]{b.Sgemm, b.Sgemv, b.Sger, b.Saxpy, b.Sscal, b.Sdot}
}

func double(b both) level[float64] {
	return level[float64]{b.Dgemm, b.Dgemv, b.Dger, b.Daxpy, b.Dscal, b.Ddot}
}

var transposes = []blas.Transpose{blas.NoTrans, blas.Trans, blas.ConjTrans}

// unitRoundoff is u: one operation is off by at most a factor 1 + u.
func unitRoundoff[T real]() float64 {
	var zero T
	if _, ok := any(zero).(float32); ok {
		return 0x1p-24
	}
	return 0x1p-53
}

// bound is how far two ways of computing alpha sum(products) + beta c may be apart. Each is within
// (terms + 3) u of the exact value, relative to the same sum over absolute values, to first order
// in u (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1), whatever the order of
// summation; the factor 2.1 is for the two of them and for the higher orders.
func bound[T real](terms int, alpha, absSum, beta, absC float64) float64 {
	return 2.1 * float64(terms+3) * unitRoundoff[T]() * (math.Abs(alpha)*absSum + math.Abs(beta)*absC)
}

// matrix is rows by cols with a leading dimension, NaN between the rows: no routine
// may read those elements.
func matrix[T real](r *rand.Rand, rows, cols, ld int) []T {
	m := make([]T, max(0, (rows-1)*ld+cols))
	for i := range m {
		m[i] = T(math.NaN())
		if i%ld < cols {
			m[i] = T(r.NormFloat64())
		}
	}
	return m
}

// vector has n elements inc apart, NaN between them.
func vector[T real](r *rand.Rand, n, inc int) []T { return matrix[T](r, n, 1, max(inc, -inc)) }

// sameBits tells whether two elements are the same, NaN included.
func sameBits[T real](a, b T) bool { return a == b || a != a && b != b }

// at is an element of op(A).
func at[T real](trans blas.Transpose, a []T, ld, i, j int) float64 {
	if trans != blas.NoTrans {
		i, j = j, i
	}
	return float64(a[i*ld+j])
}

// comparer runs random arguments through two implementations.
type comparer[T real] struct {
	t          *testing.T
	r          *rand.Rand
	got, want  level[T]
	increments []int
}

func (cp *comparer[T]) increment() int { return cp.increments[cp.r.IntN(len(cp.increments))] }

func (cp *comparer[T]) gemm(m, n, k int) {
	t, r := cp.t, cp.r
	t.Helper()
	tA, tB := transposes[r.IntN(3)], transposes[r.IntN(3)]
	alpha, beta := []T{1, -0.75, 0}[r.IntN(3)], []T{0, 1, 1.5}[r.IntN(3)]
	rowsA, colsA, rowsB, colsB := m, k, k, n
	if tA != blas.NoTrans {
		rowsA, colsA = k, m
	}
	if tB != blas.NoTrans {
		rowsB, colsB = n, k
	}
	lda, ldb, ldc := max(1, colsA)+r.IntN(3), max(1, colsB)+r.IntN(3), max(1, n)+r.IntN(3)
	a, b, c := matrix[T](r, rowsA, colsA, lda), matrix[T](r, rowsB, colsB, ldb), matrix[T](r, m, n, ldc)
	old, ref := append([]T(nil), c...), append([]T(nil), c...)
	cp.got.gemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
	cp.want.gemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, ref, ldc)
	for at1 := range c {
		i, j := at1/ldc, at1%ldc
		if j >= n {
			if !sameBits(c[at1], old[at1]) {
				t.Fatalf("%c%c %dx%dx%d ld %d %d %d: wrote behind row %d", tA, tB, m, n, k, lda, ldb, ldc, i)
			}
			continue
		}
		sum := 0.0
		for p := range k {
			sum += math.Abs(at(tA, a, lda, i, p) * at(tB, b, ldb, p, j))
		}
		limit := bound[T](k, float64(alpha), sum, float64(beta), math.Abs(float64(old[at1])))
		if diff := math.Abs(float64(c[at1]) - float64(ref[at1])); !(diff <= limit) {
			t.Fatalf("%c%c %dx%dx%d ld %d %d %d alpha %v beta %v: C[%d,%d] = %v, gonum %v, off by %g, bound %g",
				tA, tB, m, n, k, lda, ldb, ldc, alpha, beta, i, j, c[at1], ref[at1], diff, limit)
		}
	}
}

func (cp *comparer[T]) gemv(m, n int) {
	t, r := cp.t, cp.r
	t.Helper()
	tA := transposes[r.IntN(3)]
	alpha, beta := []T{1, -0.75, 0}[r.IntN(3)], []T{0, 1, 1.5}[r.IntN(3)]
	lenX, lenY := n, m
	if tA != blas.NoTrans {
		lenX, lenY = m, n
	}
	lda, incX, incY := n+r.IntN(3), cp.increment(), cp.increment()
	a, x, y := matrix[T](r, m, n, lda), vector[T](r, lenX, incX), vector[T](r, lenY, incY)
	old, ref := append([]T(nil), y...), append([]T(nil), y...)
	cp.got.gemv(tA, m, n, alpha, a, lda, x, incX, beta, y, incY)
	cp.want.gemv(tA, m, n, alpha, a, lda, x, incX, beta, ref, incY)
	for at1 := range y {
		if at1%max(incY, -incY) != 0 {
			if !sameBits(y[at1], old[at1]) {
				t.Fatalf("%c %dx%d incY %d: wrote between the elements", tA, m, n, incY)
			}
			continue
		}
		i := element(at1, lenY, incY)
		sum := 0.0
		for j := range lenX {
			sum += math.Abs(at(tA, a, lda, i, j) * float64(x[offset(j, lenX, incX)]))
		}
		limit := bound[T](lenX, float64(alpha), sum, float64(beta), math.Abs(float64(old[at1])))
		if diff := math.Abs(float64(y[at1]) - float64(ref[at1])); !(diff <= limit) {
			t.Fatalf("%c %dx%d lda %d inc %d %d alpha %v beta %v: y[%d] = %v, gonum %v, off by %g, bound %g",
				tA, m, n, lda, incX, incY, alpha, beta, i, y[at1], ref[at1], diff, limit)
		}
	}
}

func (cp *comparer[T]) ger(m, n int) {
	t, r := cp.t, cp.r
	t.Helper()
	alpha := []T{1, -0.75, 0}[r.IntN(3)]
	lda, incX, incY := n+r.IntN(3), cp.increment(), cp.increment()
	a, x, y := matrix[T](r, m, n, lda), vector[T](r, m, incX), vector[T](r, n, incY)
	old, ref := append([]T(nil), a...), append([]T(nil), a...)
	cp.got.ger(m, n, alpha, x, incX, y, incY, a, lda)
	cp.want.ger(m, n, alpha, x, incX, y, incY, ref, lda)
	for at1 := range a {
		i, j := at1/lda, at1%lda
		if j >= n {
			if !sameBits(a[at1], old[at1]) {
				t.Fatalf("%dx%d lda %d: wrote behind row %d", m, n, lda, i)
			}
			continue
		}
		product := math.Abs(float64(x[offset(i, m, incX)]) * float64(y[offset(j, n, incY)]))
		limit := bound[T](1, float64(alpha), product, 1, math.Abs(float64(old[at1])))
		if diff := math.Abs(float64(a[at1]) - float64(ref[at1])); !(diff <= limit) {
			t.Fatalf("%dx%d lda %d inc %d %d: A[%d,%d] = %v, gonum %v, off by %g, bound %g", m, n, lda, incX, incY, i, j, a[at1], ref[at1], diff, limit)
		}
	}
}

func (cp *comparer[T]) vectors(n int) {
	t, r := cp.t, cp.r
	t.Helper()
	alpha := []T{1, -0.75, 0, 3}[r.IntN(4)]
	incX, incY := cp.increment(), cp.increment()
	x, y := vector[T](r, n, incX), vector[T](r, n, incY)

	sum := 0.0
	for i := range n {
		sum += math.Abs(float64(x[offset(i, n, incX)]) * float64(y[offset(i, n, incY)]))
	}
	d, e := cp.got.dot(n, x, incX, y, incY), cp.want.dot(n, x, incX, y, incY)
	if diff, limit := math.Abs(float64(d)-float64(e)), bound[T](n, 1, sum, 0, 0); !(diff <= limit) {
		t.Fatalf("dot n %d inc %d %d: %v, gonum %v, off by %g, bound %g", n, incX, incY, d, e, diff, limit)
	}

	old, ref := append([]T(nil), y...), append([]T(nil), y...)
	cp.got.axpy(n, alpha, x, incX, y, incY)
	cp.want.axpy(n, alpha, x, incX, ref, incY)
	for at1 := range y {
		limit := 0.0
		if at1%max(incY, -incY) == 0 {
			xi := float64(x[offset(element(at1, n, incY), n, incX)])
			limit = bound[T](1, float64(alpha), math.Abs(xi), 1, math.Abs(float64(old[at1])))
		}
		if diff := math.Abs(float64(y[at1]) - float64(ref[at1])); !sameBits(y[at1], ref[at1]) && !(diff <= limit) {
			t.Fatalf("axpy n %d inc %d %d: y at %d = %v, gonum %v, off by %g, bound %g", n, incX, incY, at1, y[at1], ref[at1], diff, limit)
		}
	}

	ref = append([]T(nil), x...)
	cp.got.scal(n, alpha, x, incX)
	cp.want.scal(n, alpha, ref, incX)
	for i := range x { // one rounding each: no freedom at all
		if !sameBits(x[i], ref[i]) {
			t.Fatalf("scal n %d inc %d alpha %v: x at %d = %v, gonum %v", n, incX, alpha, i, x[i], ref[i])
		}
	}
}

// offset is where element i of n lies; with a negative increment the first is the last in memory.
func offset(i, n, inc int) int {
	if inc < 0 {
		return (i - n + 1) * inc
	}
	return i * inc
}

// element is the inverse of offset.
func element(offset, n, inc int) int {
	if inc < 0 {
		return n - 1 + offset/inc
	}
	return offset / inc
}

func (cp *comparer[T]) all(rounds, size int) {
	cp.t.Helper()
	for range rounds {
		m, n, k := 1+cp.r.IntN(size), 1+cp.r.IntN(size), 1+cp.r.IntN(size)
		cp.gemm(m, n, k)
		cp.gemv(m, n)
		cp.ger(m, n)
		cp.vectors(m * n)
	}
	for _, dims := range [][3]int{{0, 3, 2}, {3, 0, 2}, {3, 2, 0}, {0, 0, 0}, {1, 1, 1}} { // gemm takes empty operands
		for range 8 {
			cp.gemm(dims[0], dims[1], dims[2])
		}
	}
}

var forward, anyway = []int{1, 1, 2, 3}, []int{1, 2, 3, -1, -2}

func TestResultsEqualGonumsWithinTheBound(t *testing.T) {
	for _, threads := range []int{1, 2} {
		t.Run(fmt.Sprintf("threads=%d", threads), func(t *testing.T) {
			eachLibrary(t, threads, func(t *testing.T, impl *Implementation) {
				s := comparer[float32]{t, rand.New(rand.NewPCG(1, 2)), single(impl), single(impl.Implementation), forward}
				d := comparer[float64]{t, rand.New(rand.NewPCG(3, 4)), double(impl), double(impl.Implementation), forward}
				s.all(250, 24)
				d.all(250, 24)
				// Past the libraries' blocking and their thresholds for threads.
				s.all(4, 300)
				d.all(4, 300)
			})
		})
	}
}

func TestResultsEqualTheDefinition(t *testing.T) {
	eachLibrary(t, 1, func(t *testing.T, impl *Implementation) {
		s := comparer[float32]{t, rand.New(rand.NewPCG(5, 6)), single(impl), definition[float32](), anyway}
		d := comparer[float64]{t, rand.New(rand.NewPCG(7, 8)), double(impl), definition[float64](), anyway}
		s.all(250, 24)
		d.all(250, 24)
	})
	t.Run("gonum", func(t *testing.T) {
		impl := mustOpen(t, Config{Disable: true})
		s := comparer[float32]{t, rand.New(rand.NewPCG(5, 6)), single(impl), definition[float32](), anyway}
		d := comparer[float64]{t, rand.New(rand.NewPCG(7, 8)), double(impl), definition[float64](), anyway}
		s.all(250, 24)
		d.all(250, 24)
	})
}

// The thresholds hand sizes on both sides of them to different code.
func TestResultsEqualGonumsAroundTheThresholds(t *testing.T) {
	for _, k := range known(nil) {
		t.Run(k.Name, func(t *testing.T) {
			impl := installedLibrary(t, k, 1)
			s := comparer[float32]{t, rand.New(rand.NewPCG(9, 10)), single(impl), single(impl.Implementation), forward}
			d := comparer[float64]{t, rand.New(rand.NewPCG(11, 12)), double(impl), double(impl.Implementation), forward}
			s.all(60, 48)
			d.all(60, 48)
			for _, n := range []int{511, 512, 1023, 1024, 2047, 2048, 16383, 16384, 32767, 32768} {
				s.vectors(n)
				d.vectors(n)
			}
		})
	}
}
