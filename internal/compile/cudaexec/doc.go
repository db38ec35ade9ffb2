// Package cudaexec runs programs on a GPU. It allocates memory for their values, orders their steps
// on streams and compiles kernels for the steps that no library does. After the first run it
// replays the whole program, with collectives and weight updates, as one CUDA graph.
//
//	r, err := cudaexec.New(p, cudaexec.Config{Device: v}, program.Env{Groups: groups})
//	defer r.Close()
//	err = r.Bind(w, weights)          // each Outside value
//	x := r.(*cudaexec.Exec)
//	for {
//	    err = x.Stage(input, batch)   // copied during the previous run
//	    err = r.Run()                 // queued
//	    err = x.ReadRun(x.Runs()-1, loss, dst) // results of the previous run: no wait for this one
//	}
//
// # Files
//
//	exec.go, run.go, config.go           loading, binding, runs, settings
//	order.go, streams.go, graph.go       streams, events between them, captured graphs
//	kernel.go, hostcall.go, comm.go      kernels of cudagen, Calls, collectives
//	product*.go, conv.go, tune_*.go      cuBLAS and cuDNN; candidates timed and agreed on by ranks
//	memory.go, staging.go, readback.go   device memory, inputs from and results to the host
//	profile.go                           Profile: where the time of a run goes
//
// # Steps
//
//	MatMul         cuBLAS, if installed; else kernels of internal/compile/cudagen
//	convolutions   cuDNN, if installed; kernels where cudagen.Direct says that they are faster
//	Collective     the group, which chooses an engine
//	Call           a host function on copies of the operands, else ErrUnsupported
//	all others     internal/compile/cudagen: one CUDA text, compiled by NVRTC, cached on disk
//
// With Config.Tune several candidates are timed for each product and convolution. The ranks of a
// group take the candidate that is fastest on the slowest of them. A large AᵀB, such as a weight
// gradient, is also timed with a transposed copy of one operand (product_turn.go). All products of
// a stream share the memory for such copies. Footprint counts it, Foresee does not.
//
// # Memory
//
// The arena is one block, or memory of a symmetric heap (Config.Arena). A second block has
// constants, scratch memory of the steps, which starts as zeros, and a few words. Kernels find
// operands by an entry of an address table and an offset. Bind changes the table. A graph keeps the
// addresses that it was captured with, so each set of bound memory has a graph, four at most.
//
// # Streams and events
//
// Collectives run on the stream of the program's first group, at the highest priority: blocks of a
// collective then start before those of a large product. The Compute stream has the lowest
// priority, or the one above it if steps are on Side, which then has the lowest. Collectives of the
// program's Comm stream also say that they overlap a computation, see dist.Hints.
//
// An event orders two streams wherever a step needs one of another stream for the first time. Each
// stream with products has a cuBLAS handle, and so a workspace. A run begins and ends on the
// groups' stream, or on Compute if there are no groups. Other work on that stream runs between two
// runs. Two programs that share memory are ordered by Wait, or by events between their streams
// (Exec.Stream).
//
// # Groups and replays
//
// A group announces its operations to the other ranks when they are queued. A replay announces
// nothing. So after each run every group gets an operation without elements, which launches
// nothing. With it the ranks check that they run the same program, and a wait ends with a
// *dist.RankError when a rank dies. The ring of announcements bounds how far a rank may be ahead.
//
// A capture compares the operations one by one, so all ranks must capture together: bind new memory
// on all ranks between the same runs, or on none. A rank whose Run fails for a reason of its own,
// such as an index out of range in its data, has to end: the others wait for it until the step
// timeout.
//
// # The end of a run
//
// A kernel of one block copies small outputs and the fault words to pinned memory, in a slot for
// each of the last four runs, and advances the clock. It is part of the graph. So reading results
// needs no driver call, and each replay draws new random numbers.
package cudaexec
