// Package hostexec runs programs on the host.
//
//	r, err := hostexec.New(p, hostexec.Config{}, program.Env{Groups: groups})
//	err = r.Bind(id, memory) // each Outside value
//	err = r.Run()
//
// New prepares every step as phases. A phase is a task that is cut into pieces, and a crew of
// goroutines, which lives from New to Close, shares the pieces. A run does the steps in order and
// allocates nothing. If sums depend on the cuts, these follow from shapes alone. So results have
// the same bits for any number of goroutines.
//
//	runner.go, maker.go, memory.go   New, Run; steps and their phases; addresses of values
//	crew.go, room.go                 goroutines; whether memory suffices
//	map.go, code.go, compile.go      Map: blocks of elements in the L1 cache, a primitive at a time
//	reduce.go, sum.go                Reduce
//	vec.go, poly.go, vec_amd64.s     the primitives, in plain Go and in assembly
//	gemm*, matmul.go, deep.go        matrix products (deep.go: cut into depths)
//	conv.go, columns.go, window.go   convolutions as products, pooling
//	collective.go                    collectives, which overlap later steps, and calls
//
// # Which instructions?
//
// AVX-512 or AVX2, chosen at run time, else plain Go. Primitives, reductions and random numbers
// give the same bits in all three. Products do not: a fused multiply-add rounds once where plain Go
// rounds twice.
//
// exp, log, tanh and sigmoid of float32 are polynomials, within 2.5 units in the last place
// (TestFunctionsAreAccurate), except that a sigmoid below 2^-125 may be 0. Other functions, and all
// of float64, are those of package math.
//
// # Which products does a library do?
//
// Few. float32, one EPYC of the Zen 5 family, two cores, OpenBLAS 0.3.21 (with its Haswell
// kernels), GFLOP/s (BenchmarkMatMul):
//
//	                      ours AVX-512   ours AVX2   OpenBLAS   gonum
//	threads                  1     2      1     2     1     2      2
//	128 x 784 x 512        177   317     86   147    99   160     23
//	784 x 128 x 512, Aᵀ    195   340    100   182   104   106      4
//	512 x 512 x 512        201   390     91   149   107   185     23
//	32 x 64 x 32            89   118     29    29    60    66      9
//
// OpenBLAS 0.3.21, with kernels for AVX2, was slower than this package with AVX-512. With AVX2 and
// two threads sometimes one and sometimes the other was faster. So a library multiplies only with
// one thread and no AVX-512, or without AVX2.
//
// # Sources
//
// K. Goto, R. van de Geijn, "Anatomy of high-performance matrix multiplication" (2008); F. Van Zee,
// R. van de Geijn, "BLIS" (2015); S. L. Moshier, Cephes; J. Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3" (2011).
package hostexec
