package cublas

import (
	"fmt"

	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// DType is the element type of a matrix. The zero value is invalid.
type DType uint8

// Element types.
const (
	F32 DType = iota + 1
	F64
	F16
	BF16
)

// dtypes has name, bytes and cudaDataType_t by DType.
var dtypes = [...]struct {
	name  string
	bytes int
	code  int32
}{
	{"invalid", 0, -1},
	F32:  {"f32", 4, typeF32},
	F64:  {"f64", 8, typeF64},
	F16:  {"f16", 2, typeF16},
	BF16: {"bf16", 2, typeBF16},
}

// known returns d, or 0 if d is unknown.
func (d DType) known() DType {
	if int(d) < len(dtypes) {
		return d
	}
	return 0
}

// Bytes returns the size of an element.
func (d DType) Bytes() int { return dtypes[d.known()].bytes }

// String returns the name, such as "f32".
func (d DType) String() string { return dtypes[d.known()].name }

// Compute is the precision of products. Sums are in float32, those of F64 in float64.
type Compute uint8

// Precisions.
const (
	Full     Compute = iota // elements are multiplied as they are
	TF32                    // elements of F32 are rounded to TF32 (10 bits of fraction) for tensor cores
	FastBF16                // elements of F32 are rounded to BF16 (7 bits) for tensor cores
	Pedantic                // Full, and no shortcut in the order of operations: slow, for comparisons
)

var computeNames = [...]string{Full: "full", TF32: "tf32", FastBF16: "fast-bf16", Pedantic: "pedantic"}

// String returns the name, such as "tf32".
func (c Compute) String() string {
	if int(c) < len(computeNames) {
		return computeNames[c]
	}
	return "invalid"
}

// computeOf returns the cublasComputeType_t and the type of alpha and beta. Errors: cuda.ErrInvalid
// for an invalid combination.
func computeOf(d DType, c Compute) (compute, scale int32, err error) {
	switch {
	case d.known() == 0:
		return 0, 0, fmt.Errorf("%w: unknown element type (%d)", cuda.ErrInvalid, uint8(d))
	case d == F64 && c == Full:
		return compute64F, typeF64, nil
	case d == F64 && c == Pedantic:
		return compute64FPedantic, typeF64, nil
	case c == Full:
		return compute32F, typeF32, nil
	case c == Pedantic:
		return compute32FPedantic, typeF32, nil
	case d == F32 && c == TF32:
		return compute32FTF32, typeF32, nil
	case d == F32 && c == FastBF16:
		return compute32FBF16, typeF32, nil
	}
	return 0, 0, fmt.Errorf("%w: compute %v is for elements of f32, not of %v", cuda.ErrInvalid, c, d)
}

// cudaDataType_t of library_types.h.
const (
	typeF32  = 0
	typeF64  = 1
	typeF16  = 2
	typeBF16 = 14
)

// Constants of cublas_api.h.
const (
	success          = 0
	notInitialized   = 1  // CUBLAS_STATUS_NOT_INITIALIZED
	allocFailed      = 3  // CUBLAS_STATUS_ALLOC_FAILED
	invalidValue     = 7  // CUBLAS_STATUS_INVALID_VALUE
	archMismatch     = 8  // CUBLAS_STATUS_ARCH_MISMATCH
	executionFailed  = 13 // CUBLAS_STATUS_EXECUTION_FAILED
	notSupported     = 15 // CUBLAS_STATUS_NOT_SUPPORTED
	opN              = 0
	opT              = 1
	pointerHost      = 0
	atomicsOff       = 0
	mathDefault      = 0
	mathPedantic     = 2
	mathTF32         = 3
	mathFullSums     = 16 // CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
	propertyMajor    = 0  // libraryPropertyType_t
	propertyMinor    = 1
	propertyPatch    = 2
	workspaceAligned = 256 // bytes, of cublasSetWorkspace's pointer

	compute32F         = 68
	compute32FPedantic = 69
	compute64F         = 70
	compute64FPedantic = 71
	compute32FBF16     = 75
	compute32FTF32     = 77
)

// Constants of cublasLt.h.
const (
	layoutBatchCount  = 5 // CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32
	layoutBatchStride = 6 // CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, int64

	descTransA   = 3  // CUBLASLT_MATMUL_DESC_TRANSA, int32
	descTransB   = 4  // CUBLASLT_MATMUL_DESC_TRANSB, int32
	descEpilogue = 7  // CUBLASLT_MATMUL_DESC_EPILOGUE, uint32
	descBias     = 8  // CUBLASLT_MATMUL_DESC_BIAS_POINTER
	descAux      = 11 // CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER
	descAuxLD    = 12 // CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64

	epilogueDefault     = 1
	epilogueReLU        = 2
	epilogueBias        = 4
	epilogueReLUBias    = epilogueReLU | epilogueBias
	epilogueReLUAuxBias = epilogueReLU | 128 | epilogueBias
	epilogueDReLU       = 8 | 128
	epilogueDReLUBGrad  = epilogueDReLU | 16
	epilogueBGradA      = 256
	epilogueBGradB      = 512

	prefWorkspace = 1 // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64
	prefAlignA    = 5 // CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES to _D_BYTES, uint32
	prefAlignB    = 6
	prefAlignC    = 7
	prefAlignD    = 8

	auxBits = 128 // alignment of the leading dimension of a bit mask
)

// algo is cublasLtMatmulAlgo_t.
type algo [8]uint64

// heuristicResult is cublasLtMatmulHeuristicResult_t.
type heuristicResult struct {
	algo      algo
	workspace uint64  // a status; the other fields count only for success
	state     int32   // a status; the rest counts only for success
	waves     float32 // how often the kernel fills the device
	reserved  [4]int32
}
