// Package reduce is the arithmetic of the host backends: the n-ary reduction of equal runs of elements, in rank order.
//
// Every backend that sums on a CPU calls it, so that a result has the same bits whichever backend ran it, however the
// data was cut into chunks, and on every machine:
//
//   - operands combine strictly from source 0 upwards, element by element;
//   - f16 and bf16 accumulate in float32 and are rounded once, at the end;
//   - a product is rounded before it is added. The Go specification allows x*y + z to be fused, and arm64 does so, unless
//     an explicit conversion stands between them ("Floating-point operators"); the conversions here are that.
//
// Work goes tile by tile, so that the running result stays in the L1 cache while the sources stream past.
package reduce
