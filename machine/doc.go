// Package machine compiles Gorgonia graphs and runs them. A Machine is a gorgonia.VM that replaces
// the tape machine. The rest of a program stays as it is:
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
// New replaces gorgonia.NewTapeMachine(g) and gorgonia.NewTapeMachine(g,
// gorgonia.BindDualValues(...)). Let, Set, RunAll, Reset and Close are called as before. Two kinds
// of programs need one more change:
//
//   - A program that reads Value of a node in the middle of the graph, such as logits.Value(),
//     lists the node in Config.Keep. Machine.Value returns the value of any node without that, but
//     compiles a part of the graph for each node.
//   - A program for the lisp machine, which differentiates while it runs, calls gorgonia.Grad(cost,
//     learnables...) before New. Otherwise there are no gradients, and a step of an optimizer
//     returns an error.
//
// A second machine for predictions is New(g.SubgraphRoots(prediction), Config{Eval: true}), or
// New(g, Config{Eval: true}, prediction).
//
// # Compilation
//
// New collects the nodes that outputs need, in the order of the tape machine, and turns each into
// steps of internal/compile/program: a product, a map over elements, a reduction. An op that only
// rearranges elements (reshape, transpose, slice, repeat) becomes a view. Then the program is
// optimized, its memory is planned, and a back half runs it. Explain prints it.
//
// # Values
//
// Inputs and parameters are read in place. Each run reads the current values of nodes, and copies
// one only if its elements are not contiguous.
//
// Outputs are nodes with lasting values: those passed to New. By default they are all roots, the
// cost, the nodes of gorgonia.Read, and the gradient of each input that the graph was
// differentiated by. Their Value and Grad are memory of the machine, which each run writes again.
// Other nodes have no value, except those of Config.Keep. If a result becomes an input of the same
// machine (gorgonia.Let(state, next.Value())), the next run copies it first, so that it does not
// change its own input.
//
// # Differences from the tape machine
//
// RunAll always runs one whole step; Reset does nothing. Nodes that no output needs do not run,
// except collectives. docs/reference/gorgonia-differences.md lists each difference, with its test.
// New rejects a graph with a wrong gradient of gorgonia.Grad, if the program needs that gradient:
// differentiate with ops.Grad or ddp.Attach.
//
// Random numbers, of gorgonia.Dropout and random nodes, depend on Config.Seed, the number of the
// run (set by SetClock in a resumed training) and the number of the sample in the whole batch. So
// they do not depend on the number of ranks. If ranks have different numbers of samples, each rank
// sets its first number by SetFirstSample, as two ranks might otherwise draw the same numbers.
//
// gorgonia.Set copies the value after each run. Several of them read all values before any input
// changes.
//
// # Ops without a rule
//
// All functions of Gorgonia run without a setting. CTCLoss, YOLOv3 and ops of users run by their
// own Do, on copies of their inputs. Config.Log gets one warning for each type of such op: on the
// CPU for ops of users, on a GPU for all. There the device waits while the host computes, and the
// step is queued step by step. Config.Fallback silences the warnings. Integers are added,
// multiplied, divided and compared as 64-bit integers.
//
// # On a GPU
//
// A graph runs on the GPU of the world that its gradients go to, or else of the group of its first
// collective, or else on the GPU of Config.
//
// Inputs are copied to the GPU at each run, while the previous run continues. The rest depends on
// the owner of the update:
//
//   - While a solver of the host updates the parameters, RunAll copies parameters to the GPU,
//     copies outputs, gradients and running statistics back, and returns when they are there. It
//     behaves as on the CPU, and is slow.
//   - With Config.Solver, or after NewSolver, parameters stay on the GPU, and RunAll returns when
//     the run is queued. Nodes have the values of the last Sync. Scalar reads a cost without a wait
//     for later runs. With a gorgonia.Read, RunAll waits and reads it, even a parameter after its
//     update. A parameter with a new value is copied; one that changed in place needs Load. Errors
//     of steps, weights that sum to 0 and norms that are not finite come from a later call.
//
// With ddp on a GPU:
//
//   - Micro-batches inside NoSync use other programs, which the first such run makes. They only add
//     gradients to the buckets. The run after them has the exchange and the update.
//   - Stages 1 to 3 need Config.Solver. With Stage 1 a rank updates its pieces after the
//     reduce-scatter of each bucket, during the backward pass; then the weights are gathered, all
//     in one run.
//   - With Stage 2 buckets of gradients share memory, each run reduces its own, and nodes get no
//     gradients. With Stage 3 weights are gathered before their use: see Communication.
//   - With OverlapGather a run begins with gathering the weights that the previous run updated, and
//     Sync returns ErrStale until Consolidate of the DDP.
//
// With Config.Share a second machine, for another graph, uses the parameters of the first. With
// Stage 3 of ddp no rank has them whole: the second graph's nodes then need values, which ddp's
// Consolidate gives those of the first. On the CPU Share has no effect: make the nodes of the
// second graph with the values of the first's (gorgonia.WithValue), which updates change in place.
//
// # Communication
//
// Collectives of package ops are steps of the program. So is the exchange of ddp.Attach: gradients
// are computed in their buckets if no other step reads them, and reduced once they are ready. With
// Stage 3 of ddp a bucket of weights is gathered into the arena one ahead of its use, and again for
// the backward pass. So two buckets of weights exist at a time, and gradients are passed on from
// the arena. All ranks must run machines of this package.
//
// Sources: the meaning of each op is that of Gorgonia v0.9.18, whose source the comments here name.
package machine
