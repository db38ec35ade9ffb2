package blas

import (
	"fmt"
	"slices"
	"unsafe"

	"gonum.org/v1/gonum/blas"

	"github.com/symgrad/symgrad/internal/dl"
)

// integer is an argument for a test of the size of Fortran INTEGERs: its 32 bits are value, and its
// 64 bits are negative. Both are harmless.
type integer struct{ value, high int32 }

// checkIntegers scales one number by two. A library with 32-bit integers does. One with 64-bit
// integers sees a negative length and returns, by the BLAS standard. Only then is it safe to pass a
// frame, whose integers are adjacent.
func checkIntegers(t table) error {
	type arguments struct {
		n, inc integer
		s      [2]float32
		d      [2]float64
	}
	a := &arguments{n: integer{1, -1}, inc: integer{1, -1}, s: [2]float32{2, 21}, d: [2]float64{2, 21}}
	if err := scale(t.sscal, &a.n, unsafe.Pointer(&a.s[0]), unsafe.Pointer(&a.s[1]), &a.inc); err != nil {
		return err
	}
	if err := scale(t.dscal, &a.n, unsafe.Pointer(&a.d[0]), unsafe.Pointer(&a.d[1]), &a.inc); err != nil {
		return err
	}
	switch {
	case a.s[1] == 21 && a.d[1] == 21:
		return errInt64
	case a.s[1] != 42 || a.d[1] != 42:
		return fmt.Errorf("%w: sscal and dscal make %v and %v of 2 times 21", ErrRejected, a.s[1], a.d[1])
	}
	return nil
}

func scale(p dl.Proc, n *integer, alpha, x unsafe.Pointer, inc *integer) error {
	_, err := p.Call(uintptr(unsafe.Pointer(n)), uintptr(alpha), uintptr(x), uintptr(unsafe.Pointer(inc)))
	return err
}

// checkResults runs each routine once on small whole numbers, whose results are exact in any order
// of summation, and compares with gonum. So a library with an unexpected calling convention is
// found before a user's model calls it.
func checkResults(i *Implementation) error {
	checks := []struct {
		name string
		ok   bool
	}{
		{"sgemm", gemmAgrees(i.Sgemm, i.Implementation.Sgemm)},
		{"dgemm", gemmAgrees(i.Dgemm, i.Implementation.Dgemm)},
		{"sgemv", gemvAgrees(i.Sgemv, i.Implementation.Sgemv)},
		{"dgemv", gemvAgrees(i.Dgemv, i.Implementation.Dgemv)},
		{"sger", gerAgrees(i.Sger, i.Implementation.Sger)},
		{"dger", gerAgrees(i.Dger, i.Implementation.Dger)},
		{"saxpy", axpyAgrees(i.Saxpy, i.Implementation.Saxpy)},
		{"daxpy", axpyAgrees(i.Daxpy, i.Implementation.Daxpy)},
		{"sdot", dotAgrees(i.Sdot, i.Implementation.Sdot)},
		{"ddot", dotAgrees(i.Ddot, i.Implementation.Ddot)},
	}
	for _, c := range checks {
		if !c.ok {
			return fmt.Errorf("%w: %s computes wrong numbers", ErrRejected, c.name)
		}
	}
	return nil
}

// whole returns the numbers 1, 2, 3 ... n.
func whole[T real](n int) []T {
	v := make([]T, n)
	for i := range v {
		v[i] = T(i + 1)
	}
	return v
}

func gemmAgrees[T real](got, want func(tA, tB blas.Transpose, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int)) bool {
	const m, n, k, ld = 2, 3, 4, 5
	for _, tA := range []blas.Transpose{blas.NoTrans, blas.Trans} {
		for _, tB := range []blas.Transpose{blas.NoTrans, blas.Trans} {
			c, d := whole[T](ld*ld), whole[T](ld*ld)
			got(tA, tB, m, n, k, 2, whole[T](ld*ld), ld, whole[T](ld*ld), ld, 3, c, ld)
			want(tA, tB, m, n, k, 2, whole[T](ld*ld), ld, whole[T](ld*ld), ld, 3, d, ld)
			if !slices.Equal(c, d) {
				return false
			}
		}
	}
	return true
}

func gemvAgrees[T real](got, want func(tA blas.Transpose, m, n int, alpha T, a []T, lda int, x []T, incX int, beta T, y []T, incY int)) bool {
	const m, n, ld = 2, 3, 5
	for _, tA := range []blas.Transpose{blas.NoTrans, blas.Trans} {
		y, z := whole[T](9), whole[T](9)
		got(tA, m, n, 2, whole[T](ld*ld), ld, whole[T](9), 2, 3, y, 3)
		want(tA, m, n, 2, whole[T](ld*ld), ld, whole[T](9), 2, 3, z, 3)
		if !slices.Equal(y, z) {
			return false
		}
	}
	return true
}

func gerAgrees[T real](got, want func(m, n int, alpha T, x []T, incX int, y []T, incY int, a []T, lda int)) bool {
	const m, n, ld = 2, 3, 5
	a, b := whole[T](ld*ld), whole[T](ld*ld)
	got(m, n, 2, whole[T](9), 2, whole[T](9), 3, a, ld)
	want(m, n, 2, whole[T](9), 2, whole[T](9), 3, b, ld)
	return slices.Equal(a, b)
}

func axpyAgrees[T real](got, want func(n int, alpha T, x []T, incX int, y []T, incY int)) bool {
	y, z := whole[T](9), whole[T](9)
	got(3, 2, whole[T](9), 2, y, 3)
	want(3, 2, whole[T](9), 2, z, 3)
	return slices.Equal(y, z)
}

func dotAgrees[T real](got, want func(n int, x []T, incX int, y []T, incY int) T) bool {
	return got(4, whole[T](9), 1, whole[T](9), 2) == want(4, whole[T](9), 1, whole[T](9), 2)
}
