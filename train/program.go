package train

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/settings"
	"github.com/symgrad/symgrad/internal/tool/cli"
	"github.com/symgrad/symgrad/train/internal/output"
)

// ExitUsage is the exit code of an invalid command line, invalid settings or launcher variables. A
// run ended by a signal exits with 128 plus the signal's number, others with launch.ExitCode.
const ExitUsage = 2

// Program is a program that trains a model.
type Program struct {
	Name   string   // name on the command line
	About  string   // one line on the model and data, for --help
	Config string   // example of --config, for --help; "" for none
	Models []string // allowed values of model.name; nil if the program does not use it

	// Find checks cheaply, once and before ranks start, whether Open can work, for example whether
	// the data exist. It may be nil. Errors: those of Open.
	Find func(c *config.Config) error
	// Open returns the problem. Each process of the run calls it once. Errors: ErrUsage for
	// settings that the program does not support.
	Open func(c *config.Config) (Problem, error)
}

// ErrUsage is matched by errors of a run that could not start because its settings are invalid.
var ErrUsage = cli.ErrUsage

// Usage returns an error that matches ErrUsage.
func Usage(format string, args ...any) error { return cli.Usage(format, args...) }

// Execute runs the program with this command line.
//
// Returns: the exit code. Errors are printed on stderr.
func (p Program) Execute(args []string, stdout, stderr io.Writer) int {
	o, err := p.parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprint(stdout, o.help(launch.Columns(stdout)))
		return 0
	}
	code := 0
	if err == nil {
		code, err = start(o, stdout, stderr)
	}
	if err == nil {
		return code
	}
	o.env.LastWord(stderr, cli.ErrorText(p.Name, err, launch.Columns(stderr)))
	if code != 0 { // the ranks' code says more than the error: 141 after "| head"
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

// options are the command line and the settings.
type options struct {
	program Program
	flags   *pflag.FlagSet
	args    []string // the command line, passed to the ranks that the program starts
	env     launch.Env
	source  config.Source // of the settings, with the content of the file
	cfg     *config.Config
	origins *config.Origins
	claimed *output.Claim // output folder claimed by the starter of the ranks; nil if rank 0 claims it
	verify  bool
	plan    bool
	below   float64 // --below: bound of the last loss; 0 means none
	timing  timingFlags
}

// parse reads the command line and loads the settings.
//
// Errors: cli.ErrUsage; pflag.ErrHelp.
func (p Program) parse(args []string) (options, error) {
	source := config.Source{Env: config.Environ(), Reserved: launch.Variables()}
	o := options{program: p, args: args, flags: pflag.NewFlagSet(p.Name, pflag.ContinueOnError)}
	o.flags.SortFlags = false
	o.flags.Usage = func() {} // Execute prints it
	source.AddFlags(o.flags)
	o.flags.BoolVar(&o.verify, "verify", false,
		"before training, compare the gradient of all ranks with that of one rank, on the first global batch")
	o.flags.BoolVar(&o.plan, "plan", false, "at the end, compare rank 0's memory and communication with the prediction of symgrad plan")
	o.flags.Float64Var(&o.below, "below", 0, "fail unless the loss of the last step is below this; 0 means no bound")
	o.timing.add(o.flags)
	if err := o.flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return o, err
		}
		if cli.MeansRanks(err) {
			return o, cli.Usage("%w: --set launch.nproc_per_node=2 starts 2 ranks", cli.FlagError(err))
		}
		return o, cli.Usage("%w (--help lists the flags)", cli.FlagError(err))
	}
	if o.flags.NArg() > 0 {
		return o, cli.Usage("unexpected argument %q (--help lists the flags)", o.flags.Arg(0))
	}
	var err error
	if o.env, err = launch.Current(); err != nil {
		return o, cli.AsUsage(err)
	}
	if err := o.load(source); err != nil {
		return o, err
	}
	return o, o.check()
}

// check checks the settings against this program, which config.Load cannot do.
func (o *options) check() error {
	if all, name := o.program.Models, o.cfg.Model.Name; all != nil && !slices.Contains(all, name) {
		return cli.Usage("model.name=%s: %s trains %s only", name, o.program.Name, strings.Join(all, " or "))
	}
	if o.plan && o.cfg.Run.Machine == settings.Tape {
		return cli.Usage("--plan: the tape machine's memory is unknown; set run.machine=compiled")
	}
	if !(o.below >= 0) {
		return cli.Usage("--below %v: want a loss above 0, or 0 for no bound", o.below)
	}
	if err := o.timing.check(); err != nil {
		return err
	}
	return o.checkRules()
}

// help returns the text of --help for a terminal of so many columns; 0 means no terminal.
func (o options) help(columns int) string {
	return cli.Wrap(o.program.About+`

  `+o.program.Name+` [--config `+cmp.Or(o.program.Config, "FILE")+`] [--set key=value]... [--verify]

Ranks: this program starts launch.nproc_per_node of them, or symgrad run, torchrun, mpirun or srun does.
With comm.backend=sim they are goroutines of one process.
Settings: symgrad config keys lists them, symgrad config show prints the source of each value.
GPUs: one per rank, with run.device=cuda, or with auto if there are enough; run.precision is the precision of
matrix products. run.machine=tape runs Gorgonia's own machine on the host, for comparison.
Results: summary.json, metrics.jsonl, config.yaml and the timeline (log.trace) in run.output_dir. Files of
an earlier run in that folder get a number, as summary-1.json. symgrad plot draws the metrics.
Checkpoints: in checkpoint.dir, every checkpoint.every steps, at the end, and after Ctrl-C or SIGTERM, which
end the run after its current step; a second Ctrl-C ends it at once. The same command then resumes from the
newest complete checkpoint (run.resume), on any number of ranks and with any shard.stage.
Exit codes: 0 success, 1 failure, 2 invalid settings, 75 another rank was lost, 130 Ctrl-C and 143 SIGTERM
(with or without a checkpoint), 141 the reader of the output ended (| head).

`, columns, 0) + o.flags.FlagUsagesWrapped(columns)
}
