// Package ddp is data-parallel training: every rank holds the whole model and a part of each batch,
// and the gradients are averaged over the ranks while the backward pass still runs.
//
//	grads, err := gorgonia.Grad(cost, learnables...)           // one process
//	d, err := ddp.Attach(world, cost, learnables, ddp.Config{}) // any number of ranks
//
// Nothing else of a Gorgonia program changes: the model, gorgonia.NewTapeMachine with any of its
// options, solvers, and reading gradients work as before.
//
// # Attach and the graph
//
// The graph is built when Attach gets it. Attach puts a hook between each parameter and the nodes
// that use it, calls gorgonia.Grad, and wires the gradients of the hooks (ops.Overlap). Each
// gradient is copied into its slot of a bucket as soon as it has been computed. When the last slot
// of a bucket is filled, the bucket is reduced over the ranks, in the background. The gradient
// nodes wait for that at the end of the run. Buckets are in one region of the symmetric heap for
// each dtype, in the order in which the backward pass fills them, as in PyTorch's
// DistributedDataParallel (docs.pytorch.org/docs/stable/notes/ddp.html). All ranks start them in
// that order, whatever the order in which they fill.
//
// Attach compares the plan (settings, parameters, buckets, operations) over all ranks before the
// first reduction, and copies rank 0's weights of the learnables to all ranks. Every other input is
// this rank's own, also frozen weights, which are no learnables. Give these equal values: from one
// file, from one seed (gorgonia.GlorotU has another in each process), or by a Broadcast of the
// group.
//
// # The gradient
//
// With w_r the weight that rank r gave for the step (SetWeight; the number of samples in its part
// of the batch) and g_r the gradient of its own mean cost, every rank's gradient is
//
//	sum over r of (w_r / W) g_r,  W = sum over r of w_r
//
// which is the gradient of the mean cost over the whole batch, whether or not the parts are equal;
// a rank with weight 0 adds exact zeros. Products are rounded before they are added, and added in
// rank order. So the bits depend neither on the size of the buckets nor on overlap, and with one
// rank they are those of gorgonia.Grad.
//
// # Accumulation
//
// Inside NoSync, runs of the graph add w g to the buckets locally. The next run outside it adds its
// own and reduces the sum, so that the gradient is sum of w g over ranks and micro-batches, divided
// by the sum of w:
//
//	err := d.NoSync(func() error { ...; return vm.RunAll() }) // micro-batches but the last
//	...; err = vm.RunAll()                                   // the last
//	err = solver.Step(d.Model())
//
// Runs inside NoSync have zero gradients. With gorgonia.BindDualValues, which adds the gradients of
// all runs, the sum is therefore the gradient of the last run, as it should be.
//
// # Sharding
//
// With Config.Stage every parameter begins at a multiple of optim.Block elements of its bucket, and
// of each bucket a rank owns one run of equal length, whatever the parameters in it: at most one
// piece of each (Pieces). A rank keeps the solver's state of its pieces only, and updates these
// (ZeRO, Rajbhandari et al., arXiv:1910.02054):
//
//	Stage 1  buckets are reduce-scattered in place; the rank updates its pieces; the weights, in
//	         buckets of their own of the same layout, are gathered in place. 8P + 8P/N bytes for
//	         Adam in float32, P parameters, N ranks.
//	Stage 2  in addition, buckets of gradients exist only while they fill and are reduced, in two
//	         buffers of the largest bucket's size; the rank keeps its run of each. 4P + 12P/N bytes.
//	Stage 3  in addition, the graph gathers weights bucket by bucket when it needs them. 16P/N
//	         bytes, and the gathered buckets: two at a time under package machine, all of them
//	         under a tape machine.
//
// The program changes in one line, the solver's, which is then collective:
//
//	solver, err := d.NewSolver(optim.Config{Name: optim.Adam})
//	...
//	err = vm.RunAll()
//	err = solver.Step(d.Model())
//
// Weights have the bits of Stage 0, on any number of ranks: products and sums are the same, element
// by element, and norms are sums of blocks that no piece cuts. There is one exception, accumulation
// with Stage 2, whose sums have another order. Memory returns the allocations of a rank.
//
// The nodes' values are views of the buckets of weights from Attach to Close, which gives the nodes
// copies: close d before its world. A value that the program gives a parameter with gorgonia.Let is
// moved into its bucket by the next Step.
//
// On GPUs a machine of package machine does all of it, with a Config.Solver that makes the update a
// part of the run: its NewSolver replaces this package's. With Stage 1 and 2 the nodes' values are
// the host's, as without sharding. With Stage 2 and 3 nodes get no gradients there. With
// OverlapGather the next run gathers the updated weights during its forward pass, layer by layer.
// In between each is whole only on the rank that updated it. Readers of weights get an error until
// Consolidate has gathered them, on all ranks; the machine's Sync then gives them to the nodes.
//
// A solver of another package cannot use the gradients of nodes with sharding. With Stage 1 they
// are the reduced ones in this rank's pieces, and this rank's own, not reduced, everywhere else;
// with Stage 2 and 3 they are zeros. Such a solver, also one of optim.New, would train ranks apart,
// or not at all. The solver of NewSolver reads gradients in the buckets. For the same reason
// gorgonia.BindDualValues cannot add up runs: accumulate inside NoSync.
//
// With Stage 2 a bucket is reduced as soon as it is full even if NoOverlap is set, and waited for
// at once, since the next one needs its memory (on GPUs the program does, and not the host); and
// runs inside NoSync are reduced as well, so that all ranks must have as many of them.
//
// With Stage 3 parameters are put into buckets in the order of their first use in the forward pass,
// and nodes that used a parameter read a part of a gathered bucket. A learnable's value has a shape
// and no elements, so readers of elements get an error. Consolidate gives the nodes whole values
// until the next run, which takes over the values of the nodes, also those from gorgonia.Let. All
// ranks must run the graph by machines of one kind, since package machine gathers a bucket again
// for the backward pass and a tape machine keeps it.
//
// # Messages
//
// WireDType: tensor.BF16 sends half the bytes: each rank's share of a gradient is rounded once to
// bf16, summed in float32 in rank order, and rounded once. ErrorFeedback adds the rounding error of
// a rank to its next gradient. A Hook sends anything else that can be summed; PowerSGD{Rank: 4}
// sends 4(n+m) numbers for an n by m matrix. Average is another mean than that by weights.
// VirtualRanks: 4 gives the same bits on 1, 2 and 4 ranks: a step is then V/n-1 runs inside NoSync
// and one outside. LocalSteps: k exchanges no gradients, and averages weights every k-th step of
// NewSolver's solver, each rank's by the samples that it saw.
//
// The state of a hook has no trace of a step with gradients that are not finite, which solvers skip
// or refuse, nor of one that has failed: residuals begin anew, on all ranks.
//
// # Errors
//
// A peer that dies, is late, or runs another program makes RunAll return an error that names rank,
// operation and bucket; ops.Cause removes Gorgonia's wrapping. Reset the machine before the next
// run. After an error that broke the group, every run returns it. After any other (of a node of the
// model, say) the next run is clean, if all ranks failed in the same way; accumulated gradients are
// dropped. The DDP does not see a run that fails in its forward pass, and keeps accumulated
// gradients for the same batch: to continue with another, drop them.
//
//	_ = d.NoSync(func() error { return err })
package ddp
