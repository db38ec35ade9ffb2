package hostexec

import (
	"math"
	"unsafe"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// width is the number of partial results of a row, which are then joined, half onto half. All
// instruction sets use the same, so that they give the same bits.
const width = 64

// shortRow is the longest row that is reduced element by element.
const shortRow = 16

// neutral returns the reduction of nothing.
func neutral[T real](red program.Reduction) T {
	if red == program.Max {
		return T(math.Inf(-1))
	}
	return 0
}

// joiner returns the primitive of a reduction.
func joiner(red program.Reduction) vecOp {
	if red == program.Max {
		return opMaximum
	}
	return opAdd
}

func join[T real](red program.Reduction, a, b T) T {
	if red == program.Max {
		return max(a, b)
	}
	return a + b
}

// reducer reduces rows.
type reducer[T real] struct {
	prims[T]
	red program.Reduction
	op  vecOp
}

func newReducer[T real](l *level, red program.Reduction) reducer[T] {
	return reducer[T]{prims[T]{l}, red, joiner(red)}
}

// row returns the reduction of n elements at p.
func (r *reducer[T]) row(w *worker, p unsafe.Pointer, n int) T {
	if n <= shortRow {
		return r.short(p, n)
	}
	if size[T]() == 8 {
		acc := unsafe.Pointer(&w.lanes)
		r.clear(acc)
		r.more(w, acc, p, n)
		return r.close(acc)
	}
	op := opSum
	if r.red == program.Max {
		op = opMax
	}
	to := unsafe.Pointer(&w.line)
	r.do(w, op, n, to, p, p, 1, 1)
	return *(*T)(to)
}

func (r *reducer[T]) short(p unsafe.Pointer, n int) T {
	x := neutral[T](r.red)
	for _, y := range unsafe.Slice((*T)(p), n) {
		x = join(r.red, x, y)
	}
	return x
}

// clear starts a row.
func (r *reducer[T]) clear(acc unsafe.Pointer) {
	x, lanes := neutral[T](r.red), unsafe.Slice((*T)(acc), width)
	for i := range lanes {
		lanes[i] = x
	}
}

// more continues a row: lane i takes the elements i, i+width, ...
func (r *reducer[T]) more(w *worker, acc, p unsafe.Pointer, n int) {
	if size[T]() == 8 { // assembly has no folds of float64
		for at := 0; at < n; at += width {
			r.do(w, r.op, min(width, n-at), acc, acc, unsafe.Add(p, at*size[T]()), 1, 1)
		}
		return
	}
	op := opFoldSum
	if r.red == program.Max {
		op = opFoldMax
	}
	r.do(w, op, n, acc, p, p, 1, 1)
}

// close joins the lanes of a row.
func (r *reducer[T]) close(acc unsafe.Pointer) T {
	return joined(r.red, unsafe.Slice((*T)(acc), width))
}

// joined joins lanes, half onto half.
func joined[T real](red program.Reduction, lanes []T) T {
	for n := len(lanes) / 2; n > 0; n /= 2 {
		for i := range n {
			lanes[i] = join(red, lanes[i], lanes[n+i])
		}
	}
	return lanes[0]
}
