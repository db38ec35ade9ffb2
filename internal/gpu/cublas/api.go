package cublas

import (
	"unsafe"

	"github.com/symgrad/symgrad/internal/dl"
)

// front has the functions for the version. It is bound first, so that an old library is reported as
// too old.
type front struct {
	property   func(which int32, out *int32) int32 `dl:"cublasGetProperty"`
	statusName func(code int32) string             `dl:"cublasGetStatusName"`
	statusText func(code int32) string             `dl:"cublasGetStatusString"`
}

// table has the functions of libcublas that this package calls. All return cublasStatus_t.
// cublas_v2.h uses the names without _v2.
type table struct {
	create       func(out *uintptr) int32               `dl:"cublasCreate_v2"`
	destroy      func(h uintptr) int32                  `dl:"cublasDestroy_v2"`
	setStream    func(h, stream uintptr) int32          `dl:"cublasSetStream_v2"`
	setWorkspace func(h, p uintptr, bytes uint64) int32 `dl:"cublasSetWorkspace_v2"`
	setMath      func(h uintptr, mode int32) int32      `dl:"cublasSetMathMode"`
	setPointers  func(h uintptr, mode int32) int32      `dl:"cublasSetPointerMode_v2"`
	setAtomics   func(h uintptr, mode int32) int32      `dl:"cublasSetAtomicsMode"`
	gemm         dl.Proc                                `dl:"cublasGemmEx"`               // 19 words: see Gemm.words
	gemmBatched  dl.Proc                                `dl:"cublasGemmStridedBatchedEx"` // 23 words
}

// ltFront is front for libcublasLt.
type ltFront struct {
	property func(which int32, out *int32) int32 `dl:"cublasLtGetProperty"`
}

// ltTable has the functions of libcublasLt.
type ltTable struct {
	create        func(out *uintptr) int32                                                        `dl:"cublasLtCreate"`
	destroy       func(h uintptr) int32                                                           `dl:"cublasLtDestroy"`
	layoutCreate  func(out *uintptr, dtype int32, rows, cols uint64, ld int64) int32              `dl:"cublasLtMatrixLayoutCreate"`
	layoutDestroy func(layout uintptr) int32                                                      `dl:"cublasLtMatrixLayoutDestroy"`
	layoutSet     func(layout uintptr, attr int32, value unsafe.Pointer, bytes uint64) int32      `dl:"cublasLtMatrixLayoutSetAttribute"`
	descCreate    func(out *uintptr, compute, scale int32) int32                                  `dl:"cublasLtMatmulDescCreate"`
	descDestroy   func(desc uintptr) int32                                                        `dl:"cublasLtMatmulDescDestroy"`
	descSet       dl.Proc                                                                         `dl:"cublasLtMatmulDescSetAttribute"` // (desc, attr, value*, bytes)
	prefCreate    func(out *uintptr) int32                                                        `dl:"cublasLtMatmulPreferenceCreate"`
	prefDestroy   func(pref uintptr) int32                                                        `dl:"cublasLtMatmulPreferenceDestroy"`
	prefSet       func(pref uintptr, attr int32, value unsafe.Pointer, bytes uint64) int32        `dl:"cublasLtMatmulPreferenceSetAttribute"`
	algoGet       func(algo *algo, attr int32, out unsafe.Pointer, bytes uint64, n *uint64) int32 `dl:"cublasLtMatmulAlgoConfigGetAttribute"`
	heuristic     dl.Proc                                                                         `dl:"cublasLtMatmulAlgoGetHeuristic"` // (lt, desc, a, b, c, d, pref, most, results*, n*)
	matmul        dl.Proc                                                                         `dl:"cublasLtMatmul"`                 // 16 words: see Plan.Run
}
