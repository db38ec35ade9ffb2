// Package ddp is data-parallel training: every rank holds the whole model and a part of each batch, and the gradients
// are averaged over the ranks while the backward pass still runs.
//
//	grads, err := gorgonia.Grad(cost, learnables...)           // one process
//	d, err := ddp.Attach(world, cost, learnables, ddp.Config{}) // any number of ranks
//
// Nothing else of a Gorgonia program changes: the model, gorgonia.NewTapeMachine with any of its options, solvers, and
// reading gradients work as before.
//
// # What Attach does to the graph
//
// The graph is built when Attach gets it. Attach puts a hook between each parameter and the nodes that use it, calls
// gorgonia.Grad, and wires what the hooks' gradients became (ops.Overlap): each gradient is copied into its slot of a
// bucket as soon as it has been computed; when the last slot of a bucket is filled, the bucket is reduced over the ranks,
// in the background; the gradient nodes wait for that at the end of the run. Buckets lie in one region of the symmetric
// heap for each dtype, in the order in which the backward pass fills them, as in PyTorch's DistributedDataParallel
// (docs.pytorch.org/docs/stable/notes/ddp.html), and are started in that order on all ranks, whatever the order in which
// they fill.
//
// Attach compares the plan (settings, parameters, buckets, operations) over all ranks before anything is reduced, and
// copies rank 0's weights to all ranks.
//
// # The gradient
//
// With w_r the weight that rank r gave for the step (SetWeight; the number of samples in its part of the batch) and g_r
// the gradient of its own mean cost, every rank's gradient is
//
//	sum over r of (w_r / W) g_r,  W = sum over r of w_r
//
// which is the gradient of the mean cost over the whole batch, whether or not the parts are equal; a rank with weight 0
// adds exact zeros. Products are rounded before they are added, and added in rank order. So the bits depend neither on
// the size of the buckets nor on overlap, and with one rank they are those of gorgonia.Grad.
//
// # Accumulation
//
// Inside NoSync, runs of the graph add w g to the buckets locally. The next run outside it adds its own and reduces the
// sum, so that the gradient is sum of w g over ranks and micro-batches, divided by the sum of w:
//
//	err := d.NoSync(func() error { ...; return vm.RunAll() }) // micro-batches but the last
//	...; err = vm.RunAll()                                   // the last
//	err = solver.Step(d.Model())
//
// Runs inside NoSync have zero gradients. With gorgonia.BindDualValues, which adds the gradient of each run to what is
// there, the sum is therefore the gradient of the last run, as it should be.
//
// # Errors
//
// A peer that dies, is late, or runs another program makes RunAll return an error that names rank, operation and bucket;
// ops.Cause strips what Gorgonia wraps around it. Reset the machine before the next run. After an error that broke the
// group, every run returns it. After any other (of a node of the model, say) the next run is clean, provided that all
// ranks failed alike; what was accumulated is dropped.
package ddp
