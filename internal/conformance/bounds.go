package conformance

import (
	"fmt"
	"math"
	"math/big"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// loose reports whether the results of c are compared with a bound: data that rounds, in a
// reduction of unknown order.
func (o Options) loose(c scenario) bool {
	rounds := c.data == random || c.data == gentle
	return o.AnyOrder && c.kind.Reduces() && c.dt.IsFloat() && rounds && c.red != dist.RedMin && c.red != dist.RedMax
}

// rounding returns the kind of data that rounds for red. The partial products of any order must
// stay in the range of the type.
func (o Options) rounding(red dist.RedKind) dataKind {
	if o.AnyOrder && red == dist.RedProd {
		return gentle
	}
	return random
}

// unit returns the unit roundoff of a floating-point type: half the distance from 1 to the next
// number.
func unit(dt tensor.DType) float64 {
	switch dt {
	case tensor.F64:
		return 0x1p-53
	case tensor.F32:
		return 0x1p-24
	case tensor.F16:
		return 0x1p-11
	}
	return 0x1p-8 // bf16
}

// roundings returns the largest number of roundings on any term's path into the result of a
// reduction of n ranks.
//
// A tree of n-1 additions of any shape has at most n-1 on the path from a term to the root (Higham,
// Accuracy and Stability of Numerical Algorithms, 2nd ed., section 4.2); the same holds for n-1
// products. One more rounding converts an accumulator of another type to the element. The scaling
// of premulsum is one more. A mean adds two: a division, or a scaling by 1/n, which is itself
// rounded.
func roundings(red dist.RedKind, n int) int {
	switch red {
	case dist.RedPreMulSum:
		return n + 1
	case dist.RedAvg:
		return n + 2
	}
	return n
}

// tolerance returns the largest distance of a result from the exact one. magnitude is the sum of
// the magnitudes of the terms, or the magnitude of a product. Let u be the unit roundoff, with k
// roundings on a path, each a factor of 1+d with |d| <= u. The error of a sum is then at most g(k)
// = k*u/(1-k*u) times the sum of magnitudes, and that of a product g(k) times the product (Higham,
// lemma 3.1 and section 4.2). No term or partial product leaves the normal range of its type:
// inputs and scalars are between 2^-4 and 2^5, factors of a product between 1/2 and 2. A sum that
// cancels below that range is exact.
//
// The accumulator is assumed to have the element's own type, the smallest that libraries use.
func tolerance(dt tensor.DType, red dist.RedKind, n int, magnitude float64) float64 {
	ku := float64(roundings(red, n)) * unit(dt)
	return magnitude * ku / (1 - ku)
}

// precision holds every sum and product of 16 numbers of 53 bits in the ranges above exactly.
const precision = 1200

// reduceExactly returns the reduction of column without rounding, and the magnitude for its
// tolerance.
func reduceExactly(dt tensor.DType, red dist.RedKind, column, scalars []uint64) (value *big.Float, magnitude float64) {
	term := func(r int) *big.Float {
		x := new(big.Float).SetPrec(precision).SetFloat64(asFloat(dt, column[r]))
		if red == dist.RedPreMulSum {
			x.Mul(x, new(big.Float).SetPrec(precision).SetFloat64(asFloat(dt, scalars[r])))
		}
		return x
	}
	value = term(0)
	magnitude, _ = new(big.Float).Abs(value).Float64()
	for r := 1; r < len(column); r++ {
		x := term(r)
		size, _ := new(big.Float).Abs(x).Float64()
		if red == dist.RedProd {
			value.Mul(value, x)
			magnitude *= size
			continue
		}
		value.Add(value, x)
		magnitude += size
	}
	if red == dist.RedAvg { // the only inexact operation here; its error is negligible against the bound
		n := float64(len(column))
		value.Quo(value, new(big.Float).SetPrec(precision).SetFloat64(n))
		magnitude /= n
	}
	return value, magnitude
}

// near reports the first of the n elements of dst that is farther from the exact result of c than
// any order allows.
func (s *suite) near(c scenario, dst tensor.Buffer, n int) error {
	raw, column, scalars := s.load(dst), make([]uint64, s.n), factors(c.data, c.dt, s.n)
	for i := range n {
		s.gather(c, i, column)
		if err := nearOne(c.dt, c.red, get(raw, c.dt, i), column, scalars); err != nil {
			return fmt.Errorf("element %d is %w", i, err)
		}
	}
	return nil
}

// nearOne returns an error unless some order of rounding may give got.
func nearOne(dt tensor.DType, red dist.RedKind, got uint64, column, scalars []uint64) error {
	value := asFloat(dt, got)
	want, magnitude := reduceExactly(dt, red, column, scalars)
	text := func(format string, args ...any) error {
		about, _ := want.Float64()
		return fmt.Errorf("%v (%#x), want %v: %s", value, got, about, fmt.Sprintf(format, args...))
	}
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return text("it is not a number")
	}
	off := new(big.Float).SetPrec(precision).SetFloat64(value)
	off.Abs(off.Sub(off, want))
	bound := tolerance(dt, red, len(column), magnitude)
	if off.Cmp(new(big.Float).SetFloat64(bound)) > 0 {
		far, _ := off.Float64()
		return text("off by %.3g, %d roundings allow %.3g", far, roundings(red, len(column)), bound)
	}
	return nil
}

// fmin reports the first of the n elements of dst that differs from C's minimum or maximum of the
// column.
func (s *suite) fmin(c scenario, dst tensor.Buffer, n int) error {
	raw, column := s.load(dst), make([]uint64, s.n)
	for i := range n {
		s.gather(c, i, column)
		got, want := asFloat(c.dt, get(raw, c.dt, i)), fminOf(c.dt, c.red, column)
		if got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			return fmt.Errorf("element %d is %v, want %v", i, got, want)
		}
	}
	return nil
}

// fminOf returns the least or largest number of a column; NaN if it has none (ISO C, F.10.9.2 and
// F.10.9.3).
func fminOf(dt tensor.DType, red dist.RedKind, column []uint64) float64 {
	acc := math.NaN()
	for _, bits := range column {
		switch x := asFloat(dt, bits); {
		case math.IsNaN(x):
		case math.IsNaN(acc), red == dist.RedMin && x < acc, red == dist.RedMax && x > acc:
			acc = x
		}
	}
	return acc
}

// others returns the kinds of data for a reduction, except exact.
func (o Options) others(red dist.RedKind, dt tensor.DType) []dataKind {
	kinds := []dataKind{o.rounding(red)}
	if dt.IsFloat() {
		kinds = append(kinds, special)
	}
	return kinds
}
