// Package reduce has the arithmetic of the host backends: the n-ary reduction of equal ranges of
// elements, in rank order.
//
// Every backend that sums on a CPU calls it. So a result has the same bits for each backend,
// chunking and machine:
//
//   - Operands combine strictly from source 0 upwards, element by element.
//   - f16 and bf16 accumulate in float32 and are rounded once, at the end.
//   - A product is rounded before it is added. The Go specification allows x*y + z to be fused
//     without an explicit conversion ("Floating-point operators"), and arm64 does so. The
//     conversions here prevent that.
//
// If a sum is NaN, its sign and payload are unspecified.
//
// Into is the checked function in plain Go. For returns the kernel that backends call, with the
// same bits. It is chosen at run time: AVX-512 has sums of all dtypes, and averages and premulsums
// of floats; AVX2 has the same except f16 and bf16; the rest is plain Go. Weighted is a checked
// function for the fastest premulsum.
//
//	into.go native.go half.go    plain Go
//	kernel.go                    kernels: many destinations in one pass, non-temporal stores
//	weighted.go                  premulsums of float64 factors
//	sum_amd64.s                  one macro, a function for each type and instruction set
//
// Work proceeds in tiles, so that the accumulator stays in the L1 cache while the sources stream.
package reduce
