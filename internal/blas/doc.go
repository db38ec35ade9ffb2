// Package blas is gonum's BLAS, with its hot routines handed to MKL, OpenBLAS or BLIS where one is
// installed. The library is loaded at run time (package internal/dl), so the program is built
// without it, without cgo, and runs without it.
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
// # Routines of the library
//
// gemm, gemv, ger, axpy, scal and dot of float32 and float64, from the sizes on where it was
// measured to be faster (see measuredThresholds), with positive increments. Everything else,
// complex numbers included, is gonum's own code.
//
// # The contract
//
// The contract: row-major matrices, the same checks, the same panics with the same values. Bad
// arguments never reach the library, because they are gonum's to refuse: a call is foreign only if
// every check of gonum's would pass. (The BLAS interfaces have no errors, so this is the one
// package whose panics cross its border.)
//
// Results are the same up to rounding, since sums are taken in another order. Infinities and NaNs
// may come out differently: gonum skips products with a zero element of A, libraries mostly do not,
// so that 0 times infinity is 0 here and NaN there. With beta == 0, C and y are overwritten and
// never read, by all of them.
//
// # Are results repeatable?
//
// The same library file, kernels ([Info]'s Version names them), number of threads, shapes, leading
// dimensions and thresholds give the same bits from run to run. OpenBLAS and BLIS do not look at
// addresses when they split work, except OpenBLAS's kernels of processors without AVX
// ([Info.Outdated]). MKL may: it promises equal bits only for operands of equal alignment (64
// bytes), or with MKL_CBWR set. Another number of threads, another processor type or another
// library gives other rounding. So ranks that must agree bit for bit use one setting; the head of
// the run's log has it.
//
// # How many threads?
//
// Config.Threads is per process: with as many ranks as cores it is 1. Libraries built on OpenMP
// keep the number per OS thread, and a goroutine may call from any, so for those it is set again
// before each call. Calls from several goroutines run side by side. BLIS with several threads wants
// the cores for itself: its threads spin while they wait for each other, so more of them than idle
// cores is slower than one, by orders of magnitude.
//
// # Which libraries are refused?
//
// Libraries with 64-bit integers (ILP64), under any name: Open asks by name, and also passes sscal
// an integer that is 1 in 32 bits and negative in 64 bits. Libraries that fail a short trial of a
// routine. MKL without its companion libraries, because MKL ends the process when it
// misses them. The reasons are in Info.Rejected.
//
// MKL's part is tested against a stand-in with its interface, the others against themselves.
package blas
