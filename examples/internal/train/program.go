package train

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/cli"
)

// Exit codes in addition to those of launch.ExitCode, and of a run that a signal ended (128 plus
// its number).
const (
	ExitOK    = 0
	ExitUsage = 2 // the command line, the settings or the launcher's variables make no sense
)

// Program is one that trains.
type Program struct {
	Name   string   // as in the command line
	About  string   // purpose, for the help
	Config string   // an example of --config, for the help
	Models []string // allowed values of model.name

	// Find checks Open's preconditions without much reading, such as missing data. It is called
	// once, before ranks are started, and may be nil. Errors: those of Open.
	Find func(c *config.Config) error
	// Open is the problem. Each process of the run calls it once.
	// Errors: ErrUsage for settings that the program cannot have.
	Open func(c *config.Config) (Problem, error)
}

// ErrUsage is matched by the errors of a run that could not begin because its settings are invalid.
var ErrUsage = errors.New("the settings make no sense")

// usageError is an error that matches ErrUsage.
type usageError struct{ error }

// Is matches ErrUsage.
func (e usageError) Is(target error) bool { return target == ErrUsage }

// Unwrap is the reason.
func (e usageError) Unwrap() error { return e.error }

// Usage is an error that matches ErrUsage.
func Usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Execute is the program with this command line.
//
// Returns: the exit code. Errors are printed to stderr.
func (p Program) Execute(args []string, stdout, stderr io.Writer) int {
	o, err := p.parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprint(stdout, o.help(launch.Columns(stdout)))
		return ExitOK
	}
	code := ExitOK
	if err == nil {
		code, err = start(o, stdout, stderr)
	}
	if err == nil {
		return code
	}
	o.env.LastWord(stderr, cli.ErrorText(p.Name, err, launch.Columns(stderr)))
	if code != ExitOK { // that of the ranks, which says more than the error: 141 after "| head"
		return code
	}
	if errors.Is(err, ErrUsage) {
		return ExitUsage
	}
	if stop := (&interrupted{}); errors.As(err, &stop) {
		return stop.code()
	}
	return launch.ExitCode(err)
}

// options has the command line and the settings.
type options struct {
	program Program
	flags   *pflag.FlagSet
	args    []string // the command line, for the ranks that the program starts
	env     launch.Env
	source  config.Source // of the settings, with the content of its file
	cfg     *config.Config
	origins *config.Origins
	claimed *claim // of the output folder, by the program that started the ranks; nil if rank 0 has to
	verify  bool
	plan    bool
	below   float64 // limit of the last loss; 0 means none
	timing  timingFlags
}

// parse reads the command line and loads the settings.
//
// Errors: usageError; pflag.ErrHelp.
func (p Program) parse(args []string) (options, error) {
	source := config.Source{Env: config.Environ(), Reserved: launch.Variables()}
	o := options{program: p, args: args, flags: pflag.NewFlagSet(p.Name, pflag.ContinueOnError)}
	o.flags.SortFlags = false
	o.flags.Usage = func() {} // execute prints it
	source.AddFlags(o.flags)
	o.flags.BoolVar(&o.verify, "verify", false,
		"before training, compare the gradient of all ranks with that of one rank on the first global batch")
	o.flags.BoolVar(&o.plan, "plan", false, "at the end, compare the memory of rank 0 and its communication with the prediction of symgrad plan")
	o.flags.Float64Var(&o.below, "below", 0, "fail unless the loss of the last step is below this; 0 means any loss")
	o.timing.add(o.flags)
	if err := o.flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return o, err
		}
		if cli.MeansRanks(err) {
			return o, Usage("%w: --set launch.nproc_per_node=2 starts 2 ranks", cli.FlagError(err))
		}
		return o, usageError{fmt.Errorf("%w (--help lists the flags)", cli.FlagError(err))}
	}
	if o.flags.NArg() > 0 {
		return o, usageError{fmt.Errorf("unexpected argument %q (--help lists the flags)", o.flags.Arg(0))}
	}
	var err error
	if o.env, err = launch.Current(); err != nil {
		return o, usageError{err}
	}
	if err := o.load(source); err != nil {
		return o, err
	}
	return o, o.check()
}

// check rejects settings that this program cannot do, which config.Load cannot know.
func (o *options) check() error {
	if name := o.cfg.Model.Name; !slices.Contains(o.program.Models, name) {
		return Usage("model.name=%s: %s trains %s only", name, o.program.Name, strings.Join(o.program.Models, " or "))
	}
	if o.plan && o.cfg.Run.Machine == tape {
		return Usage("--plan: the tape machine's memory is unknown; set run.machine=compiled")
	}
	if !(o.below >= 0) {
		return Usage("--below %v: want a loss above 0, or 0 for any", o.below)
	}
	if err := o.timing.check(); err != nil {
		return err
	}
	return o.checkRules()
}

// help is the text of --help for a terminal of so many columns; 0 if it is none.
func (o options) help(columns int) string {
	return cli.Wrap(o.program.About+`

  go run ./examples/`+o.program.Name+` --config `+o.program.Config+` [--set key=value]... [--verify]

Ranks: launch.nproc_per_node of them, started by this program; or those that symgrad run, torchrun,
mpirun or srun started. With comm.backend=sim they are goroutines of one process.
Settings: symgrad config keys explains them all, symgrad config show tells where each comes from.
GPUs: one for each rank, with run.device=cuda, or with auto where they are; run.precision says how
they multiply. run.machine=tape is Gorgonia's own machine on the host, to compare with.
Results: summary.json, config.yaml and the timeline (log.trace) in run.output_dir. Those of an earlier run
there get a number, as summary-1.json.
Checkpoints: in checkpoint.dir, every checkpoint.every steps, at the end, and after Ctrl-C or SIGTERM,
which end the run after its step; a second Ctrl-C ends it at once. The same command then goes on from the
newest whole one (run.resume), on any number of ranks and with any shard.stage.
Exit codes: 0 for success, 1 for a failure, 2 for settings that make no sense, 75 for a rank that
lost another one, 130 after Ctrl-C and 143 after SIGTERM, with or without a checkpoint, 141 when
the reader of the output is gone (| head).

`, columns, 0) + o.flags.FlagUsagesWrapped(columns)
}
