// Package cudagen makes CUDA C of a program: one text for NVRTC, and for each step the launches
// that do it. It knows no device and needs none; internal/cudaexec compiles and launches.
//
// # What a text is
//
// The kernels folder has what does not depend on a program: conversions, scalar operations, sums
// over threads, and function templates for the steps whose code is always the same (softmax,
// pooling, gathers, normalization, products, convolution). A text has the files that its steps
// need, and behind them a kernel for each different step. Shapes and strides are constants in it,
// so that divisions become multiplications and loops know their ends. Only addresses are arguments,
// with the offsets of views in them, so that steps that do the same on other memory share a kernel.
//
// The code of Map and Reduce is written here, statement by statement (scalar.go). Before, the index
// space is brought to what matters (nest.go): dims of one element go, neighbours are joined where
// every view goes on from one to the other, the dim that is written fastest comes last. Each value
// is made no further in than it must be: what does not move at all before the loop, what several
// neighbours share once for all of them. Up to 32 bytes of neighbours are one thread's, where all
// Outs lie so; addresses that are not aligned are read one by one.
//
// # Shapes of kernels
//
//	Map          a thread for each element or few, in a grid that fills the GPU and goes on from there
//	             tiles of 32 by 32 in shared memory, where Ins lie along another dim than Outs (tiled.go)
//	             independent Maps that follow each other: one launch, whose blocks find their Map by number (merge.go)
//	chains       steps that go on along the same rows, Maps, Reduces and softmaxes: one launch, in which some threads have a row, and
//	             keep in registers what the next step reads (along.go)
//	Reduce       lanes along the row, or results along the row, by how the In lies; several blocks for few results (reduce.go)
//	rows         a warp or block for each row, which keeps it in registers
//	pooling      a thread for each element of the result, gradients too: they look at the windows that an element lies in;
//	             of windows that do not overlap, a thread has the largest of one or few, and of its gradient
//	Gather       a thread for 16 bytes of the result
//	GatherGrad   a block for 64 columns of one row of the result looks at all indices: with A rows, C indices and inner length N
//	             it reads min(A, C)*C*ceil(N/64) indices, and dy once
//	BatchNorm    a block for a channel, or some channels of neighbouring elements; several blocks for few channels
//	products     tiles in shared memory, 4 by 4 results a thread, for what cuBLAS and cuDNN do not do; convolutions find their
//	             operands where they lie
//	Attention    a block has 64 queries of a head and goes through its keys in tiles, with tensor cores; of its gradient, there are
//	             blocks for queries and blocks for keys, which all compute the shares anew (attention.go)
//	thin         convolutions with C*R*S up to 32, and their gradients for the filter: windows in registers (thin.go)
//
// Every sum has one order, whatever the timing: there are no floating-point atomics. Where several
// blocks share a sum, each writes its part to scratch memory, and the last to come, by a counter
// that ends at 0 again, adds the parts in their order. So a captured graph can be replayed, and
// gives the same bits.
//
// # Arithmetic
//
// In f32, or f64 where an operand is, as package program says. Functions are CUDA's accurate ones,
// never those of --use_fast_math; denormal numbers are kept; the compiler may fuse a product and a
// sum. Copies move bits. Attention multiplies bf16: its shares, and their gradients, are rounded to
// that, and its exponentials are those of ex2.approx, 2 units of the last place of f32 off.
//
// Sources: CUDA C++ Programming Guide, "Mathematical Functions", "Memory Fence Functions" (the last
// block); T. Dao, FlashAttention-2; M. Harris, "Optimizing Parallel Reduction in CUDA"; J. Salmon
// et al. (kernels/rand.cu); T. Chan et al. (kernels/norm.cu).
package cudagen
