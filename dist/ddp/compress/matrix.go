package compress

import "math"

// P and Q, matrices of r columns, are stored column by column. Long loops over rows of M then read
// adjacent memory, for four columns at a time: as many sums as a processor needs in flight.

// product sets grad to share*grad + residual and p to its product with q.
func (x *matrix[T]) product(grad []T, share T, p []T) {
	for i := range grad {
		grad[i] *= share
	}
	for i, e := range x.residual {
		grad[i] += T(e)
	}
	n, m := x.n, x.m
	for i := range n {
		row, c := grad[i*m:][:m], 0
		for ; c+4 <= x.r; c += 4 {
			q := x.q[c*m:][:4*m]
			p[c*n+i], p[(c+1)*n+i], p[(c+2)*n+i], p[(c+3)*n+i] = dot4(row, q[:m], q[m:2*m], q[2*m:3*m], q[3*m:])
		}
		for ; c < x.r; c++ {
			p[c*n+i] = dot(row, x.q[c*m:][:m])
		}
	}
}

// project sets x.p to orthonormal columns of the sum p, q to this rank's transposed product with
// them, and the residual to the rest of grad. If p is not finite, on all ranks then, q becomes NaN
// and nothing else changes.
func (x *matrix[T]) project(grad, p, q []T) {
	x.lost, x.moved = !finite(p), false
	if x.lost {
		for i := range q {
			q[i] = T(math.NaN())
		}
		return
	}
	x.orthonormal(p)
	clear(q)
	n, m := x.n, x.m
	for i := range n {
		row, c := grad[i*m:][:m], 0
		for ; c+4 <= x.r; c += 4 {
			to := q[c*m:][:4*m]
			add4(to[:m], to[m:2*m], to[2*m:3*m], to[3*m:], row, x.p[c*n+i], x.p[(c+1)*n+i], x.p[(c+2)*n+i], x.p[(c+3)*n+i])
		}
		for ; c < x.r; c++ {
			addTo(q[c*m:][:m], row, x.p[c*n+i])
		}
	}
	if x.residual == nil {
		return
	}
	x.moved = true
	for i := range n {
		x.rowOf(x.row, i, q)
		left := x.residual[i*m:][:m]
		for j, v := range grad[i*m:][:m] {
			rest := float32(v - x.row[j])
			if rest-rest != 0 {
				rest = 0 // the sum is not finite either, and the step is undone; or the rest is too large
			}
			left[j] = rest
		}
	}
}

// warm sets the next step's Q. It scales each column by a power of two, by its largest element.
// That keeps the next step's sums in range, and does not change the base made of them.
func (x *matrix[T]) warm(q []T) {
	copy(x.q, q)
	for c := range x.r {
		column := x.q[c*x.m:][:x.m]
		var largest T
		for _, v := range column {
			largest = max(largest, v, -v)
		}
		_, exponent := math.Frexp(float64(largest))
		by := T(math.Ldexp(1, -exponent))
		if by-by != 0 || by == 0 {
			continue
		}
		for j := range column {
			column[j] *= by
		}
	}
}

// restore sets grad to the product of x.p and the sum q. A finite q is the next step's.
func (x *matrix[T]) restore(grad, q []T) {
	if x.lost || !finite(q) {
		for i := range grad {
			grad[i] = T(math.NaN())
		}
		return
	}
	x.warm(q)
	for i := range x.n {
		x.rowOf(grad[i*x.m:][:x.m], i, q)
	}
}

// rowOf sets to to row i of the product of x.p and q.
func (x *matrix[T]) rowOf(to []T, i int, q []T) {
	clear(to)
	n, m, c := x.n, x.m, 0
	for ; c+4 <= x.r; c += 4 {
		from := q[c*m:][:4*m]
		mix4(to, from[:m], from[m:2*m], from[2*m:3*m], from[3*m:], x.p[c*n+i], x.p[(c+1)*n+i], x.p[(c+2)*n+i], x.p[(c+3)*n+i])
	}
	for ; c < x.r; c++ {
		addTo(to, q[c*m:][:m], x.p[c*n+i])
	}
}

// Products are rounded before they are added, so that no compiler fuses them: ranks may run on
// different processors.

func dot[T float32 | float64](a, b []T) T {
	var sum T
	b = b[:len(a)]
	for i, v := range a {
		sum += T(v * b[i])
	}
	return sum
}

// dot4 returns four products with one row.
func dot4[T float32 | float64](row, a, b, c, d []T) (w, x, y, z T) {
	a, b, c, d = a[:len(row)], b[:len(row)], c[:len(row)], d[:len(row)]
	for j, v := range row {
		w += T(v * a[j])
		x += T(v * b[j])
		y += T(v * c[j])
		z += T(v * d[j])
	}
	return w, x, y, z
}

// addTo computes to += f*row.
func addTo[T float32 | float64](to, row []T, f T) {
	to = to[:len(row)]
	for j, v := range row {
		to[j] += T(f * v)
	}
}

// add4 is addTo for four.
func add4[T float32 | float64](a, b, c, d, row []T, w, x, y, z T) {
	a, b, c, d = a[:len(row)], b[:len(row)], c[:len(row)], d[:len(row)]
	for j, v := range row {
		a[j] += T(w * v)
		b[j] += T(x * v)
		c[j] += T(y * v)
		d[j] += T(z * v)
	}
}

// mix4 computes to += w*a + x*b + y*c + z*d.
func mix4[T float32 | float64](to, a, b, c, d []T, w, x, y, z T) {
	a, b, c, d = a[:len(to)], b[:len(to)], c[:len(to)], d[:len(to)]
	for j := range to {
		to[j] += T(w*a[j]) + T(x*b[j]) + T(y*c[j]) + T(z*d[j])
	}
}

func finite[T float32 | float64](s []T) bool {
	for _, v := range s {
		if v-v != 0 {
			return false
		}
	}
	return true
}

// leastPart is the least length of a column, relative to before its projection on earlier columns
// is subtracted, at which it has a direction of its own: float32 has 24 bits.
const leastPart = 0x1p-20

// orthonormal sets x.p to an orthonormal base of the columns of p, by the modified Gram-Schmidt
// process, twice, in float64. A column that depends on earlier ones becomes zero.
func (x *matrix[T]) orthonormal(p []T) {
	n, r := x.n, x.r
	for c := range r {
		col := x.columns[c*n:][:n]
		for i := range col {
			col[i] = float64(p[c*n+i])
		}
		whole := norm(col)
		for range 2 {
			for b := range c {
				before := x.columns[b*n:][:n]
				along := dot(before, col)
				for i, v := range before {
					col[i] -= float64(along * v)
				}
			}
		}
		length := norm(col)
		if !(length > leastPart*whole) {
			clear(col)
			continue
		}
		for i := range col {
			col[i] /= length
		}
	}
	for c := range r {
		for i, v := range x.columns[c*n:][:n] {
			x.p[c*n+i] = T(v)
		}
	}
}

// norm returns the root of the sum of squares, scaled so that nothing overflows or underflows.
func norm(s []float64) float64 {
	largest := 0.0
	for _, v := range s {
		largest = max(largest, math.Abs(v))
	}
	if largest == 0 {
		return 0
	}
	sum := 0.0
	for _, v := range s {
		sum += float64(v / largest * (v / largest))
	}
	return largest * math.Sqrt(sum)
}
