package cudaexec

import (
	"github.com/symgrad/symgrad/internal/gpu/cublas"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// turned is a product AᵀB with a transposed copy of the smaller operand. A is K by M and B is K by
// N, so rows of neither run along K. Kernels for tensor cores need that of one operand at least: a
// large product in TF32 was measured to take clearly longer than one with A as M by K.
// BenchmarkWeightGradient measures the gain.
type turned struct {
	gemm       cublas.Gemm // with the copy
	second     bool        // the copy is of B, not of A
	rows, cols int         // of the operand as stored
	ld, to     int         // elements from one row to the next, in the operand and in the copy
	at         uintptr     // of the copy
	copy       launch
}

// turning says when a product uses its turned form. Tests and comparisons use all but the first.
type turning uint8

const (
	turnWhereFaster turning = iota // if it was measured to be faster
	turnAlways
	turnNever
)

// turnRow is the alignment of rows of a copy, in bytes: kernels of cuBLAS load as many at once.
const turnRow = 16

// newTurn returns g with one operand transposed, or nil unless g is a single AᵀB.
func newTurn(g *cublas.Gemm) *turned {
	if !g.TransA || g.TransB || g.Batch > 1 {
		return nil
	}
	per := turnRow / g.DType.Bytes()
	t := &turned{gemm: *g, second: g.N < g.M, rows: g.K, cols: g.M, ld: g.LDA, to: (g.K + per - 1) / per * per}
	if t.second {
		t.cols, t.ld = g.N, g.LDB
		t.gemm.TransB, t.gemm.LDB = true, t.to
	} else {
		t.gemm.TransA, t.gemm.LDA = false, t.to
	}
	return t
}

// Least sizes of a product whose turned form is tried. The copy moves 2*min(M, N)*K elements for
// M*N*K products, so its share of the time falls with the longer side. Below turnLong it takes too
// much of the gain.
const (
	turnSide     = 512     // M and N
	turnLong     = 1024    // the larger of them
	turnDepth    = 64      // K
	turnProducts = 1 << 30 // M*N*K: a few times one more launch
)

// canPay reports whether a turn of g may be faster than g.
func canPay(g *cublas.Gemm) bool {
	if g.DType == cublas.F32 && g.Compute == cublas.Full {
		return false // no tensor cores
	}
	return min(g.M, g.N) >= turnSide && max(g.M, g.N) >= turnLong && g.K >= turnDepth && int64(g.M)*int64(g.N) >= turnProducts/int64(g.K)
}

// operand returns the operand of o that is copied.
func (t *turned) operand(o *cublas.Operands) *uintptr {
	if t.second {
		return &o.B
	}
	return &o.A
}

// sourceBytes returns the extent of the operand.
func (t *turned) sourceBytes() int64 {
	return (int64(t.rows-1)*int64(t.ld) + int64(t.cols)) * int64(t.gemm.DType.Bytes())
}

// bytes returns the extent of the copy.
func (t *turned) bytes() int64 {
	return int64(t.cols) * int64(t.to) * int64(t.gemm.DType.Bytes())
}

// Tiles of kernel transpose in runner.cu: a block of turnThreads threads transposes turnEdge rows
// and columns.
const (
	turnEdge    = 64
	turnThreads = 256
)

// aim makes t copy its operand from argument from to the address at.
func (t *turned) aim(k *own, from argument, at uintptr) {
	tiles := (t.rows + turnEdge - 1) / turnEdge * ((t.cols + turnEdge - 1) / turnEdge)
	t.at = at
	t.copy = launch{
		f:     k.transpose[t.gemm.DType.Bytes()],
		shape: cuda.Launch{Grid: [3]uint32{uint32(tiles)}, Block: [3]uint32{turnThreads}},
		args: []argument{
			from, {literal, int64(at)}, {literal, int64(t.rows)}, {literal, int64(t.cols)}, {literal, int64(t.ld)}, {literal, int64(t.to)},
		},
	}
}
