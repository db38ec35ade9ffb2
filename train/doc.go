// Package train runs the training of a program: a Problem, with data and model, goes in, and a
// data-parallel run comes out, on CPU cores or GPUs. The run has settings from a file, flags and
// the environment; ranks that it starts or a launcher does; checkpoints, from which it resumes on
// any number of ranks; test accuracy, reports and a timeline.
//
//	func main() {
//		p := train.Program{Name: "own", About: "...", Open: open}
//		os.Exit(p.Execute(os.Args[1:], os.Stdout, os.Stderr))
//	}
//
// A step uses the same data.global_batch samples for any number of ranks, so the model learns the
// same. A run writes summary.json, metrics.jsonl, the effective config.yaml and an optional
// timeline to run.output_dir, and checkpoints to checkpoint.dir. Random numbers depend on seed,
// step and sample only.
//
// A script with a loop of its own needs no Program: Save and Resume store and restore its State,
// Trace makes its timeline, and package metrics writes its metrics.
//
// Read the files in this order:
//
//	program.go problem.go     the exported types: command line, samples and graph
//	dataset.go                problems whose samples are read ahead
//	run.go                    starts the ranks, is one of them, or simulates them
//	train.go                  trainer: a run on one rank, from the first comparison to the results
//	setup.go                  learner: model, ddp.Attach, machine, solver
//	step.go loop.go           a step of the learner; the loop around it
//	record.go                 metrics of steps and evaluations
//	checkpoint.go             saves a run, and finds its place to resume
//	finish.go eval.go         the work after the last step; accuracy on the test set
//	verify.go                 compares the gradient of all ranks with one rank's
//	plan.go                   compares predicted and measured cost
//	stop.go signal.go         ends all ranks after the same step
//	state.go trace.go         Save, Resume and Trace
//
// Its internal packages: exchange (small collectives on host values), measure (losses and times),
// report (texts and files for people), save (checkpoints), timeline, output (its folder).
package train
