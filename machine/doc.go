// Package machine runs Gorgonia graphs compiled. A Machine is a gorgonia.VM: it takes the place of
// the tape machine and nothing else of a program changes.
//
//	vm, err := machine.New(g, machine.Config{}) // instead of gorgonia.NewTapeMachine(g)
//	defer vm.Close()
//	for ... {
//		gorgonia.Let(x, batch)
//		err = vm.RunAll()
//		err = solver.Step(gorgonia.NodesToValueGrads(learnables))
//		vm.Reset()
//	}
//
// # Replacing the tape machine
//
// New takes the place of gorgonia.NewTapeMachine(g) and of gorgonia.NewTapeMachine(g,
// gorgonia.BindDualValues(...)). Let, Set, RunAll, Reset and Close are called as before. Two kinds
// of programs need one more change:
//
//   - A program that reads Value of a node in the middle of the graph, such as logits.Value(),
//     names the node in Config.Keep. Machine.Value returns the value of any node without that, and
//     costs a compilation for each node.
//   - A program for the lisp machine, which differentiates while it runs, calls gorgonia.Grad(cost,
//     learnables...) before New. Without that the machine computes values and no gradients: a step
//     of an optimizer is an error.
//
// A second machine for predictions is New(g.SubgraphRoots(prediction), Config{Eval: true}), or
// New(g, Config{Eval: true}, prediction).
//
// # From a graph to a run
//
// New takes the nodes that outputs need, in the order of the tape machine, and turns each into
// steps of internal/program: a product, a map over elements, a reduction. Rearrangements (reshape,
// transpose, slice, repeat, the size of an axis) become views and no steps. The program is then
// optimized, its memory planned, and a back half runs it. Explain prints it.
//
// # Values
//
// Inputs and parameters are read in place: a new value by Let is looked up at each run, and copied
// only if its elements are not contiguous. Outputs are nodes with lasting values: those passed to
// New, or else all roots, the cost, the nodes that gorgonia.Read reads, and the gradient of each
// input that the graph was differentiated by. Their Value and Grad is memory of the machine,
// written by each run, the same memory every time. Other nodes have no value, except with
// Config.Keep. A result that is an input of the same machine (gorgonia.Let(state, next.Value()))
// becomes a copy in the next run, so that the run does not change its own input.
//
// # Differences from the tape machine
//
// RunAll always runs one whole step; Reset does nothing. Nodes that no output needs do not run, but
// for collectives. docs/reference/gorgonia-differences.md lists each difference, with its test. New
// refuses a graph in which gorgonia.Grad has made a gradient that is wrong, if the program needs
// it: differentiate with ops.Grad or ddp.Attach.
//
// Random numbers of gorgonia.Dropout and other random nodes are those of Config.Seed, of the number
// of the run (SetClock, where a training goes on) and of the sample in the whole batch, for any
// number of ranks. Where the ranks' parts differ in length, each rank gives the number of its first
// sample by SetFirstSample, since two might draw the same numbers otherwise.
//
// gorgonia.Set copies the value after each run; of several, all values are taken before any input
// changes.
//
// # Ops without a rule
//
// All functions of Gorgonia run without a setting. CTCLoss, YOLOv3 and ops of users run by their
// own Do, on copies of their inputs. On the CPU Config.Log gets one warning for each type of op of
// a user. On a GPU it gets one for each type of op that runs so: the device waits while the host
// computes, and the step is queued step by step. Config.Fallback says that this is expected, and no
// warning is written. Integers are added, multiplied, divided and compared as integers, in 64 bits.
//
// # On a GPU
//
// A graph runs on the GPU of the world that its gradients go to, or else of the group of its first
// collective, or else on the one that Config names.
//
// Inputs are copied to the GPU at each run, during the previous run. The rest depends on the
// solver. If a solver of the host updates the parameters, RunAll copies parameters to the GPU and
// outputs, gradients and running statistics back, and returns when they are there: as on the CPU,
// and slow. If the machine updates them itself (Config.Solver, or NewSolver), parameters stay on
// the GPU and RunAll returns when the run is queued. Values of nodes are then those of the last
// Sync, or before the first one those of the host. Scalar reads a cost without waiting for later
// runs. RunAll waits for values that gorgonia.Read reads, and reads them after each run: of a
// parameter, the updated value. A parameter with a new value by Let is copied; one that is changed
// in place needs Load. Errors of steps, weights that sum to 0 and norms that are no numbers come
// from a later call.
//
// Micro-batches inside ddp's NoSync are runs of other programs, which the first such run makes.
// They only add gradients to the buckets; the run that ends them has the exchange and the update.
// With Stage 1 of ddp the update of a rank's pieces follows the reduce-scatter of each bucket
// during the backward pass, and the gather of the weights follows the update, all in one run:
// Config.Solver is required. With Stage 2 buckets of gradients share memory in turns, each run sums
// its own, and nodes get no gradients; with Stage 3 weights are gathered before their use, as
// below. With OverlapGather of ddp a run begins with the gather of the previous run's updates, and
// Sync returns ErrStale until Consolidate of the DDP.
//
// With Config.Share a second machine, for another graph, computes with the parameters of the first.
// With Stage 3 of ddp no rank has them: the second graph's nodes then want values, which ddp's
// Consolidate gives those of the first. On the CPU Share has no effect, and none is needed: nodes
// of the second graph are made with the values of the first's (gorgonia.WithValue), which updates
// change in place.
//
// # Communication
//
// Collectives of package ops are steps of the program. A graph that ddp.Attach has been over runs
// as it is: gradients are computed in their places in the buckets where nothing else reads them,
// and given to their reducers as soon as they are there. With Stage 3 of ddp a bucket of weights is
// gathered into the arena, one ahead of its use, and again for the backward pass, so that two
// buckets of weights are there at a time; gradients are given away from the arena. All ranks then
// run machines of this package.
//
// Sources: the meaning of each op is that of Gorgonia v0.9.18, whose source the comments here name.
package machine
