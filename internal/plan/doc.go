// Package plan predicts a run without ranks: the memory of each rank and the communication of each
// step, for all stages of sharding, and the exposed part of that communication.
//
//	job, err := plan.Look(subject) // builds the model, attaches ddp, compiles: sizes
//	p, err := plan.New(job)        // all numbers
//	p.Predict(link, compute, true) // and times
//	fmt.Print(p)
//
// A running program makes its Job itself: of the Plan of its DDP, the Footprint of its machine, and
// its solver's rule. Compare prints predicted and measured numbers side by side.
//
// # Memory
//
// With P the bytes of all parameters, n ranks and S slots of state for each weight (2 for Adam,
// optim.Config.Slots), a rank has, where it computes,
//
//	             stage 0      1            2                3
//	parameters   P            P            P                P/n
//	gradients    P            P            P/n              P/n
//	state        S P          S P/n        S P/n            S P/n
//	staging      0            0            2 B              2 B       B: the largest bucket
//	wire         messages of the largest bucket, with comm.wire_dtype or a hook, and their state
//	             (P for error feedback)
//	activations  arena, constants and scratch memory of the compiled graph; in stage 3 with the
//	             weights of two buckets in it
//	inputs       of one run of the graph; on a GPU two of each: one is copied, the other read
//
// which is, for Adam in float32, 16 bytes a parameter in stage 0, 8+8/n, 4+12/n and 16/n: the
// formulas of Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter
// Models, 2020, section 5, without its half-precision copies. The numbers of a Plan are exact where
// these are not. With sharding a parameter begins at a multiple of optim.Block elements in its
// bucket, and a bucket is padded to n shards of so many; the sizes are those of ddp.PlanFor and
// ddp.Plan.Room, which are Attach's own. State counts a rank's elements, without padding. Staging
// also has buffers of machine and ddp for gradients that are elsewhere, and the words of weights
// and factors. Activations are those of machine.Foresee.
//
// Not counted: the data set, the graph itself (some KiB a node), programs, and on a GPU the
// driver's context, kernels, and workspaces that libraries take for themselves.
//
// # Communication
//
// A step is, in elements that each rank hands over, with V(n) = (n-1)/n of them sent for a scatter
// or a gathering (see Sent),
//
//	stage 0   allreduce of each bucket                                     2 P
//	stage 1   reducescatter of each, allgather of the new weights          2 P
//	stage 2   the same                                                     2 P
//	stage 3   allgather of the weights forward, again backward where two   3 P
//	          uses are far apart, reducescatter of each bucket
//
// as in section 7 of the same paper, and one number for the weights of the ranks (samples).
// Clipping, the test for gradients that are no numbers, and LAMB add sums of float64 over blocks of
// optim.Block elements; without sharding a rank has all of them. The list of Stage.Step equals that
// of the flight recorder of every rank for a step, in its order.
//
// # Time
//
// Collectives run one after the other. A bucket can be reduced when its last gradient has arrived.
// The model assumes that gradients arrive evenly by their elements over the backward pass, which is
// two thirds of forward and backward. Communication after the end of the pass, and after the
// update, is exposed: see Stage.exposed. Gathers of stage 3 are one layer ahead, so only the first
// is exposed, unless a layer is computed faster than the next is gathered.
//
// Read it in this order:
//
//	plan.go     inputs and outputs
//	look.go     inputs from the graph
//	stage.go    one stage: its buckets, its collectives
//	memory.go comm.go exposed.go    the numbers
//	text.go compare.go              output
package plan
