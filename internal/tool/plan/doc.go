// Package plan predicts the memory of each rank and the communication of each step, for all stages
// of sharding and without starting ranks. Given the speed of the link, it predicts how long a step
// waits for communication.
//
//	job, err := plan.Look(subject) // builds the model, attaches ddp, compiles
//	p, err := plan.New(job)        // memory and communication
//	p.Predict(link, compute, true) // times
//	fmt.Print(p)
//
// A training program builds its Job from its DDP, machine and solver (Training). Compare prints its
// measurements next to the prediction.
//
// # Memory
//
// P is the bytes of all parameters, n the number of ranks, and S the slots of state for each weight
// (2 for Adam, optim.Config.Slots). A rank holds, on the device where it computes,
//
//	             stage 0   1       2       3
//	parameters   P         P       P       P/n
//	gradients    P         P       P/n     P/n
//	state        S P       S P/n   S P/n   S P/n
//	staging      0         0       2 B     2 B    B: bytes of the largest bucket
//	wire         with a wire dtype or hook: messages of the largest bucket, P for error feedback
//	activations  arena, constants, scratch of the graph; in stage 3 weights of 2 buckets
//	inputs       those of one run; on a GPU twice, as one is copied while the other is read
//
// For Adam in float32 that is 16, 8+8/n, 4+12/n and 16/n bytes a parameter in stages 0 to 3. These
// are the formulas of Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion
// Parameter Models, 2020, section 5, without its half-precision copies. A Plan has exact numbers:
//
//   - Sizes are those that Attach uses: ddp.PlanFor and ddp.Plan.Room. With sharding, parameters
//     are aligned to optim.Block elements, and a bucket is padded to n equal shards.
//   - State counts the weights that a rank owns, without padding. Activations are those of
//     machine.Foresee. Staging includes scalars and buffers for sharded or accumulated gradients.
//
// Not counted: the data set, the graph itself (some KiB a node), programs, and on a GPU the
// driver's context, kernels, and workspaces that libraries allocate.
//
// # Communication
//
// The last column counts elements that each rank contributes. For a reducescatter or an allgather
// a rank sends (n-1)/n of them (see Sent).
//
//	stage 0   allreduce of each bucket                                     2 P
//	stage 1   reducescatter of each, allgather of the new weights          2 P
//	stage 2   the same                                                     2 P
//	stage 3   allgather of the weights forward, again backward where two   3 P
//	          uses are far apart, reducescatter of each bucket
//
// The volumes are those of section 7 of the same paper. A step also exchanges the ranks' sample
// counts. With sharding, gradient clipping, the check for non-finite gradients and LAMB add sums of
// float64 over blocks of optim.Block elements. Stage.Step has the operations in the order in which
// the flight recorder of each rank shows them.
//
// # Time
//
// The prediction assumes:
//
//   - Collectives run one after the other. A bucket can start once its last gradient is ready.
//   - Gradients become ready evenly, by their elements, over the backward pass, which takes two
//     thirds of forward and backward.
//   - Between hosts, package hostcost has the times of the algorithms of internal/net/hosts.
//   - Stage 3 gathers weights one layer ahead and in time, so that only the first is exposed.
//
// Communication after the backward pass, or after the update, is exposed: see Stage.exposed.
//
// Files:
//
//	plan.go look.go found.go       Job, Plan, Stage; a Job from a graph or a running program
//	stage.go                       buckets and collectives of one stage
//	memory.go comm.go exposed.go   memory, volume, time
//	text.go compare.go             tables
package plan
