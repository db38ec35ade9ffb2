// Package train is the common part of the example programs that train a model: settings and flags,
// starting the ranks, the training loop, reports and checkpoints. A program only supplies its
// Problem: samples and a graph.
//
//	func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }
//
//	func execute(args []string, stdout, stderr io.Writer) int {
//		p := train.Program{Name: "mlp", About: "...", Models: []string{"mlp"}, Open: open}
//		return p.Execute(args, stdout, stderr)
//	}
//
// A step uses the same data.global_batch samples for any number of ranks, so the model learns the
// same. A run writes summary.json, the effective config.yaml and an optional timeline to
// run.output_dir. It writes checkpoints to checkpoint.dir: weights, state of the optimizer and of
// gradient compression, position in the order of samples, number of steps, losses and settings.
// Random numbers need no state: they depend on seed, step and sample only.
//
// Read the files in this order:
//
//	program.go             Program, its command line, its exit codes
//	problem.go             Problem: samples and a graph
//	run.go                 start the ranks, be one of them, or simulate them
//	site.go                host or GPUs, and the settings of world and machine that follow
//	rules.go               settings of optimizer and exchange
//	setup.go               model, ddp.Attach, machine, solver: the part to copy into your program
//	scale.go               loss scaling
//	vm.go                  the machine: compiled, or Gorgonia's tape machine (run.machine)
//	train.go               the loop; on GPUs it only queues steps and reads the shared losses
//	cuts.go                the pieces of a rank's part of a batch
//	keep.go save.go        write checkpoints
//	resume.go restore.go   resume from a checkpoint, on any number of ranks
//	stop.go                stop all ranks after the same step
//	meter.go               losses and times, summed over the ranks every few steps
//	plan.go                compare the plan of a run with its measured cost
//	verify.go              compare the gradient of n ranks with that of one
//	eval.go                accuracy on the test set
//	timing.go profile.go   step times, for comparisons
//	spans.go clocks.go     the timeline, and the clocks of hosts
//	header.go progress.go summary.go   reports
//	gpu.go                 the GPU and its libraries, for reports
//	exchanger.go exchange.go   small collectives on host values, wherever the world is
//	signal.go              signals that end a run
package train
