// Package cublas calls cuBLAS and cuBLASLt without cgo: products of row-major matrices, queued on a
// stream, which may capture a graph.
//
//	lib, err := cublas.Open(cublas.Config{CUDA: driver.Version()})
//	h, err := lib.NewHandle(stream, cublas.HandleConfig{})
//	defer h.Close()
//	g := cublas.Gemm{DType: cublas.F32, M: 128, N: 512, K: 784, TransB: true, Alpha: 1}
//	err = h.Gemm(&g, x, w, y)                         // y = x wᵀ
//	p, err := h.NewPlan(cublas.PlanDesc{Gemm: g, Epilogue: cublas.BiasReLU, Candidates: 8})
//	defer p.Close()
//	err = p.Run(stream, cublas.Operands{A: x, B: w, C: y, Bias: bias, Workspace: ws})
//
//	library.go, api.go   Open, and the functions of the libraries
//	handle.go, gemm.go   Handle: the state for a stream; Gemm
//	plan.go, choose.go   Plan: a product with an epilogue; the choice of its algorithm
//
// # Rows and columns
//
// All matrices here are row-major: element (i, j) is at i*LD + j. The library's are column-major,
// and a row-major C is a column-major Cᵀ. So C = op(A) op(B) is computed as Cᵀ = op(B)ᵀ op(A)ᵀ: the
// operands change places, and so do M and N. No matrix is transposed (gemm.go, columns). cuBLASLt's
// A is B here: BiasGradA is its BGRADB.
//
// # A handle, a stream, a workspace
//
// A Handle belongs to one device and one stream, and has its own workspace: 32 MiB on Hopper, as
// NVIDIA recommends. Without one the library allocates memory for every captured graph
// (github.com/pytorch/pytorch/pull/83461), and two streams in one workspace are a race. Captured
// work keeps the workspace's address: close graphs before the Handle, and launch graphs of one
// Handle one after another.
//
// The library uses the device of the thread's current context, so each call makes the context
// current. It loads kernels at their first use: run operations once before a capture.
//
// # Same bits
//
// cuBLAS gives the same bits at each run on one kind of GPU with one version, given a workspace per
// stream ("Results reproducibility" in its manual). Atomics are off, and half-width products are
// summed in float32 throughout (CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION). A Plan keeps its
// algorithm. If it timed candidates, the next run of the program, or another rank, may choose
// another one.
//
// # Which library?
//
// Config.Path; or, for each CUDA from the driver's down to 12, the loader's library and then those
// in Config.Dirs. libcublasLt is loaded first, and libcublas from its folder, so that both are of
// one release.
//
// Values and prototypes are those of cublas_api.h, cublasLt.h and library_types.h of CUDA 12.6.
package cublas
