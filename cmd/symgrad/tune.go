package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/gpu"
	"github.com/symgrad/symgrad/internal/tool/perf"
)

// newTuneCommand returns symgrad tune, which finds the fastest engine per operation.
func newTuneCommand() *cobra.Command {
	t := &tune{source: newSource()}
	cmd := &cobra.Command{
		Use:   "tune [flags]",
		Short: "Measure the fastest engine between GPUs for each operation",
		Long: `Measure the fastest engine between GPUs for each operation: NVSHMEM, NCCL, NCCL on
symmetric windows, symgrad's own kernels. Each engine is timed by the device, at every
power of two of bytes, on private and on symmetric buffers; the slowest rank counts. The
result is a table by which backend cuda chooses engines (comm.tune).

Without a launcher the command starts -n ranks itself; under symgrad run, mpirun,
torchrun or srun it is one rank. Rank 0 prints the times and writes the file. A table is
for one kind of GPU; --merge keeps the rows of the file that are not measured again, for
example those for other numbers of ranks.

Exit codes: 0 success, 1 failure, 2 invalid flags or settings, 75 another rank was lost.`,
		Example: `  symgrad tune -n 4 --out h200.json
  symgrad tune -n 2 --out h200.json --merge
  symgrad run -n 2 ./train --set run.device=cuda --set comm.backend=cuda --set comm.tune=h200.json`,
		Args: usageArgs(noArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			t.stdout, t.stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			ctx := cmd.Context()
			if ctx == nil {
				ctx = context.Background()
			}
			return t.run(ctx)
		},
	}
	t.addTo(cmd)
	return cmd
}

// tune is one run of the command: its flags as given and as parsed.
type tune struct {
	source *config.Source
	set    *pflag.FlagSet

	ranks               int
	ops, dtypes, redOps string
	minBytes, maxBytes  string
	rounds, repeats     int
	out                 string
	merge               bool

	env            launch.Env
	cfg            backend.Config
	tuning         gpu.Tuning
	earlier        *gpu.Table // table of --merge; nil for none
	stdout, stderr io.Writer
}

// tunable are the operations to measure, by their names in symgrad bench.
var tunable = []struct {
	op   perf.Op
	kind dist.Kind
}{
	{perf.AllReduce, dist.KindAllReduce},
	{perf.ReduceScatter, dist.KindReduceScatter},
	{perf.AllGather, dist.KindAllGather},
	{perf.Reduce, dist.KindReduce},
	{perf.Broadcast, dist.KindBroadcast},
	{perf.AllToAll, dist.KindAllToAll},
}

// tunableNames returns the names of tunable, comma-separated.
func tunableNames() string {
	names := make([]string, len(tunable))
	for i, k := range tunable {
		names[i] = k.op.String()
	}
	return strings.Join(names, ",")
}

func (t *tune) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	t.set = flags
	flags.SortFlags = false
	flags.IntVarP(&t.ranks, "ranks", "n", 2, "number of ranks to start, each with a GPU")
	flags.StringVar(&t.ops, "op", tunableNames(), "comma-separated operations")
	flags.StringVarP(&t.dtypes, "datatype", "d", "f32,bf16,f16", "element types of reductions")
	flags.StringVarP(&t.redOps, "redop", "o", "sum,avg", "reductions: sum, prod, min, max, avg; the table has one class for prod, min and max, and one for avg and premulsum")
	flags.StringVarP(&t.minBytes, "minbytes", "b", "1K", "smallest size, a power of two")
	flags.StringVarP(&t.maxBytes, "maxbytes", "e", "256M", "largest size, a power of two")
	flags.IntVar(&t.rounds, "rounds", 0, "operations timed together; 0 means 50, fewer for large ones")
	flags.IntVar(&t.repeats, "repeats", 0, "number of measurements, of which the fastest counts; 0 means 5")
	flags.StringVar(&t.out, "out", "tune.json", "file for the table")
	flags.BoolVar(&t.merge, "merge", false, "keep the rows of the file that are not measured again")
	addSourceFlags(cmd, t.source)
	complete(cmd, "op", cobra.FixedCompletions(strings.Split(tunableNames(), ","), cobra.ShellCompDirectiveNoFileComp))
}

// run makes all checks that need no ranks, then starts the ranks or runs one of them.
func (t *tune) run(ctx context.Context) error {
	var err error
	if t.env, err = launch.Current(); err != nil {
		return err
	}
	if err := t.parse(); err != nil {
		return usageError{fmt.Errorf("tune: %w", err)}
	}
	if err := t.readSource(); err != nil {
		return err
	}
	if err := t.settings(); err != nil {
		return err
	}
	if err := canBeFile(t.out); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("this program: %w", err)
	}
	handed, err := json.Marshal(t.source)
	if err != nil {
		return fmt.Errorf("tune: hand the settings to the ranks: %w", err)
	}
	res, spawned, err := launch.Self(ctx, t.env, launch.SpawnConfig{
		Program: program, Args: append([]string{"tune"}, t.args()...), N: t.ranks, Stdout: t.stdout, Stderr: t.stderr, Handover: handed,
	})
	switch {
	case spawned && res.Code != 0:
		return &exitError{code: res.Code, err: err}
	case spawned:
		return err
	}
	return t.rank(ctx)
}

// readSource reads the file of settings, or takes the settings that the starter of this rank has
// read.
func (t *tune) readSource() error {
	handed, err := t.env.Handover()
	if err != nil || handed == nil {
		*t.source = t.source.Read()
		return err
	}
	if err := json.Unmarshal(handed, t.source); err != nil {
		return fmt.Errorf("tune: settings of the command that started this rank: %w", err)
	}
	return nil
}

// parse fills the gpu.Tuning.
//
// Errors: the first invalid flag, by its name.
func (t *tune) parse() error {
	switch {
	case checkRanks(t.ranks) != nil:
		return checkRanks(t.ranks)
	case t.env.Launcher != launch.None && t.set.Changed("ranks") && t.ranks != t.env.Size:
		return fmt.Errorf("-n %d, but %s has started %d ranks: remove -n", t.ranks, t.env.Launcher, t.env.Size)
	case t.rounds < 0 || t.repeats < 0:
		return fmt.Errorf("--rounds %d, --repeats %d: want 0 or more", t.rounds, t.repeats)
	case t.out == "":
		return errors.New("--out is empty: use a file name")
	}
	t.tuning = gpu.Tuning{Rounds: t.rounds, Repeats: t.repeats}
	if err := t.parseOps(); err != nil {
		return err
	}
	for _, s := range []struct {
		flag, text string
		to         *int64
	}{{"minbytes", t.minBytes, &t.tuning.Smallest}, {"maxbytes", t.maxBytes, &t.tuning.Largest}} {
		var err error
		if *s.to, err = perf.ParseSize(s.text); err != nil {
			return fmt.Errorf("--%s: %w", s.flag, err)
		}
		if *s.to == 0 {
			return fmt.Errorf("--%s 0: want 1 or more", s.flag)
		}
	}
	if err := t.tuning.Validate(); err != nil {
		return err
	}
	return t.readEarlier()
}

// parseOps parses the operations, dtypes and reductions.
func (t *tune) parseOps() error {
	ops, err := perf.ParseOps(t.ops)
	if err != nil {
		return fmt.Errorf("--op: %w", err)
	}
	for _, op := range ops {
		i := slices.IndexFunc(tunable, func(k struct {
			op   perf.Op
			kind dist.Kind
		},
		) bool {
			return k.op == op
		})
		if i < 0 {
			return fmt.Errorf("--op: %v has one engine only, or no sizes: use some of %s", op, tunableNames())
		}
		t.tuning.Kinds = append(t.tuning.Kinds, tunable[i].kind)
	}
	if t.tuning.DTypes, err = perf.ParseDTypes(t.dtypes); err != nil {
		return fmt.Errorf("--datatype: %w", err)
	}
	reds, err := perf.ParseRedOps(t.redOps)
	if err != nil {
		return fmt.Errorf("--redop: %w", err)
	}
	var classes []string
	for _, red := range reds {
		if red == dist.RedPreMulSum {
			return errors.New("--redop: premulsum shares the table class of avg: use avg")
		}
		if red.Bitwise() {
			return fmt.Errorf("--redop: %v shares the table class of prod: use prod", red)
		}
		op := dist.Op{Kind: dist.KindAllReduce, Red: dist.RedOp{Kind: red}}
		class := gpu.Class(&op)
		if slices.Contains(classes, class) {
			return fmt.Errorf("--redop: %v shares a table class with an earlier one; remove it", red)
		}
		classes = append(classes, class)
		t.tuning.Reductions = append(t.tuning.Reductions, op.Red)
	}
	return nil
}

// readEarlier reads the table that --merge extends, if the file exists.
func (t *tune) readEarlier() error {
	if !t.merge {
		return nil
	}
	table, err := backend.ReadTable(t.out)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--merge: %w", err)
	}
	t.earlier = table
	return nil
}

// settings reads libraries, time limits and comm.max_ctas from files, environment and --set.
func (t *tune) settings() error {
	cfg, _, err := loadSettings(*t.source)
	if err != nil {
		return err
	}
	t.cfg = gpuConfig(cfg)
	t.cfg.Backend, t.cfg.Device, t.cfg.Env = backend.CUDA, backend.CUDADevice, &t.env
	t.cfg.HeapStep = heapStep(t.tuning.Largest)
	return nil
}

// heapStep returns the growth of the heap. Both buffers fit into one step, after the 645 MiB that
// NVSHMEM and its engine reserve, so that NCCL has windows on them.
func heapStep(largest int64) int64 {
	const rest = 1 << 30
	step := int64(2 << 30)
	for step < backend.MaxHeapStep && step/2 < largest+rest/2 {
		step *= 2
	}
	return step
}

// gpuConfig returns the backend settings for GPUs: libraries, limits of their use, and time limits.
func gpuConfig(cfg *config.Config) backend.Config {
	return backend.Config{
		InitTimeout: cfg.Comm.TimeoutInit, StepTimeout: cfg.Comm.TimeoutStep, MaxCTAs: cfg.Comm.MaxCTAs,
		CUDADriver: cfg.GPU.Driver, NVRTC: cfg.GPU.NVRTC, NCCL: cfg.GPU.NCCL, NVSHMEM: cfg.GPU.NVSHMEM,
	}
}

// args returns the command line for the ranks.
func (t *tune) args() []string {
	var args []string
	t.set.Visit(func(flag *pflag.Flag) {
		if flag.Name == "set" { // its value is a list
			for _, s := range t.source.Set {
				args = append(args, "--set="+s)
			}
			return
		}
		args = append(args, "--"+flag.Name+"="+flag.Value.String())
	})
	return args
}

// rank is one rank.
func (t *tune) rank(ctx context.Context) error {
	g, err := backend.OpenGPUs(ctx, t.cfg)
	if err != nil {
		return blame(&t.env, err)
	}
	err = blame(&t.env, t.measure(g))
	return errors.Join(err, g.Close())
}

// measure runs the whole measurement and, on rank 0, writes the result.
func (t *tune) measure(g *backend.GPUs) error {
	out := t.stdout
	if g.Rank() != 0 {
		out = io.Discard
	}
	p := &tunePrinter{w: out}
	p.begin(g)
	t.tuning.Report = p.row
	table, err := g.Tune(t.tuning)
	if err != nil {
		return err
	}
	if t.earlier != nil {
		if table, err = merged(t.earlier, table); err != nil {
			return fmt.Errorf("--merge: %s: %w", t.out, err)
		}
	}
	if g.Rank() != 0 {
		return nil
	}
	p.end(table, g.Engines())
	if p.err != nil {
		return fmt.Errorf("write the output: %w", p.err)
	}
	if err := writeFile(t.out, table.Write); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return write(out, fmt.Appendf(nil, "\nwritten to %s: use it with comm.tune=%[1]s\n", t.out))
}

// merged returns the rows of later, and the rows of earlier that later does not have.
//
// Errors: dist.ErrInvalid for tables of different GPUs.
func merged(earlier, later *gpu.Table) (*gpu.Table, error) {
	if earlier.Machine != later.Machine {
		return nil, fmt.Errorf("%w: measured on %q, but this is %q", dist.ErrInvalid, earlier.Machine, later.Machine)
	}
	all := *later
	all.Rows = slices.Clone(later.Rows)
	for _, r := range earlier.Rows {
		if !slices.ContainsFunc(later.Rows, func(l gpu.Row) bool { return sameOperation(&l, &r) }) {
			all.Rows = append(all.Rows, r)
		}
	}
	return &all, all.Validate()
}

// sameOperation reports whether two rows are of one operation.
func sameOperation(a, b *gpu.Row) bool {
	return a.Kind == b.Kind && a.DType == b.DType && a.Reduction == b.Reduction && a.Symmetric == b.Symmetric && a.Ranks == b.Ranks && max(a.Hosts, 1) == max(b.Hosts, 1) &&
		a.Bytes == b.Bytes
}

// dtypeText returns dtype and reduction of a row, or "any".
func dtypeText(r *gpu.Row) string {
	if r.DType == "" {
		return "any"
	}
	return r.DType + " " + r.Reduction
}
