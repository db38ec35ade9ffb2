// Package blas is gonum's BLAS, with MKL, OpenBLAS or BLIS for its hot routines, if one is
// installed. The library is loaded at run time (package internal/dl), so a program is built without
// it, without cgo, and runs without it.
//
//	impl, err := blas.Open(blas.Config{Threads: cores / ranksOnThisHost})
//	if err != nil {
//		return err
//	}
//	log.Info("blas", "using", impl.String())
//	gorgonia.Use(impl) // sets gorgonia.org/tensor's BLAS, too
//
// A matrix product of 512³ in float32 takes OpenBLAS with one thread a fifth of the time that it
// takes gonum with two (BenchmarkGemm).
//
//	open.go, vendor.go, mkl.go, probe.go   search, vendors, and the trial of a library
//	implementation.go, routines.go         the methods, and which calls go to the library
//	frame.go                               arguments of foreign calls
//	thresholds.go, config.go, info.go      sizes, settings, and a description of the choice
//
// # Which routines use the library?
//
// gemm, gemv, ger, axpy, scal and dot of float32 and float64, with positive increments, from the
// sizes on for which the library was measured to be faster (see measuredThresholds). Everything
// else, including complex numbers, is gonum's own code.
//
// # How do results differ from gonum's?
//
// The contract is the same: row-major matrices, the same checks, the same panics with the same
// values. Bad arguments never reach the library: a call is foreign only if all checks of gonum
// pass. (The BLAS interfaces have no errors, so this is the only package whose panics reach its
// callers.)
//
// Results are equal up to rounding, since sums have another order. Infinities and NaNs may differ:
// gonum skips products with a zero element of A, most libraries do not, so 0 times infinity is 0 in
// gonum and NaN in a library. With beta == 0, C and y are overwritten and never read, by all of
// them.
//
// # Are results repeatable?
//
// The same library file, kernels ([Info]'s Version names them), number of threads, shapes, leading
// dimensions and thresholds give the same bits from run to run. OpenBLAS and BLIS split work
// without regard to addresses, except for OpenBLAS's kernels of processors without AVX
// ([Info.Outdated]). MKL gives equal bits only for operands of equal alignment (64 bytes), or with
// MKL_CBWR set. Another number of threads, processor type or library rounds differently. So ranks
// that must agree bit for bit use one setting; the head of the run's log has it.
//
// # How many threads?
//
// Config.Threads is per process: with as many ranks as cores it is 1. Libraries built on OpenMP
// keep the number per OS thread, and a goroutine may call from any, so for those it is set again
// before each call. Calls from several goroutines run in parallel. BLIS with several threads needs
// idle cores: its threads spin while they wait for each other, so with more threads than idle cores
// it is slower than with one, by orders of magnitude.
//
// # Which libraries are refused?
//
// Libraries with 64-bit integers (ILP64): Open checks names, and also passes sscal an integer that
// is 1 in 32 bits and negative in 64 bits. Libraries that fail a short trial of a routine. MKL
// without its companion libraries, because MKL ends the process when one is missing. Info.Rejected
// has the reasons.
//
// MKL's part is tested with a fake library of its interface, the others with real libraries.
package blas
