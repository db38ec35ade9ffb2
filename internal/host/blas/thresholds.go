package blas

import "math"

// thresholds are the least sizes for a library. Below them gonum is faster, as a foreign call costs
// about 100 ns by itself.
type thresholds struct {
	gemm float64 // m n k
	gemv int     // m n
	ger  int     // m n
	axpy int     // n
	scal int     // n
	dot  int     // n
}

const never = math.MaxInt

// measuredThresholds are where gonum v0.17 and the library took the same time, for one and for two
// threads (EPYC of the Zen 5 family, 2.6 GHz, BenchmarkThresholds). Nanoseconds a call with one
// thread, gonum / OpenBLAS 0.3.21 / BLIS 0.9.0 (which has no kernels for that processor):
//
//	            single                          double
//	gemm   4³       67 /    142 /   2307        73 /    146 /   2353
//	gemm   8³      241 /    159 /   2405       270 /    169 /   2342
//	gemm  32³     5237 /    787 /   4406      7550 /   1531 /   6265
//	gemm 128³   146170 /  34181 / 104938    231189 /  73653 / 212004
//	gemv  32²      151 /    162 /    189        89 /    173 /    239
//	gemv 128²     1307 /    691 /    921      1307 /   1131 /   1509
//	gemv 1024²   66559 /  44028 /  56511    104541 /  88813 / 119328
//	ger  128²     1247 /   1008 /   1427      1971 /   1538 /   2832
//	ger  1024²   80964 /  43583 /  80991    131079 /  86385 / 157537
//	axpy  2048     155 /    140 /    240       302 /    209 /    369
//	axpy 65536    4688 /   2485 /   4689      9558 /   7111 /  10390
//	scal   512     130 /     88 /    111        47 /    109 /    157
//	scal 65536   15496 /   2519 /   4046      5855 /   4986 /   8111
//	dot   8192     510 /    535 /   1257       994 /    827 /   2227
//	dot  65536    3920 /   2497 /   8143      7829 /   5192 /  16589
//
// Libraries that were not measured get OpenBLAS's, with a higher gemm threshold, in case a call is
// as slow as BLIS's.
func measuredThresholds(name string) (single, double thresholds) {
	single = thresholds{gemm: 300, gemv: 1024, ger: 8192, axpy: 2048, scal: 512, dot: 32768}
	double = thresholds{gemm: 300, gemv: 8192, ger: 8192, axpy: 1024, scal: 16384, dot: 16384}
	switch name {
	case "openblas":
	case "blis":
		single = thresholds{gemm: 24 << 10, gemv: 4096, ger: never, axpy: never, scal: 512, dot: never}
		double = thresholds{gemm: 32 << 10, gemv: never, ger: never, axpy: never, scal: never, dot: never}
	default:
		single.gemm, double.gemm = 16<<10, 16<<10
	}
	return single, double
}
