// Package cudagen makes CUDA C of a program: one text for NVRTC, and for each step the launches
// that do it. It knows no device and needs none; internal/cudaexec compiles and launches.
//
// # The text
//
// The kernels folder has the parts that do not depend on a program: conversions, scalar operations,
// sums over threads, and function templates for the steps whose code is always the same (softmax,
// pooling, gathers, normalization, products, convolution). A text has the files that its steps
// need, then a kernel for each different step. Shapes and strides are constants in it, so divisions
// become multiplications and loops have known ends. Only addresses, with the offsets of views, are
// arguments, so equal steps on different memory share a kernel.
//
// The code of Map and Reduce is written here, statement by statement (scalar.go). First the index
// space is simplified (nest.go): dims of one element are dropped, neighbours are joined if every
// view is contiguous across them, and the dim that is written fastest comes last. Each value is
// computed as far out as possible: constant values before the loop, values shared by neighbours
// once for all of them. A thread has up to 32 bytes of neighbours if all Outs are stored so;
// unaligned addresses are read one by one.
//
// # Shapes of kernels
//
//	Map          a thread for one or a few elements, in a grid that fills the GPU and then repeats
//	             (map.go); tiles of 32 by 32 in shared memory if Ins are contiguous along another
//	             dim than Outs (tiled.go); independent successive Maps are one launch, whose blocks
//	             find their Map by number (merge.go)
//	chains       successive Maps, Reduces and softmaxes along the same rows: one launch, in which
//	             some threads have a row and keep intermediate results in registers (along.go)
//	Reduce       lanes or results along the row, by the strides of the In; several blocks for few
//	             results (reduce.go)
//	rows         a warp or block for each row, which keeps it in registers
//	pooling      a thread for each element of the result, and of the gradient, which looks at the
//	             windows that contain an element; if windows do not overlap, a thread has the
//	             largest of one or a few, and its gradient
//	Gather       a thread for 16 bytes of the result
//	GatherGrad   a block for 64 columns of one row of the result looks at all indices: with A rows,
//	             C indices and inner length N it reads min(A, C)*C*ceil(N/64) indices, and dy once
//	BatchNorm    a block for a channel, or for channels of neighbouring elements; several blocks
//	             for few channels
//	products     tiles in shared memory, 4 by 4 results a thread, if cuBLAS and cuDNN do not do
//	             them; convolutions read their operands in place
//	Attention    a block has 64 queries of a head and iterates over its keys in tiles, with tensor
//	             cores; its gradient has blocks for queries and blocks for keys, which all compute
//	             the shares anew (attention.go)
//	thin         convolutions with C*R*S up to 32, and their gradients for the filter: windows in
//	             registers (thin.go)
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
