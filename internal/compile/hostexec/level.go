package hostexec

import "unsafe"

// level is the kernels of one instruction set. All levels give the same bits, except for matrix
// products: fused multiply-adds round less often than plain Go.
type level struct {
	name string
	has  bool
	wide bool // faster products than a library's: see BenchmarkMatMul

	f32, f64       func(*vecArgs) // the primitives before plainOps; f64 has no functions
	gemm32, gemm64 micro
	copy2, add2    func(dst, src unsafe.Pointer, dstStep, srcStep, rows, bytes int) // rectangles of float32
	uniform        func(dst unsafe.Pointer, n int, words *[6]uint32)                // float32; see random.go
	transpose      func(dst, src unsafe.Pointer, dstStep, srcStep, blocks int)      // blocks of 8 by 8 float32

	// Max pooling of float32 by adjacent windows of 2 by 2, and its gradient: rows of n outputs, n
	// at least 4.
	maxPairs     func(dst, src unsafe.Pointer, srcStep, rows, n int)
	maxPairsGrad func(dx, x, y, dy unsafe.Pointer, step, rows, n int)
}

// best returns the best level of this machine, or nil for plain Go.
func best() *level {
	for i := range levels {
		if levels[i].has {
			return &levels[i]
		}
	}
	return nil
}

// assembly returns the level's code for op, or nil.
func assembly[T real](l *level, op vecOp) func(*vecArgs) {
	switch {
	case l == nil || op >= plainOps:
	case size[T]() == 4:
		return l.f32
	case (op < opExp || op > opSigmoid) && op < opFoldSum:
		return l.f64
	}
	return nil
}

// primitive returns the fastest code for op. It may allocate.
func primitive[T real](l *level, op vecOp) func(*vecArgs) {
	if f := assembly[T](l, op); f != nil {
		return f
	}
	return vecPlain[T]
}

// prims calls the primitives of a level, for steps with loops of their own.
type prims[T real] struct{ level *level }

// do computes d[i] = op(a[i], b[i]). An operand with step 0 is one number, repeated in 64 bytes.
func (p prims[T]) do(w *worker, op vecOp, n int, d, a, b unsafe.Pointer, sa, sb int) {
	v := &w.vec
	*v = vecArgs{op: op, n: n, d: d, a: a, b: b, c: a, sa: sa, sb: sb, sc: sa}
	if f := assembly[T](p.level, op); f != nil {
		f(v)
		return
	}
	vecPlain[T](v)
}

// with computes d[i] = op(a[i], x).
func (p prims[T]) with(w *worker, op vecOp, n int, d, a unsafe.Pointer, x T) {
	line := unsafe.Pointer(&w.line)
	fill(line, x)
	p.do(w, op, n, d, a, line, 1, 0)
}

// apply computes d[i] = op(a[i]).
func (p prims[T]) apply(w *worker, op vecOp, n int, d, a unsafe.Pointer) {
	p.do(w, op, n, d, a, a, 1, 1)
}

// set fills d[i] with x.
func set[T real](d unsafe.Pointer, n int, x T) {
	to := unsafe.Slice((*T)(d), n)
	for i := range to {
		to[i] = x
	}
}
