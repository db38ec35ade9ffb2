// Command ddp trains a classifier on MNIST with any number of ranks, as a configuration file says:
//
//	make data && go run ./examples/ddp --config configs/mnist-mlp.yaml
//	go run ./examples/ddp --config configs/mnist-mlp.yaml --set launch.nproc_per_node=4 --set ddp.overlap=false --verify
//	symgrad run -n 4 -- ./ddp --config configs/mnist-cnn.yaml
//
// Whatever the number of ranks, a step is of the same samples (data.global_batch of them) and the model learns the same.
// The run leaves summary.json, the effective config.yaml and, if asked, a timeline in run.output_dir.
//
// Read it in this order:
//
//	run.go       who am I: start ranks, be one of them, or simulate them
//	setup.go     model, ddp.Attach, machine, solver: the part that a program of one's own copies
//	train.go     the loop
//	meter.go     losses and times, shared between ranks every few steps
//	verify.go    is the gradient of n ranks the gradient of one?
//	eval.go      accuracy on the test set
//	spans.go     the timeline
//	header.go progress.go summary.go    what a run tells
//	exchange.go  small collectives
//	signal.go terminal.go  how a run is ended, how wide its bar may be
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist/launch"
)

// Exit codes besides those of launch.ExitCode, and of a run that a signal ended (128 plus its number).
const (
	exitOK    = 0
	exitUsage = 2 // the command line, the settings or the launcher's variables make no sense
)

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// usageError is a run that could not begin because of what it was told.
type usageError struct{ error }

// Unwrap is the reason.
func (e usageError) Unwrap() error { return e.error }

// execute is the program.
//
// Returns: the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprint(stdout, help(o.flags))
		return exitOK
	}
	code := exitOK
	if err == nil {
		code, err = start(o, stdout, stderr)
	}
	if err == nil {
		return code
	}
	fmt.Fprintf(stderr, "ddp: %v\n", err)
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	if stop := (&interrupted{}); errors.As(err, &stop) {
		return stop.code()
	}
	return launch.ExitCode(err)
}

// options is what the command line and the settings add up to.
type options struct {
	flags   *pflag.FlagSet
	args    []string // the command line, for the ranks that the program starts
	file    string   // --config; may be empty
	cfg     *config.Config
	origins *config.Origins
	verify  bool
}

// parse reads the command line and loads the settings.
//
// Errors: usageError; pflag.ErrHelp.
func parse(args []string) (options, error) {
	source := config.Source{Env: config.Environ(), Reserved: launch.Variables()}
	o := options{args: args, flags: pflag.NewFlagSet("ddp", pflag.ContinueOnError)}
	o.flags.SortFlags = false
	o.flags.Usage = func() {} // execute prints it
	source.AddFlags(o.flags)
	o.flags.BoolVar(&o.verify, "verify", false,
		"before training, compare the gradient of all ranks with that of one rank on the first global batch")
	if err := o.flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return o, err
		}
		return o, usageError{fmt.Errorf("%w (--help lists the flags)", err)}
	}
	if o.flags.NArg() > 0 {
		return o, usageError{fmt.Errorf("unexpected argument %q (--help lists the flags)", o.flags.Arg(0))}
	}
	var err error
	o.file = source.File
	if o.cfg, o.origins, err = config.Load(source); err != nil {
		return o, usageError{err}
	}
	return o, nil
}

func help(flags *pflag.FlagSet) string {
	return `Train a classifier on MNIST, data-parallel over the ranks of a job.

  go run ./examples/ddp --config configs/mnist-mlp.yaml [--set key=value]... [--verify]

Ranks: launch.nproc_per_node of them, started by this program; or those that symgrad run, torchrun,
mpirun or srun started. With comm.backend=sim they are goroutines of one process.
Settings: symgrad config keys explains them all, symgrad config show tells where each comes from.
Results: summary.json, config.yaml and the timeline (log.trace) in run.output_dir.
Exit codes: 0 for success, 1 for a failure, 2 for settings that make no sense, 75 for a rank that
lost another one, 130 after Ctrl-C.

` + flags.FlagUsages()
}
