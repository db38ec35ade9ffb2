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
	"github.com/symgrad/symgrad/internal/tool/cli"
)

// ErrWrong is matched by the error of a program with a wrong result.
var ErrWrong = errors.New("wrong result")

// exitUsage is the exit code of a cli.ErrUsage.
const exitUsage = 2

// Program is an example program.
type Program struct {
	Name  string // name on the command line
	Args  string // arguments after the flags, for --help; "" means none
	About string // one line on the program, for --help
	Ranks int    // number of ranks without --ranks

	// Flags adds the program's own flags; may be nil.
	Flags func(flags *pflag.FlagSet)
	// Check reports errors in flags and arguments for this number of ranks, before any rank starts;
	// may be nil.
	Check func(ranks int, args []string) error
	// Run is the function of a rank. out is the standard output on rank 0, and discards on other
	// ranks.
	Run func(ctx context.Context, w *dist.World, out io.Writer) error
}

// Execute runs the program with this command line.
//
// Returns: the exit code. Errors are printed on stderr, one line per rank that has one.
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
	case code != 0: // the ranks' code says more than the error: 141 after "| head"
		return code
	case errors.Is(err, cli.ErrUsage):
		return exitUsage
	}
	return launch.ExitCode(err)
}

// options is a program with its command line.
type options struct {
	Program
	flags   *pflag.FlagSet
	args    []string // the command line, passed to the ranks that the program starts
	n       int
	backend string
	timeout time.Duration
	env     launch.Env
}

// parse reads the command line and the launcher's variables.
//
// Errors: cli.ErrUsage; pflag.ErrHelp.
func (p Program) parse(args []string) (*options, error) {
	o := &options{Program: p, args: args, flags: pflag.NewFlagSet(p.Name, pflag.ContinueOnError)}
	o.flags.SortFlags = false
	o.flags.Usage = func() {} // Execute prints it
	o.flags.IntVarP(&o.n, "ranks", "n", p.Ranks, "number of ranks to start; a launcher's number has priority")
	o.flags.StringVar(&o.backend, "backend", backend.Auto, "shm: ranks are processes; sim: goroutines of this process; cuda, nccl, nvshmem: processes with one GPU each; auto: shm")
	o.flags.DurationVar(&o.timeout, "timeout", 100*time.Second, "maximum wait for another rank")
	if p.Flags != nil {
		p.Flags(o.flags)
	}
	cli.Normalize(o.flags)
	if err := o.flags.Parse(cli.Ranks(o.flags, true, args)); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return o, err
		}
		return o, cli.Usage("%w (--help lists the flags)", cli.FlagError(err))
	}
	var err error
	if o.env, err = launch.Current(); err != nil {
		return o, cli.AsUsage(err)
	}
	return o, o.check()
}

// check returns the first error of the command line.
func (o *options) check() error {
	if o.env.Launcher != launch.None {
		if o.flags.Changed("ranks") && o.n != o.env.Size {
			return cli.Usage("--ranks %d, but %s started %d: remove --ranks", o.n, o.env.Launcher, o.env.Size)
		}
		o.n = o.env.Size
	}
	if o.n < 1 {
		return cli.Usage("--ranks %d: want 1 or more", o.n)
	}
	if o.timeout <= 0 {
		return cli.Usage("--timeout %v: want more than 0", o.timeout)
	}
	if err := o.config().Validate(); err != nil {
		return cli.AsUsage(err)
	}
	if o.backend == backend.Sim && o.env.Size > 1 {
		return cli.Usage("--backend sim runs all ranks in one process, but %s started %d: start the program without a launcher", o.env.Launcher, o.env.Size)
	}
	if o.Args == "" && o.flags.NArg() > 0 {
		return cli.Usage("unexpected argument %q (--help lists the flags)", o.flags.Arg(0))
	}
	if o.Check == nil {
		return nil
	}
	if err := o.Check(o.n, o.flags.Args()); err != nil {
		return cli.AsUsage(err)
	}
	return nil
}

func (o *options) config() backend.Config {
	return backend.Config{Backend: o.backend, StepTimeout: o.timeout}
}

// help returns the text of --help for a terminal of so many columns; 0 means no terminal.
func (o *options) help(columns int) string {
	line := o.Name + " [flags]"
	if o.Args != "" {
		line += " " + o.Args
	}
	return fmt.Sprintf("%s\n\n%s\n\nFlags:\n%s", cli.Wrap(line, columns, 4), cli.Wrap(o.About, columns, 0), o.flags.FlagUsagesWrapped(columns))
}
