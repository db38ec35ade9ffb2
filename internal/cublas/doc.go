// Package cublas is cuBLAS and cuBLASLt without cgo: products of matrices in rows, queued on a
// stream, also while the stream captures a graph.
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
// # Rows and columns
//
// All matrices here are row-major: element (i, j) is at i*LD + j. The library's are column-major,
// and a row-major C is a column-major Cᵀ. So C = op(A) op(B) is requested as Cᵀ = op(B)ᵀ op(A)ᵀ:
// the operands change places and M and N with them, and no matrix is transposed (gemm.go, columns).
// cuBLASLt's A is B here: BiasGradA is its BGRADB.
//
// # A handle, a stream, a workspace
//
// A Handle belongs to one device and one stream, and has a workspace of its own: 32 MiB on Hopper,
// as NVIDIA recommends. A library without one takes memory for every graph that is captured
// (github.com/pytorch/pytorch/pull/83461), and two streams in one workspace are a race.
// Captured work keeps the workspace's address: graphs are closed before the Handle, and graphs of
// one Handle are launched one after another.
//
// The library takes the thread's current context for its device, so that each call makes the
// device's context current by itself. It loads kernels at the first use of each. Run an operation
// once before its capture.
//
// # Same bits
//
// cuBLAS gives the same bits at each run on one kind of GPU with one version, given a workspace per
// stream ("Results reproducibility" in its manual). Atomics are off, and half-width products are
// summed in float32 throughout (CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION). A Plan that
// timed its candidates may choose another at the next run of the program, and on another rank; once
// made it stays as it is.
//
// # Which library?
//
// Config.Path; or for each CUDA from the driver's own down to 12 the loader's file, and then the
// one in Config.Dirs. libcublasLt is loaded first and libcublas from the same folder, so that the
// two are of one release.
//
// Values and prototypes are those of cublas_api.h, cublasLt.h and library_types.h of CUDA 12.6.
package cublas
