// Package ddp trains data-parallel: every rank holds the whole model and a part of each batch, and
// gradients are averaged over the ranks while the backward pass still runs.
//
//	grads, err := gorgonia.Grad(cost, learnables...)            // one process
//	d, err := ddp.Attach(world, cost, learnables, ddp.Config{}) // any number of ranks
//
// The rest of a Gorgonia program stays: the model, gorgonia.NewTapeMachine with any of its options,
// solvers, and reading gradients.
//
// # Files
//
//	ddp.go, step.go                   DDP, and a step on the host
//	attach.go, rewire.go, agree.go    Attach: hooks in the graph, comparison over the ranks
//	team.go, weight.go                the group, its stream, names of operations; weights of ranks
//	config.go, plan.go, planfor.go    settings, layout of the buckets, planning without ranks
//	bucket.go, place.go, placer.go    slots and buckets, and their memory
//	recipe.go, line.go                actions of a full bucket, and their run on the host
//	wire*.go, hook.go                 exchangers: plain sums, averages, hooks of package compress
//	virtual.go, local.go              exchangers: virtual ranks, local steps
//	stage.go, shard*.go, zero3*.go    stages: 0 and 1, 2, 3
//	driver.go, device*.go             the same for package machine on GPUs
//	join.go, part.go, rows.go         uneven batches
//	timeline.go, diff.go, imagine.go  times of a step, comparing gradients, plans without memory
//
// # How does Attach change the graph?
//
// Attach needs the finished graph. It puts a hook between each parameter and the nodes that use it,
// calls gorgonia.Grad, and wires the hooks' gradients (ops.Overlap). Each gradient is copied into
// its slot of a bucket as soon as it is computed. When the last slot of a bucket is filled, the
// bucket is reduced over the ranks in the background. The gradient nodes wait for that at the end
// of the run. Buckets of a dtype share one region of the symmetric heap, in the order in which the
// backward pass fills them, as in PyTorch's DistributedDataParallel
// (docs.pytorch.org/docs/stable/notes/ddp.html). All ranks start them in that order, even if they
// fill in another.
//
// Before the first reduction Attach compares the plan (settings, parameters, buckets, operations)
// over all ranks and copies rank 0's learnables to all ranks. Ranks keep their own other inputs,
// including frozen weights, which are not learnables. The program must make those equal: from one
// file, from one seed (gorgonia.GlorotU differs by process), or by a Broadcast of the group.
//
// # Which gradient does a rank get?
//
// Let w_r be the weight of rank r in the step (SetWeight; the number of samples in its part of the
// batch) and g_r the gradient of its own mean cost. Every rank's gradient is
//
//	sum over r of (w_r / W) g_r,  W = sum over r of w_r
//
// which is the gradient of the mean cost over the whole batch, also for unequal parts. A rank with
// weight 0 adds exact zeros. Products are rounded before they are added, and added in rank order.
// So the bits depend neither on the size of the buckets nor on overlap, and with one rank they are
// those of gorgonia.Grad.
//
// # Accumulation
//
// Inside NoSync, runs of the graph add w g to the buckets locally. The next run outside adds its
// own and reduces the sum. The gradient is the sum of w g over ranks and micro-batches, divided by
// the sum of w:
//
//	err := d.NoSync(func() error { ...; return vm.RunAll() }) // all micro-batches except the last
//	...; err = vm.RunAll()                                   // the last
//	err = solver.Step(d.Model())
//
// Runs inside NoSync have zero gradients. So gorgonia.BindDualValues, which sums the gradients of
// all runs, correctly yields the last run's gradient.
//
// # Sharding
//
// With Config.Stage every parameter begins at a multiple of optim.Block elements of its bucket.
// Each rank owns one run of each bucket, all of equal length, and thus at most one piece of a
// parameter (Pieces). It updates only its pieces and keeps only their solver state (ZeRO,
// Rajbhandari et al., arXiv:1910.02054). P parameters in float32 and Adam take on each of N ranks:
//
//	Stage 1  8P + 8P/N bytes. Buckets are reduce-scattered in place; the rank updates its pieces.
//	         Weights are in buckets of the same layout and are gathered in place.
//	Stage 2  4P + 12P/N bytes. In addition, buckets of gradients exist only while they fill and are
//	         reduced, in two buffers of the largest bucket's size. The rank keeps its run of each.
//	Stage 3  16P/N bytes and the gathered buckets. The rank keeps its run of the weights too. The
//	         graph gathers a bucket while it needs it: package machine holds two at a time, a tape
//	         machine all.
//
// The program changes in one line, the solver's, whose Step is then collective:
//
//	solver, err := d.NewSolver(optim.Config{Name: optim.Adam})
//	...
//	err = vm.RunAll()
//	err = solver.Step(d.Model())
//
// Weights get the bits of Stage 0, on any number of ranks: products and sums are the same, element
// by element, and norms are sums of blocks that no piece cuts. The one exception is accumulation
// with Stage 2, which sums in another order. Memory returns the allocated bytes.
//
// The nodes' values are views of the buckets of weights from Attach to Close, which gives the nodes
// copies: close d before its world. A value that the program sets with gorgonia.Let is moved into
// the parameter's bucket by the next Step.
//
// On GPUs a machine of package machine does all this. Its Config.Solver makes the update a part of
// the run, and its NewSolver replaces this package's. With Stage 1 and 2 the nodes' values are in
// host memory, as without sharding. With Stage 2 and 3 nodes get no gradients. With OverlapGather
// the next run gathers updated weights during its forward pass, layer by layer; with Stage 1 the
// updating run gathers the first layers itself. In between, only the rank that updated a weight has
// it. Reading others returns an error until Consolidate has gathered them, on all ranks, and the
// machine's Sync has set the nodes' values.
//
// A solver of another package, or of optim.New, cannot use the nodes' gradients, and would train
// ranks apart or not at all. With Stage 1 they are reduced in this rank's pieces only; with Stage 2
// and 3 they are zeros. The solver of NewSolver reads gradients in the buckets. For the same reason
// gorgonia.BindDualValues cannot sum runs: accumulate inside NoSync.
//
// With Stage 2 a bucket is reduced as soon as it is full even if NoOverlap is set, and waited for
// at once, since the next one needs its memory (on GPUs the program waits, not the host). Runs
// inside NoSync are reduced as well, so all ranks must make the same number of them.
//
// With Stage 3 parameters are put into buckets in the order in which the forward pass first uses
// them, and their users read a part of a gathered bucket. A learnable's value has a shape and no
// elements, so that code that needs elements returns an error. Consolidate gives the nodes whole
// values until the next run, which takes over the values that nodes then have, also those set by
// gorgonia.Let. All ranks must use machines of one kind: package machine gathers a bucket again for
// the backward pass and a tape machine keeps it.
//
// # Rows that shard, columns that replicate
//
// With Config.Replicas only the ranks of the group of Attach share a model's shards, and the ranks
// of Replicas hold the same ones (HSDP of PyTorch). Weights are gathered within a row, over its
// fast links, and between rows only shards of gradients travel:
//
//	row, column, err := world.Split2D(8) // 8 GPUs of a host
//	d, err := ddp.Attach(row, cost, learnables, ddp.Config{Stage: 3, Replicas: column})
//
// A sum is over the row and then over the column, so its last bits depend on the shape of the mesh.
// They are those of plain training if the row or the column is one rank.
//
// # Which messages do ranks send?
//
// Settings change the messages, or the reduction:
//   - WireDType tensor.BF16 halves the bytes: each rank's share of a gradient is rounded once to
//     bf16, summed in float32 in rank order, and rounded once. ErrorFeedback adds a rank's rounding
//     errors to its next gradient.
//   - A Hook of package compress defines other messages that can be summed. PowerSGD{Rank: 4} sends
//     4(n+m) numbers for an n by m matrix.
//   - Average replaces the weighted mean.
//   - VirtualRanks: 4 gives the same bits on 1, 2 and 4 ranks. A step is then V/n-1 runs inside
//     NoSync and one outside.
//   - LocalSteps: k exchanges no gradients. It averages weights every k-th step of NewSolver's
//     solver, each rank's by the samples that it used.
//
// All of these work on GPUs, with the bits of the host where sums are in rank order. Casts, with
// error feedback or without, averages and virtual ranks are steps of the machine's program. For any
// other Hook the machine copies each bucket to the host after the backward pass, the Codec runs
// there, and the GPUs sum its messages: nothing overlaps, and a Codec with state needs Stage 0. If
// a Codec returns an error, the group is aborted. LocalSteps averages weights on the GPUs, and the
// host waits for that; with SkipNonFinite the host waits for every step.
//
// A step that failed, or whose gradients are not finite, leaves nothing in a hook's state:
// residuals restart at 0 on all ranks. Solvers skip or reject such steps.
//
// # Errors
//
// If a peer dies, is late, or runs another program, RunAll returns an error that names rank,
// operation and bucket; ops.Cause removes Gorgonia's wrapping. Reset the machine before the next
// run. After an error that broke the group, every run returns it. After another error (of a model's
// node, say) the next run works, provided that all ranks failed; accumulated gradients are dropped.
// d cannot detect a run that fails in its forward pass, and keeps the accumulated gradients so that
// the batch can be repeated. To continue with another batch, drop them:
//
//	_ = d.NoSync(func() error { return err })
package ddp
