// Package train is what the programs that train a model with any number of ranks have in common:
// settings and flags, starting the ranks or being one of them, the loop, and what a run tells and
// leaves. A program says what there is to learn:
//
//	func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }
//
//	func execute(args []string, stdout, stderr io.Writer) int {
//		return train.Program{Name: "mlp", About: "...", Models: []string{"mlp"}, Open: open}.Execute(args, stdout, stderr)
//	}
//
// Whatever the number of ranks, a step is of the same samples (data.global_batch of them) and the
// model learns the same. A run leaves summary.json, the effective config.yaml and, if asked, a
// timeline in run.output_dir; and in checkpoint.dir what another run goes on from: weights, what
// the optimizer keeps, what the exchange keeps, the place in the order of samples, the number of
// steps, losses and settings. Random numbers have no state: they follow from seed, step and sample.
//
// Read it in this order:
//
//	program.go   a program, its command line, its exit codes
//	problem.go   what a program brings: samples and a graph
//	run.go       who am I: start ranks, be one of them, or simulate them
//	site.go      on the host or on GPUs, and what follows for world and machine
//	rules.go     settings of optimizer and exchange
//	setup.go     model, ddp.Attach, machine, solver: the part that a program of one's own copies
//	scale.go     the scale of the loss
//	vm.go        the machine: compiled, or Gorgonia's tape machine (run.machine)
//	train.go     the loop; on GPUs it only queues, and reads a loss where the ranks share it
//	cuts.go      a rank's part of a batch in pieces
//	keep.go save.go       checkpoints that a run leaves
//	resume.go restore.go  and goes on from, on any number of ranks
//	stop.go      all ranks end behind the same step
//	meter.go     losses and times, shared between ranks every few steps
//	plan.go      what the run took beside what it was to take
//	verify.go    is the gradient of n ranks the gradient of one?
//	eval.go      accuracy on the test set
//	timing.go    how long a step takes, for comparisons
//	spans.go     the timeline
//	header.go progress.go summary.go    what a run tells
//	gpu.go       the GPU and its libraries, for what is told
//	talk.go exchange.go  small collectives, on values of the host wherever the world is
//	signal.go terminal.go  how a run is ended, how wide its bar may be
package train
