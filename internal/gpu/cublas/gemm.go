package cublas

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// Gemm is a product of row-major matrices,
//
//	for i := range Batch { C_i = Alpha*op(A_i)*op(B_i) + Beta*C_i }
//
// where op(A) is M by K, op(B) K by N, and C M by N. A matrix that is transposed is stored as K by
// M or N by K.
type Gemm struct {
	DType   DType // of A and B
	Out     DType // of C; 0 means DType. F32 is possible for all except F64
	Compute Compute

	TransA, TransB bool
	M, N, K        int

	// Batch is the number of products; 0 means 1. The strides are elements from one matrix to the
	// next. A and B may have stride 0: one matrix for all products.
	Batch                     int
	StrideA, StrideB, StrideC int64

	LDA, LDB, LDC int // elements from one stored row to the next; 0 means rows without gaps

	// Alpha and Beta are in float32 unless DType is F64. With Beta 0 the old C is not read, not
	// even NaN.
	Alpha, Beta float64
}

// out returns the type of C.
func (g *Gemm) out() DType {
	if g.Out == 0 {
		return g.DType
	}
	return g.Out
}

// batch returns the number of products.
func (g *Gemm) batch() int { return max(g.Batch, 1) }

// extent is the storage of an operand: rows, columns, leading dimension, stride and type.
type extent struct {
	rows, cols, ld int
	stride         int64
	dtype          DType
}

// flip returns a and b, exchanged if the matrix is transposed.
func flip(trans bool, a, b int) (rows, cols int) {
	if trans {
		return b, a
	}
	return a, b
}

// extents returns the extents of A, B and C, row-major.
func (g *Gemm) extents() (a, b, c extent) {
	a.rows, a.cols = flip(g.TransA, g.M, g.K)
	b.rows, b.cols = flip(g.TransB, g.K, g.N)
	c.rows, c.cols = g.M, g.N
	a.ld, a.stride, a.dtype = g.LDA, g.StrideA, g.DType
	b.ld, b.stride, b.dtype = g.LDB, g.StrideB, g.DType
	c.ld, c.stride, c.dtype = g.LDC, g.StrideC, g.out()
	for _, e := range [...]*extent{&a, &b, &c} {
		if e.ld == 0 {
			e.ld = e.cols
		}
	}
	return a, b, c
}

// bytes returns the bytes from the first element of n matrices to the last.
func (e extent) bytes(n int) int64 {
	return (int64(n-1)*e.stride + int64(e.rows-1)*int64(e.ld) + int64(e.cols)) * int64(e.dtype.Bytes())
}

// Bytes returns the bytes of A, B and C from first to last element. g is valid.
func (g *Gemm) Bytes() (a, b, c int64) {
	x, y, z := g.extents()
	return x.bytes(g.batch()), y.bytes(g.batch()), z.bytes(g.batch())
}

// Validate reports an invalid product. Errors: cuda.ErrInvalid.
func (g *Gemm) Validate() error {
	if _, _, err := computeOf(g.DType, g.Compute); err != nil {
		return fmt.Errorf("cublas: %w", err)
	}
	if out := g.out(); out != g.DType && (out != F32 || g.DType == F64) {
		return g.wrong("C of %v from elements of %v", out, g.DType)
	}
	if g.M < 1 || g.N < 1 || g.K < 1 || g.Batch < 0 {
		return g.wrong("all dimensions are at least 1")
	}
	if max(g.M, g.N, g.K, g.Batch, g.LDA, g.LDB, g.LDC) > math.MaxInt32 {
		return g.wrong("a dimension is more than %d", math.MaxInt32)
	}
	a, b, c := g.extents()
	if a.ld < a.cols || b.ld < b.cols || c.ld < c.cols {
		return g.wrong("a row is longer than its leading dimension: A %d of %d, B %d of %d, C %d of %d", a.cols, a.ld, b.cols, b.ld, c.cols, c.ld)
	}
	if g.batch() > 1 && (a.stride < 0 || b.stride < 0 || c.stride <= 0) {
		return g.wrong("strides are %d, %d and %d: want no negative ones, and more than 0 for C", a.stride, b.stride, c.stride)
	}
	return nil
}

// wrong returns the error of an invalid Gemm.
//
//go:noinline
func (g *Gemm) wrong(format string, args ...any) error {
	return fmt.Errorf("cublas: %s: %w: %s", g.String(), cuda.ErrInvalid, fmt.Sprintf(format, args...))
}

// String returns "gemm f32 128x512x784 nt": the types, M, N and K, and which of A and B are
// transposed.
func (g Gemm) String() string {
	text := fmt.Sprintf("gemm %v", g.DType)
	if g.out() != g.DType {
		text += fmt.Sprintf(" to %v", g.out())
	}
	if g.Compute != Full {
		text += fmt.Sprintf(" %v", g.Compute)
	}
	letters := [...]byte{'n', 'n'}
	if g.TransA {
		letters[0] = 't'
	}
	if g.TransB {
		letters[1] = 't'
	}
	text += fmt.Sprintf(" %dx%dx%d %s", g.M, g.N, g.K, letters)
	if g.Batch > 1 {
		text += fmt.Sprintf(" batch %d", g.Batch)
	}
	return text
}

// columns is a Gemm in the library's column-major form: its A is B here, and its B is A.
type columns struct {
	transA, transB   int32
	m, n, k          int
	lda, ldb, ldc    int
	sa, sb, sc       int64
	typeAB, typeC    int32
	batch            int
	compute, scaling int32
}

// columns returns Cᵀ = op(B)ᵀ op(A)ᵀ. Errors: cuda.ErrInvalid.
func (g *Gemm) columns() (columns, error) {
	if err := g.Validate(); err != nil {
		return columns{}, err
	}
	a, b, c := g.extents()
	q := columns{
		m: g.N, n: g.M, k: g.K, lda: b.ld, ldb: a.ld, ldc: c.ld, sa: b.stride, sb: a.stride, sc: c.stride,
		typeAB: dtypes[g.DType].code, typeC: dtypes[g.out()].code, batch: g.batch(), transA: opN, transB: opN,
	}
	if g.TransB {
		q.transA = opT
	}
	if g.TransA {
		q.transB = opT
	}
	var err error
	q.compute, q.scaling, err = computeOf(g.DType, g.Compute)
	return q, err
}

// words sets the arguments of cublasGemmEx, or of cublasGemmStridedBatchedEx for a batch, and
// returns their number. alpha and beta are addresses; a, b and c those of the row-major matrices.
func (q *columns) words(w *[23]uintptr, handle, alpha, beta, a, b, c uintptr) int {
	w[0], w[1], w[2], w[3], w[4], w[5] = handle, uintptr(q.transA), uintptr(q.transB), uintptr(q.m), uintptr(q.n), uintptr(q.k)
	w[6] = alpha
	if q.batch == 1 {
		w[7], w[8], w[9] = b, uintptr(q.typeAB), uintptr(q.lda)
		w[10], w[11], w[12] = a, uintptr(q.typeAB), uintptr(q.ldb)
		w[13], w[14], w[15], w[16] = beta, c, uintptr(q.typeC), uintptr(q.ldc)
		w[17], w[18] = uintptr(q.compute), algoDefault
		return 19
	}
	w[7], w[8], w[9], w[10] = b, uintptr(q.typeAB), uintptr(q.lda), uintptr(q.sa)
	w[11], w[12], w[13], w[14] = a, uintptr(q.typeAB), uintptr(q.ldb), uintptr(q.sb)
	w[15], w[16], w[17], w[18], w[19] = beta, c, uintptr(q.typeC), uintptr(q.ldc), uintptr(q.sc)
	w[20], w[21], w[22] = uintptr(q.batch), uintptr(q.compute), algoDefault
	return 23
}

// algoDefault is CUBLAS_GEMM_DEFAULT, -1, as a word.
const algoDefault = ^uintptr(0)

// Gemm queues g on the handle's stream, for matrices at a, b and c on the device. It allocates
// nothing, and may be captured.
//
// Owns: the matrices are the stream's until the work is done; g may change when Gemm returns.
// Errors: cuda.ErrInvalid for an invalid g or a missing address, ErrClosed, *Error.
func (h *Handle) Gemm(g *Gemm, a, b, c uintptr) error {
	q, err := g.columns()
	switch {
	case err != nil:
		return err
	case h.handle == 0:
		return ErrClosed
	case a == 0 || b == 0 || c == 0:
		return g.wrong("no memory: A at %#x, B at %#x, C at %#x", a, b, c)
	}
	h.alpha, h.beta = scalar(g.Alpha, q.scaling), scalar(g.Beta, q.scaling)
	n := q.words(&h.args, h.handle, uintptr(unsafe.Pointer(&h.alpha)), uintptr(unsafe.Pointer(&h.beta)), a, b, c)
	p, name := &h.lib.t.gemm, "cublasGemmEx"
	if q.batch > 1 {
		p, name = &h.lib.t.gemmBatched, "cublasGemmStridedBatchedEx"
	}
	r, err := h.call(p, n)
	if err != nil {
		return err
	}
	if r != success {
		return h.lib.failure(name, r, g.String())
	}
	return nil
}
