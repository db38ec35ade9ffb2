package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/cli"
	"github.com/symgrad/symgrad/internal/perf"
)

// benchFlags is the flags of symgrad bench: as they were given, and as perf takes them once parse
// has run.
type benchFlags struct {
	set *pflag.FlagSet

	backend                        string
	ranks                          int
	ops, dtypes, redOps            string
	minBytes, maxBytes, stepBytes  string
	factor, iters, warmup, checks  int
	root, graph                    int
	inPlace, both, private, queued bool
	fresh, pin                     bool
	style, engine, tune, within    string
	symmetric                      bool
	rounds, maxCTAs                int
	json, plot, vs                 string
	verdict                        string // of ranks: where the number of wrong elements goes, instead of an error

	cfg     perf.Config
	format  perf.Format // of the plot
	engines []string    // that take turns; one is the usual case
}

func newBenchFlags() *benchFlags { return &benchFlags{} }

// addTo adds the flags to cmd. Names with an underscore, as nccl-tests has them, are those with a
// dash.
func (f *benchFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.set = flags
	flags.SortFlags = false
	cli.Normalize(flags)
	flags.StringVar(&f.ops, "op", "allreduce", "operations to measure, with commas between: "+opNames()+"; all is every collective, onesided the rest")
	flags.StringVar(&f.backend, "backend", backend.Auto, "auto; shm, memory of the host; sim, ranks that are goroutines; between GPUs nccl, nvshmem, or cuda, the fastest for each")
	flags.IntVarP(&f.ranks, "ranks", "n", 2, "how many ranks to start")
	flags.StringVarP(&f.minBytes, "minbytes", "b", "8", "smallest size")
	flags.StringVarP(&f.maxBytes, "maxbytes", "e", "64M", "largest size")
	flags.IntVarP(&f.factor, "stepfactor", "f", 4, "from one size to the next")
	flags.StringVarP(&f.stepBytes, "stepbytes", "i", "", "from one size to the next, added instead of multiplied")
	flags.IntVar(&f.iters, "iters", 0, "timed iterations; 0 means as many as move 256M, from 20 to 10000, and on the host fewer where they take more than 1 s")
	flags.IntVarP(&f.warmup, "warmup-iters", "w", 0, "untimed iterations before them (default a tenth of them)")
	flags.IntVarP(&f.checks, "check", "c", 1, "iterations whose results are checked; 0 checks nothing")
	flags.StringVarP(&f.redOps, "redop", "o", "sum", "reductions: sum, prod, min, max, avg, premulsum or all of these; of integers also and, or, xor")
	flags.StringVarP(&f.dtypes, "datatype", "d", "f32", "element types: f16, bf16, f32, f64, i8 to i64, u8 to u64 or all")
	flags.IntVarP(&f.root, "root", "r", 0, "root of broadcast, reduce, gather and scatter")
	flags.BoolVar(&f.inPlace, "in-place", false, "in place instead of out of place")
	flags.BoolVar(&f.both, "both", false, "out of place and in place, side by side")
	flags.StringVar(&f.within, "in-place-of", "", "those of --op that are measured in place, whatever becomes of the others")
	flags.BoolVar(&f.fresh, "fresh", false, "read the last result and rewrite the input before each iteration, untimed")
	flags.BoolVar(&f.private, "private", false, "buffers outside of the symmetric heap")
	flags.BoolVar(&f.queued, "queued", false, "through the group's stream instead of on the calling thread")
	flags.StringVar(&f.style, "style", "", "osu: an untimed barrier before each iteration; or back-to-back (default osu, between GPUs back-to-back)")
	flags.BoolVar(&f.pin, "pin", true, "keep each rank on a core of its own, when there are enough; between GPUs only when given, and then far apart")
	flags.StringVar(&f.engine, "engine", engineAuto, "engine between GPUs: nccl, nccl-window, nvshmem, ll, ll128, ll128-twoshot, oneshot, twoshot, tiles, copy or auto; several, with commas, take turns at every size")
	flags.StringVar(&f.tune, "tune", "", "between GPUs: file of symgrad tune, measured on such GPUs, for the choice of auto")
	flags.IntVar(&f.maxCTAs, "max-ctas", 0, "between GPUs: most thread blocks of an operation, except nvshmem's (comm.max_ctas); 0 means as many as are the fastest alone")
	flags.BoolVar(&f.symmetric, "symmetric", true, "promise that buffers have equal offsets in the heap on all ranks, as they do")
	flags.IntVarP(&f.graph, "graph", "G", 0, "between GPUs: launches of a captured graph of the iterations; 0 queues them one by one")
	flags.IntVar(&f.rounds, "rounds", 1, "how often all rows are measured; they are printed in the last round")
	flags.StringVar(&f.json, "json", "", "file for the result")
	flags.StringVar(&f.plot, "plot", "", "file for curves of time and bandwidth, .svg or .png")
	flags.StringVar(&f.vs, "vs", "", "file with an earlier result: print the ratios of the times of rows that both have")
	flags.StringVar(&f.verdict, "verdict", "", "file for the number of wrong elements, which are no failure then")
	_ = flags.MarkHidden("verdict") // it exists
	complete(cmd, "op", cobra.FixedCompletions(append(strings.Fields(opNames()), "all", "onesided"), cobra.ShellCompDirectiveNoFileComp))
	complete(cmd, "backend", cobra.FixedCompletions(backend.Names(), cobra.ShellCompDirectiveNoFileComp))
	complete(cmd, "style", cobra.FixedCompletions([]string{string(perf.OSU), string(perf.BackToBack)}, cobra.ShellCompDirectiveNoFileComp))
}

func opNames() string {
	var names []string
	for _, op := range perf.Ops() {
		names = append(names, op.String())
	}
	return strings.Join(names, " ")
}

// parse makes the perf.Config.
//
// Errors: the first flag whose value makes no sense, by its name.
func (f *benchFlags) parse() error {
	c := perf.Config{
		Factor: f.factor, Iters: f.iters, Warmup: f.warmup, Checks: f.checks, Root: f.root,
		InPlace: f.inPlace, Both: f.both, Private: f.private, Queued: f.queued, Fresh: f.fresh, Pin: f.pin,
		Style: perf.Style(f.style), Symmetric: f.symmetric && !f.private, Graph: f.graph, Rounds: f.rounds,
	}
	if err := f.checkNumbers(); err != nil {
		return err
	}
	if backend.OnGPUs(f.backend) { // as perf does there anyway, stated here for --vs
		c.Queued = true
		c.Pin = f.pin && f.set.Changed("pin")
		if c.Style == "" {
			c.Style = perf.BackToBack
		}
	}
	if f.set.Changed("warmup-iters") && f.warmup == 0 {
		c.Warmup = -1 // none
	}
	if f.checks == 0 {
		c.Checks = -1 // none
	}
	var err error
	if c.Ops, err = perf.ParseOps(f.ops); err != nil {
		return fmt.Errorf("--op: %w", err)
	}
	if f.within != "" {
		if c.Within, err = perf.ParseOps(f.within); err != nil {
			return fmt.Errorf("--in-place-of: %w", err)
		}
	}
	if c.DTypes, err = perf.ParseDTypes(f.dtypes); err != nil {
		return fmt.Errorf("--datatype: %w", err)
	}
	if c.RedOps, err = perf.ParseRedOps(f.redOps); err != nil {
		return fmt.Errorf("--redop: %w", err)
	}
	for _, s := range []struct {
		flag, text string
		to         *int64
	}{{"minbytes", f.minBytes, &c.MinBytes}, {"maxbytes", f.maxBytes, &c.MaxBytes}, {"stepbytes", f.stepBytes, &c.StepBytes}} {
		if s.text == "" && s.flag == "stepbytes" {
			continue
		}
		if *s.to, err = perf.ParseSize(s.text); err != nil {
			return fmt.Errorf("--%s: %w", s.flag, err)
		}
		if *s.to == 0 {
			return fmt.Errorf("--%s 0: want 1 or more", s.flag)
		}
	}
	f.cfg = c
	if f.plot != "" {
		if f.format, err = perf.FormatOf(f.plot); err != nil {
			return fmt.Errorf("--plot %w", err)
		}
	}
	if f.plot != "" && !slices.ContainsFunc(c.Ops, perf.Op.Moves) {
		return fmt.Errorf("--plot: %s has no sizes to draw a curve over", f.ops)
	}
	return nil
}

// checkNumbers rejects numbers that perf.Config would take for a default, or that this command
// cannot do.
func (f *benchFlags) checkNumbers() error {
	switch {
	case !slices.Contains(backend.Names(), f.backend):
		return fmt.Errorf("--backend: unknown backend %q: use one of %s", f.backend, strings.Join(backend.Names(), " "))
	case checkRanks(f.ranks) != nil:
		return checkRanks(f.ranks)
	case f.graph < 0:
		return fmt.Errorf("-G %d: want 0 or more", f.graph)
	case f.rounds < 1:
		return fmt.Errorf("--rounds %d: want 1 or more", f.rounds)
	case f.symmetric && f.private && f.set.Changed("symmetric"):
		return errors.New("--symmetric or --private: choose one")
	case f.set.Changed("stepfactor") && f.set.Changed("stepbytes"):
		return errors.New("--stepfactor or --stepbytes: choose one")
	case f.set.Changed("stepfactor") && f.factor < 2:
		return fmt.Errorf("-f %d: want 2 or more", f.factor)
	case f.iters < 0 || f.warmup < 0 || f.checks < 0:
		return fmt.Errorf("--iters %d, --warmup-iters %d, --check %d: want 0 or more", f.iters, f.warmup, f.checks)
	case f.style == "" && f.set.Changed("style"):
		return errors.New("--style: want osu or back-to-back")
	case f.json != "" && f.json != os.DevNull && f.plot != "" && filepath.Clean(f.json) == filepath.Clean(f.plot):
		return fmt.Errorf("--json and --plot: both are %s, which can be one of them", f.json)
	}
	return f.checkGPU()
}

// checkGPU rejects flags that need GPUs, and sets the defaults that differ there.
func (f *benchFlags) checkGPU() error {
	host := !backend.OnGPUs(f.backend)
	switch {
	case f.graph > 0 && host:
		return fmt.Errorf("-G %d: backend %s has no graphs; they belong to GPUs", f.graph, f.backend)
	case f.engine != engineAuto && host:
		return fmt.Errorf("--engine %s: backend %s has no engines: want --backend cuda, nccl or nvshmem", f.engine, f.backend)
	case f.tune != "" && host:
		return fmt.Errorf("--tune: backend %s does not choose: want --backend cuda", f.backend)
	case f.maxCTAs < 0 || f.maxCTAs > backend.MostCTAs:
		return fmt.Errorf("--max-ctas %d: want 0 to %d", f.maxCTAs, backend.MostCTAs)
	case f.maxCTAs > 0 && (host || f.backend == backend.NVSHMEM):
		return fmt.Errorf("--max-ctas %d: backend %s has no such setting: want --backend cuda or nccl", f.maxCTAs, f.backend)
	}
	f.engines = nil
	for _, name := range strings.Split(f.engine, ",") {
		switch {
		case name == "":
			return fmt.Errorf("--engine %q: a name is empty", f.engine)
		case slices.Contains(f.engines, name):
			return fmt.Errorf("--engine %q: %s is there twice", f.engine, name)
		}
		f.engines = append(f.engines, name)
	}
	return nil
}

// named is the engines as rows name them.
func (f *benchFlags) named() []string {
	if backend.OnGPUs(f.backend) {
		return f.engines
	}
	return nil
}

// world is how the world is opened.
func (f *benchFlags) world(env *launch.Env) backend.Config {
	return backend.Config{Backend: f.backend, Env: env, TunePath: f.tune, MaxCTAs: f.maxCTAs}
}

// args is the command line again, for the ranks.
func (f *benchFlags) args() []string {
	var args []string
	f.set.Visit(func(flag *pflag.Flag) { args = append(args, "--"+flag.Name+"="+flag.Value.String()) })
	return args
}
