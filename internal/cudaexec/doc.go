// Package cudaexec runs programs on a GPU: it gives their values memory and their steps streams,
// has kernels compiled for what no library does, and after the first run replays the whole program,
// collectives and update of the weights included, as one CUDA graph.
//
//	r, err := cudaexec.New(p, cudaexec.Config{Device: v}, program.Env{Groups: groups})
//	defer r.Close()
//	err = r.Bind(w, weights)          // each Outside value
//	x := r.(*cudaexec.Exec)
//	for {
//	    err = x.Stage(input, batch)   // copied while the run before goes on
//	    err = r.Run()                 // queued
//	    err = x.ReadRun(x.Runs()-1, loss, dst) // of the run before: nobody waits for this one
//	}
//
// # Who does what
//
//	step                  by
//	MatMul                cuBLAS, if there is one; else kernels of internal/cudagen
//	convolutions          cuDNN, likewise, but for those of few channels: see cudagen.Direct
//	Collective            the group, which may choose among engines
//	Call                  nobody: it is ErrUnsupported on a device
//	all others            kernels of internal/cudagen: one text for a program, compiled by NVRTC and kept on disk
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
// Compute has a stream of the least priority, or, where steps are on Side, of the next one: these
// have the least. Collectives, wherever the program has them, go to the stream of the first group
// among them, which has the greatest, so that blocks of a collective start before those of a large
// product; those of the program's Comm stream say that they run beside a computation
// (dist.Group.Beside). Between streams stand events where a step of one waits for a step of another
// for the first time. cuBLAS has a handle, and so a workspace, for each stream with products. A run
// begins and ends on the groups' stream (on that of Compute where there are no groups): whatever
// else is queued there comes between runs. Two programs that share memory are ordered by Wait, or
// by events between what Exec.Stream gives of both.
//
// # Groups and replays
//
// A group announces its operations to the other ranks when they are queued; in a replay nothing is.
// So behind each run stands an operation without elements of each group: the ranks compare that
// they run alike, a wait for it ends with an *dist.RankError when a rank has died, and no rank is
// more than a ring of announcements ahead. It launches nothing. While the program is captured its
// operations are compared one by one, so that ranks must capture together: bind memory anew on all
// ranks between the same runs, or on none. A rank whose Run fails without a reason that all share,
// such as an index out of range in its data, has to end: the others' runs wait for it until the
// step timeout.
//
// # The end of a run
//
// A kernel of one block copies small outputs and the fault words to pinned memory, a slot for each
// of the last four runs, and moves the clock on. It is part of the graph: with it, results of a run
// need no call of the driver, and a replay has new random numbers.
//
// # Times
//
// Profile captures the program with kernels between the steps that note the device's clock
// (%globaltimer, whose steps are up to 1 µs long on some GPUs). Exposed is the time in which a
// collective runs and no step of Compute does. A step of Compute counts from the moment when what
// it waits for is done.
package cudaexec
