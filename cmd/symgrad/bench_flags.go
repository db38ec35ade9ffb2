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
	"github.com/symgrad/symgrad/internal/tool/cli"
	"github.com/symgrad/symgrad/internal/tool/drawing"
	"github.com/symgrad/symgrad/internal/tool/perf"
)

// benchFlags are the flags of symgrad bench as given and, after parse, as package perf takes them.
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
	verdict                        string // ranks write the number of wrong elements to this file instead of failing

	cfg     perf.Config
	format  drawing.Format // of the plot
	engines []string       // usually one; several take turns
}

func newBenchFlags() *benchFlags { return &benchFlags{} }

// addTo adds the flags to cmd. Names with underscores, as in nccl-tests, mean those with dashes.
func (f *benchFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.set = flags
	flags.SortFlags = false
	cli.Normalize(flags)
	flags.StringVar(&f.ops, "op", "allreduce", "comma-separated operations: "+opNames()+"; all means every collective, onesided all others")
	flags.StringVar(&f.backend, "backend", backend.Auto, "backend: auto, shm (host memory), mpi or ucx (several hosts), sim (ranks are goroutines); between GPUs nccl, nvshmem, or cuda (the fastest engine per operation)")
	flags.IntVarP(&f.ranks, "ranks", "n", 2, "number of ranks to start")
	flags.StringVarP(&f.minBytes, "minbytes", "b", "8", "smallest size")
	flags.StringVarP(&f.maxBytes, "maxbytes", "e", "64M", "largest size")
	flags.IntVarP(&f.factor, "stepfactor", "f", 4, "factor from one size to the next")
	flags.StringVarP(&f.stepBytes, "stepbytes", "i", "", "difference from one size to the next, instead of a factor")
	flags.IntVar(&f.iters, "iters", 0, "timed iterations; 0 means enough to move 256M, between 20 and 10000, on the host fewer if they take more than 1 s")
	flags.IntVarP(&f.warmup, "warmup-iters", "w", 0, "untimed iterations before the timed ones (default a tenth of them)")
	flags.IntVarP(&f.checks, "check", "c", 1, "iterations with checked results; 0 checks none")
	flags.StringVarP(&f.redOps, "redop", "o", "sum", "reductions: sum, prod, min, max, avg, premulsum or all of these; for integers also and, or, xor")
	flags.StringVarP(&f.dtypes, "datatype", "d", "f32", "element types: f16, bf16, f32, f64, i8 to i64, u8 to u64 or all")
	flags.IntVarP(&f.root, "root", "r", 0, "root of broadcast, reduce, gather and scatter")
	flags.BoolVar(&f.inPlace, "in-place", false, "measure in place instead of out of place")
	flags.BoolVar(&f.both, "both", false, "measure out of place and in place")
	flags.StringVar(&f.within, "in-place-of", "", "operations of --op to measure in place, regardless of --in-place")
	flags.BoolVar(&f.fresh, "fresh", false, "before each iteration, untimed, read the last result and rewrite the input")
	flags.BoolVar(&f.private, "private", false, "use buffers outside the symmetric heap")
	flags.BoolVar(&f.queued, "queued", false, "run operations on the group's stream instead of the calling thread")
	flags.StringVar(&f.style, "style", "", "osu (an untimed barrier before each iteration) or back-to-back (default osu, between GPUs back-to-back)")
	flags.BoolVar(&f.pin, "pin", true, "on one host, pin each rank to its own core if there are enough; between GPUs only if given, to distant cores")
	flags.StringVar(&f.engine, "engine", engineAuto, "between GPUs: engine nccl, nccl-window, nvshmem, ll, ll128, ll128-twoshot, oneshot, twoshot, tiles, copy, over several hosts hier, or auto (the fastest); several, comma-separated, take turns at every size")
	flags.StringVar(&f.tune, "tune", "", "between GPUs: table file of symgrad tune for engine auto; empty means the built-in table")
	flags.IntVar(&f.maxCTAs, "max-ctas", 0, "between GPUs: maximum thread blocks per operation, except nvshmem's (comm.max_ctas); 0 means the number that is fastest alone")
	flags.BoolVar(&f.symmetric, "symmetric", true, "declare buffers in the heap to be at equal offsets on all ranks, as they are")
	flags.IntVarP(&f.graph, "graph", "G", 0, "between GPUs: number of launches of a captured graph of the iterations; 0 queues operations one by one")
	flags.IntVar(&f.rounds, "rounds", 1, "number of times to measure all rows; only the last round prints them")
	flags.StringVar(&f.json, "json", "", "JSON file for the result")
	flags.StringVar(&f.plot, "plot", "", "file for a plot of time and bandwidth, .svg or .png")
	flags.StringVar(&f.vs, "vs", "", "JSON file with an earlier result: print the time ratios of common rows")
	flags.StringVar(&f.verdict, "verdict", "", "file for the number of wrong elements, instead of a failure")
	_ = flags.MarkHidden("verdict") // the flag exists
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

// parse fills the perf.Config.
//
// Errors: the first invalid flag, by its name.
func (f *benchFlags) parse() error {
	c := perf.Config{
		Factor: f.factor, Iters: f.iters, Warmup: f.warmup, Checks: f.checks, Root: f.root,
		InPlace: f.inPlace, Both: f.both, Private: f.private, Queued: f.queued, Fresh: f.fresh, Pin: f.pin,
		Style: perf.Style(f.style), Symmetric: f.symmetric && !f.private, Graph: f.graph, Rounds: f.rounds,
	}
	if err := f.checkNumbers(); err != nil {
		return err
	}
	if backend.OnGPUs(f.backend) { // perf's defaults between GPUs, set here because --vs compares them
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
		if f.format, err = drawing.FormatOf(f.plot, drawing.SVG, drawing.PNG); err != nil {
			return fmt.Errorf("--plot %w", err)
		}
	}
	if f.plot != "" && !slices.ContainsFunc(c.Ops, perf.Op.Moves) {
		return fmt.Errorf("--plot: %s has no sizes to plot", f.ops)
	}
	return nil
}

// checkNumbers rejects values that perf.Config would take for a default, and conflicting flags.
func (f *benchFlags) checkNumbers() error {
	switch {
	case !slices.Contains(backend.Names(), f.backend):
		return fmt.Errorf("unknown --backend %q: use one of %s", f.backend, strings.Join(backend.Names(), ", "))
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
		return fmt.Errorf("--json and --plot: both are %s: use different files", f.json)
	}
	return f.checkGPU()
}

// checkGPU checks the flags for GPUs and fills in the engines.
func (f *benchFlags) checkGPU() error {
	host := !backend.OnGPUs(f.backend)
	switch {
	case f.graph > 0 && host:
		return fmt.Errorf("-G %d: backend %s has no graphs: use a backend between GPUs", f.graph, f.backend)
	case f.engine != engineAuto && host:
		return fmt.Errorf("--engine %s: backend %s has no engines: use --backend cuda, nccl or nvshmem", f.engine, f.backend)
	case f.tune != "" && host:
		return fmt.Errorf("--tune: backend %s has no choice of engines: use --backend cuda", f.backend)
	case f.maxCTAs < 0 || f.maxCTAs > backend.MostCTAs:
		return fmt.Errorf("--max-ctas %d: want 0 to %d", f.maxCTAs, backend.MostCTAs)
	case f.maxCTAs > 0 && (host || f.backend == backend.NVSHMEM):
		return fmt.Errorf("--max-ctas %d: backend %s has no such setting: use --backend cuda or nccl", f.maxCTAs, f.backend)
	}
	f.engines = nil
	for _, name := range strings.Split(f.engine, ",") {
		switch {
		case name == "":
			return fmt.Errorf("--engine %q: empty engine name", f.engine)
		case slices.Contains(f.engines, name):
			return fmt.Errorf("--engine %q: %s occurs twice", f.engine, name)
		}
		f.engines = append(f.engines, name)
	}
	return nil
}

// named returns the names of the engines in rows.
func (f *benchFlags) named() []string {
	if backend.OnGPUs(f.backend) {
		return f.engines
	}
	return nil
}

// world returns the configuration of the world.
func (f *benchFlags) world(env *launch.Env) backend.Config {
	return backend.Config{Backend: f.backend, Env: env, TunePath: f.tune, MaxCTAs: f.maxCTAs}
}

// args returns the command line for the ranks.
func (f *benchFlags) args() []string {
	var args []string
	f.set.Visit(func(flag *pflag.Flag) { args = append(args, "--"+flag.Name+"="+flag.Value.String()) })
	return args
}
