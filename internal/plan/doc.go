// Package plan tells what a run will take before there are ranks: the memory of each rank and the
// communication of each step, for all stages of sharding, and how long that communication will be
// waited for.
//
//	job, err := plan.Look(subject) // builds the model, attaches ddp, compiles: sizes of buckets and of the arena
//	p, err := plan.New(job)        // all numbers
//	p.Predict(link, compute, true) // and times
//	fmt.Print(p)
//
// A program that runs already knows its Job itself: the Plan of its DDP, the Footprint of its
// machine, its solver's rule. What it has measured stands beside what was predicted in the text of
// Compare.
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
//	wire         the messages of the largest bucket, with comm.wire_dtype or a hook, and what these keep (P for error feedback)
//	activations  arena, constants and scratch memory of the compiled graph; in stage 3 with the weights of two buckets in it
//	inputs       of one run of the graph; on a GPU two of each, as one is copied while the other is read
//
// which is, for Adam in float32, 16 bytes a parameter in stage 0, 8+8/n, 4+12/n and 16/n: the
// formulas of Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter
// Models, 2020, section 5, without its half-precision copies. The numbers of a Plan are exact where
// these are not. With sharding a parameter begins at a multiple of optim.Block elements in its
// bucket, and a bucket is filled up to n shards of so many; the sizes are those of ddp.PlanFor and
// ddp.Plan.Room, which are Attach's own. State counts what a rank owns, without what fills up.
// Staging has besides what machine and ddp keep for gradients that are elsewhere, and the words of
// weights and factors. Activations are those of machine.Foresee.
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
// optim.Block elements, of which a rank without sharding has all. The list of Stage.Step is what
// the flight recorder of every rank shows for a step, in its order.
//
// # Time
//
// Collectives run one after the other. A bucket can be reduced when its last gradient has come;
// gradients are taken to come evenly by their elements over the backward pass, two thirds of
// forward and backward. What is left when the pass ends is waited for (exposed), as is what waits
// for the update: see Stage.exposed. Gatherings of stage 3 are one layer ahead, so that only the
// first is waited for, unless a layer is computed faster than the next is gathered.
//
// Read it in this order:
//
//	plan.go     what goes in and what comes out
//	look.go     the graph: what goes in, found out
//	stage.go    one stage: its buckets, its collectives
//	memory.go comm.go exposed.go    the numbers
//	text.go compare.go              what is told
package plan
