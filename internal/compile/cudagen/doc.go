// Package cudagen generates CUDA C for a program: one text for NVRTC, and for each step the kernel
// launches that do it. It needs no device: internal/compile/cudaexec compiles and launches.
//
// # Text
//
// The kernels folder has code that does not depend on a program: conversions, scalar operations,
// sums over threads, and function templates for steps whose code never changes (softmax, pooling,
// gathers, normalization, products, convolution). A text has the files that its steps need,
// followed by a kernel for each different step. Shapes and strides are constants in it, so that
// divisions become multiplications and loop counts are known. The arguments are addresses, with the
// offsets of views added, so that equal steps on other memory share a kernel.
//
// The code of Map and Reduce is generated statement by statement (scalar.go). First the index space
// is simplified (nest.go): dims of one element are dropped, neighbours are joined if the strides of
// every view allow it, and the dim that is fastest in the output comes last. Each value is computed
// as far out in the loops as possible. A thread takes up to 32 bytes of neighbours, if all Outs are
// contiguous and aligned there. Ins that are not are loaded one element at a time.
//
// # Shapes of kernels
//
//	Map          a thread for one or a few elements, in a grid that fills the GPU and loops
//	             tiles of 32 by 32 in shared memory, if Ins have another fast dim (tiled.go)
//	             successive independent Maps: one launch, a block finds its Map by number (merge.go)
//	chains       successive Maps, Reduces and softmaxes along the same rows: one launch; values for
//	             the next step stay in registers (along.go)
//	Reduce       lanes along the row, or results along the row, by the In's layout; several blocks
//	             for few results (reduce.go)
//	rows         a warp or block for each row, which keeps it in registers
//	pooling      a thread for each element of the result, also of gradients: it visits the windows
//	             of the element; if windows do not overlap, a thread for one or a few windows
//	Gather       a thread for 16 bytes of the result
//	GatherGrad   a block for 64 columns of a row of the result scans all indices: with A rows, C
//	             indices and inner length N it reads min(A, C)*C*ceil(N/64) indices, and dy once
//	BatchNorm    a block for a channel, or for several if elements of channels are neighbours;
//	             several blocks for few channels
//	products     tiles in shared memory, 4 by 4 results a thread, if no library does them;
//	             convolutions read their operands in place
//	Attention    a block for 64 queries of a head scans its keys in tiles, on tensor cores; the
//	             gradient has blocks for queries and for keys, which recompute the
//	             softmax probabilities
//	thin         convolutions with C*R*S up to 32, and filter gradients: windows in registers
//
// Every sum has a fixed order, whatever the timing, without floating-point atomics. If several
// blocks share a sum, each writes its part to scratch memory. The last block, found by a counter
// that it resets to 0, adds the parts in order. So a captured graph can be replayed with equal
// bits.
//
// # Arithmetic
//
// Arithmetic is in f32, or f64 if an operand is, as in package program. Functions are CUDA's
// accurate ones, never those of --use_fast_math. Denormal numbers are kept, and the compiler may
// fuse a product and a sum. Copies move bits. Attention multiplies bf16: its softmax
// probabilities and their gradients are rounded to bf16. Its exponentials are ex2.approx, with an
// error of 2 units in the last place of f32.
//
// Sources: CUDA C++ Programming Guide, "Mathematical Functions", "Memory Fence Functions" (the last
// block); T. Dao, FlashAttention-2; M. Harris, "Optimizing Parallel Reduction in CUDA"; J. Salmon
// et al. (kernels/rand.cu); T. Chan et al. (kernels/norm.cu).
package cudagen
