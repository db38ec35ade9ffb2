// Package reduce is the arithmetic of the host backends: the n-ary reduction of equal runs of
// elements, in rank order.
//
// Every backend that sums on a CPU calls it, so that a result has the same bits whichever backend
// ran it, however the data was cut into chunks, and on every machine:
//
//   - operands combine strictly from source 0 upwards, element by element;
//   - f16 and bf16 accumulate in float32 and are rounded once, at the end;
//   - a product is rounded before it is added. The Go specification allows x*y + z to be fused, and
//     arm64 does so, unless an explicit conversion stands between them ("Floating-point
//     operators"); the conversions here are that.
//
// Which of several NaNs a sum is, its sign and its payload, is not specified.
//
// Into is the checked entry and plain Go. For gives the kernel that backends call: sums of all
// types, averages and premulsums of floats in AVX-512, of all but the halves in AVX2, chosen at run
// time, and otherwise the plain one. All give the same bits. Weighted is a checked entry to the
// fastest premulsum.
//
//	into.go native.go half.go    plain Go
//	kernel.go                    kernels: many destinations in one pass, non-temporal stores
//	weighted.go                  premulsums of float64 factors
//	sum_amd64.s                  one macro, a function for each type and instruction set
//
// Work goes tile by tile, so that the running result stays in the L1 cache while the sources stream
// past.
package reduce
