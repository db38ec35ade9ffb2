// Package train has the common part of programs that train a model with any number of ranks:
// settings and flags, the start of ranks, the loop, progress and results. A program adds the
// problem:
//
//	func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }
//
//	func execute(args []string, stdout, stderr io.Writer) int {
//		p := train.Program{Name: "mlp", About: "...", Models: []string{"mlp"}, Open: open}
//		return p.Execute(args, stdout, stderr)
//	}
//
// Whatever the number of ranks, a step is of the same samples (data.global_batch of them) and the
// model learns the same. A run writes summary.json, the effective config.yaml and, if asked, a
// timeline to run.output_dir. It writes checkpoints to checkpoint.dir: weights, state of the
// optimizer and of the exchange, the position in the order of samples, the number of steps, losses
// and settings. Random numbers have no state: they follow from seed, step and sample.
//
// Read it in this order:
//
//	program.go   a program, its command line, its exit codes
//	problem.go   the part of each program: samples and a graph
//	run.go       start ranks, be one of them, or simulate them
//	site.go      choice of host or GPUs, with its consequences for world and machine
//	rules.go     settings of optimizer and exchange
//	setup.go     model, ddp.Attach, machine, solver: a program of your own copies this part
//	scale.go     the scale of the loss
//	vm.go        the machine: compiled, or Gorgonia's tape machine (run.machine)
//	train.go     the loop; on GPUs it only queues, and reads a loss where the ranks share it
//	cuts.go      a rank's part of a batch in pieces
//	keep.go save.go       writing checkpoints
//	resume.go restore.go  resuming from them, on any number of ranks
//	stop.go      all ranks end after the same step
//	meter.go     losses and times, shared between ranks every few steps
//	plan.go      prediction and measurement side by side
//	verify.go    is the gradient of n ranks the gradient of one?
//	eval.go      accuracy on the test set
//	timing.go    how long a step takes, for comparisons
//	spans.go     the timeline
//	header.go progress.go summary.go    output of a run
//	gpu.go       the GPU and its libraries, for the output
//	talk.go exchange.go  small collectives on host values, also in worlds of GPUs
//	signal.go terminal.go  end by a signal, width of the bar
package train
