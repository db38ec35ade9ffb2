package rank

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/cli"
)

// ErrUsage is matched by the errors of a program whose command line is invalid.
var ErrUsage = errors.New("the command line makes no sense")

// ErrWrong is matched by the error of a program whose result is wrong.
var ErrWrong = errors.New("wrong result")

// exitUsage is the exit code of an ErrUsage.
const exitUsage = 2

// Program is one example.
type Program struct {
	Name  string // as in the command line
	Args  string // arguments after the flags, for the help; "" means none
	About string // purpose of the program, for the help
	Ranks int    // how many ranks it starts without --ranks

	// Flags adds the program's own flags; may be nil.
	Flags func(flags *pflag.FlagSet)
	// Check rejects wrong flags and arguments for this number of ranks, before any rank starts; may
	// be nil.
	Check func(ranks int, args []string) error
	// Run is the function of a rank. The output of rank 0 is shown, that of the others discarded.
	Run func(ctx context.Context, w *dist.World, out io.Writer) error
}

// Execute runs the program with this command line.
//
// Returns: the exit code. Errors are printed to stderr, in one line for each rank that has one.
func (p Program) Execute(args []string, stdout, stderr io.Writer) int {
	o, err := p.parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprint(stdout, o.help(launch.Columns(stdout)))
		return 0
	}
	code := 0
	if err == nil {
		code, err = o.start(stdout, stderr)
	}
	if err == nil {
		return code
	}
	o.env.LastWord(stderr, cli.ErrorText(p.Name, err, launch.Columns(stderr)))
	switch {
	case code != 0: // that of the ranks, which says more than the error: 141 after "| head"
		return code
	case errors.Is(err, ErrUsage):
		return exitUsage
	}
	return launch.ExitCode(err)
}

// options is a program with its command line.
type options struct {
	Program
	flags   *pflag.FlagSet
	args    []string // the command line, for the ranks that the program starts
	n       int
	backend string
	timeout time.Duration
	env     launch.Env
}

// usage is an error about the command line.
func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

type usageError struct{ error }

// Is matches ErrUsage.
func (e usageError) Is(target error) bool { return target == ErrUsage }

// Unwrap is the reason.
func (e usageError) Unwrap() error { return e.error }

// parse reads the command line and the launcher's variables.
//
// Errors: ErrUsage; pflag.ErrHelp.
func (p Program) parse(args []string) (*options, error) {
	o := &options{Program: p, args: args, flags: pflag.NewFlagSet(p.Name, pflag.ContinueOnError)}
	o.flags.SortFlags = false
	o.flags.Usage = func() {} // Execute prints it
	o.flags.IntVarP(&o.n, "ranks", "n", p.Ranks, "how many ranks to start; under a launcher its number counts")
	o.flags.StringVar(&o.backend, "backend", backend.Auto, "shm: ranks are processes; sim: goroutines of this one; cuda, nccl, nvshmem: processes with a GPU each; auto: shm")
	o.flags.DurationVar(&o.timeout, "timeout", 100*time.Second, "longest wait for another rank")
	if p.Flags != nil {
		p.Flags(o.flags)
	}
	cli.Normalize(o.flags)
	if err := o.flags.Parse(cli.Ranks(o.flags, true, args)); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return o, err
		}
		return o, usage("%w (--help lists the flags)", cli.FlagError(err))
	}
	var err error
	if o.env, err = launch.Current(); err != nil {
		return o, usageError{err}
	}
	return o, o.check()
}

// check reports the first thing in the command line that makes no sense.
func (o *options) check() error {
	if o.env.Launcher != launch.None {
		if o.flags.Changed("ranks") && o.n != o.env.Size {
			return usage("--ranks %d, but %s started %d: leave --ranks out", o.n, o.env.Launcher, o.env.Size)
		}
		o.n = o.env.Size
	}
	if o.n < 1 {
		return usage("--ranks %d: want 1 or more", o.n)
	}
	if o.timeout <= 0 {
		return usage("--timeout %v: want more than 0", o.timeout)
	}
	if err := o.config().Validate(); err != nil {
		return usageError{err}
	}
	if o.backend == backend.Sim && o.env.Size > 1 {
		return usage("--backend sim runs all ranks in one process, but %s started %d: start the program plainly", o.env.Launcher, o.env.Size)
	}
	if o.Args == "" && o.flags.NArg() > 0 {
		return usage("unexpected argument %q (--help lists the flags)", o.flags.Arg(0))
	}
	if o.Check == nil {
		return nil
	}
	if err := o.Check(o.n, o.flags.Args()); err != nil {
		return usageError{err}
	}
	return nil
}

func (o *options) config() backend.Config {
	return backend.Config{Backend: o.backend, StepTimeout: o.timeout}
}

// help is the text of --help for a terminal of so many columns; 0 if it is none.
func (o *options) help(columns int) string {
	line := o.Name + " [flags]"
	if o.Args != "" {
		line += " " + o.Args
	}
	return fmt.Sprintf("%s\n\n%s\n\nFlags:\n%s", cli.Wrap(line, columns, 4), cli.Wrap(o.About, columns, 0), o.flags.FlagUsagesWrapped(columns))
}
