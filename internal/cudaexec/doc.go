// Package cudaexec runs programs on a GPU. It gives memory to their values and streams to their
// steps, and compiles kernels for the steps that no library does. After the first run it replays
// the whole program, with collectives and update of the weights, as one CUDA graph.
//
//	r, err := cudaexec.New(p, cudaexec.Config{Device: v}, program.Env{Groups: groups})
//	defer r.Close()
//	err = r.Bind(w, weights)          // each Outside value
//	x := r.(*cudaexec.Exec)
//	for {
//	    err = x.Stage(input, batch)   // copied during the previous run
//	    err = r.Run()                 // queued
//	    err = x.ReadRun(x.Runs()-1, loss, dst) // of the previous run, without waiting for this one
//	}
//
// # Who does what
//
//	step                  by
//	MatMul                cuBLAS, if there is one; else kernels of internal/cudagen
//	convolutions          cuDNN, likewise, except those of few channels: see cudagen.Direct
//	Collective            the group, which may choose among engines
//	Call                  the host, on copies; ErrUnsupported without Copies
//	all others            kernels of internal/cudagen: one source for a program, compiled by NVRTC
//
// With Config.Tune a product is done in the fastest of several ways; ranks of a group take the one
// that is fastest on the slowest of them. A large AᵀB, such as the gradient of weights, is timed
// with a transposed copy of an operand as well (product_turn.go). The copies of all products share
// one place: products are on one stream. Footprint counts it; Foresee cannot know of it.
//
// # Memory
//
// One block is the arena, or memory of a symmetric heap (Config.Arena). Another has constants,
// scratch memory of the steps, which is 0 at first, and a few words. All that a kernel is given is
// an address of a table and an offset; Bind changes the table. A graph keeps the addresses that it
// was captured with, so each set of bound memory has a graph of its own, four at most.
//
// # Streams and events
//
// Compute has a stream of the lowest priority or, if steps are on Side, of the next one: Side then
// has the lowest. All collectives run on the stream of their first group, which has the highest
// priority. So blocks of a collective start before those of a large product. Collectives of the
// program's Comm stream declare that a computation runs at the same time (dist.Group.Beside).
// Events order streams where a step of one waits for a step of another for the first time. cuBLAS
// has a handle, and so a workspace, for each stream with products. A run begins and ends on the
// groups' stream, or on that of Compute without groups. Other work that is queued there runs
// between runs. Wait, or events between the two results of Exec.Stream, order two programs that
// share memory.
//
// # Groups and replays
//
// A group announces its operations to the other ranks when they are queued; a replay queues none.
// So an operation without elements follows each run, for each group. By it the ranks compare their
// runs, a wait ends with a *dist.RankError when a rank has died, and no rank is more than a ring of
// announcements ahead. It launches nothing. During the capture of a program its operations are
// compared one by one, so ranks must capture together: bind memory anew on all ranks between the
// same runs, or on none. A rank whose Run fails for a reason of its own, such as an index out of
// range in its data, must end: the runs of the others wait for it until the step timeout.
//
// # The end of a run
//
// A kernel of one block copies small outputs and the fault words to pinned memory, a slot for each
// of the last four runs, and moves the clock on. It is part of the graph: with it, results of a run
// need no call of the driver, and a replay has new random numbers.
//
// # Times
//
// Profile captures the program with kernels between the steps that record the device's clock
// (%globaltimer, whose steps are up to 1 µs long on some GPUs). Exposed is the time in which a
// collective runs and no step of Compute does. A step of Compute counts from the moment when it no
// longer waits.
package cudaexec
