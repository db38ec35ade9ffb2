package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/foreign"
	"github.com/symgrad/symgrad/internal/tool/perf"
	"github.com/symgrad/symgrad/internal/tool/probe"
)

// newBenchCommand returns symgrad bench: nccl-tests for every backend.
func newBenchCommand() *cobra.Command {
	f := newBenchFlags()
	cmd := &cobra.Command{
		Use:   "bench [flags]",
		Short: "Measure collectives and one-sided operations, as nccl-tests does",
		Long: `Measure collectives and one-sided operations, as nccl-tests does: time and
bandwidth per size, with results checked.

Without a launcher the command starts -n ranks itself; under symgrad run, mpirun,
torchrun or srun it is one rank. Rank 0 prints the table and writes the files. Sizes
take the suffix K, M or G (steps of 1024) and mean the larger buffer of a rank.

One-sided operations run between the first and the last rank. put and get include
completion; put-bw and get-bw time one of 64 in flight; pingpong times one direction
of a put with a signal; atomics times one of 64 fetch-adds of all ranks on one word.

Between GPUs (--backend cuda, nccl or nvshmem) operations are queued on the group's
stream back to back, or captured once and replayed (-G). The device measures the time,
and the slowest rank counts. Several engines take turns at every size.

Exit codes: 0 success, 1 wrong results or failure, 2 invalid flags, 75 another rank
was lost.`,
		Example: `  symgrad bench --op allreduce --backend shm -n 2 -b 8 -e 64M -f 4 -d f32 --json before.json
  symgrad bench --op allreduce -n 2 --vs before.json --plot now.svg
  symgrad bench --op all --both -n 4 -e 1M -d f32,bf16
  symgrad bench --backend cuda --engine auto,nccl -n 2 --in-place -b 1K -e 256M -f 2
  mpirun -np 2 symgrad bench --op barrier`,
		Args: usageArgs(noArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := bench{flags: f, stdout: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr()}
			ctx := cmd.Context()
			if ctx == nil {
				ctx = context.Background()
			}
			return b.run(ctx, cmd.Flags().Changed("ranks"))
		},
	}
	f.addTo(cmd)
	return cmd
}

// bench is one run of the command.
type bench struct {
	flags          *benchFlags
	env            launch.Env
	earlier        *perf.Result                                             // result of --vs
	earlierText    []byte                                                   // its text, passed to the ranks: only one process can read a pipe
	ask            func(ctx context.Context, q probe.Question) probe.Answer // returns the version of a library
	stdout, stderr io.Writer
}

// run makes all checks that need no ranks, then starts the ranks or runs one of them.
func (b *bench) run(ctx context.Context, ranksGiven bool) error {
	var err error
	if b.env, err = launch.Current(); err != nil {
		return err
	}
	if err := b.check(ranksGiven); err != nil {
		return usageError{fmt.Errorf("bench: %w", err)}
	}
	for _, to := range [][2]string{{"--json", b.flags.json}, {"--plot", b.flags.plot}} {
		if err := canBeFile(to[1]); err != nil {
			return fmt.Errorf("%s: %w", to[0], err)
		}
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("this program: %w", err)
	}
	b.ask = probe.Child(program, probeCommand)
	if b.flags.backend == backend.Sim {
		return backend.Simulate(b.flags.ranks, backend.Config{}, func(w *dist.World) error {
			return b.rank(ctx, w, perf.Setup{}, nil)
		})
	}
	if b.env.Launcher == launch.None && b.flags.ranks > 1 {
		return b.spawn(ctx, program)
	}
	if backend.OnGPUs(b.flags.backend) {
		return b.onGPUs(ctx)
	}
	w, err := backend.Open(ctx, b.flags.world(&b.env))
	if err != nil {
		return blame(&b.env, err)
	}
	return errors.Join(blame(&b.env, b.rank(ctx, w, perf.Setup{}, nil)), w.Close())
}

// blame sets the exit code of a rank that failed only because it lost another one, so that the
// launcher names that other rank.
func blame(env *launch.Env, err error) error {
	if env.Launcher != launch.None && launch.ExitCode(err) == launch.ExitPeerLost {
		return &exitError{code: launch.ExitPeerLost, err: err}
	}
	return err
}

// spawn starts the ranks. Rank 0 reports wrong results in a file, not by failing: for a failed rank
// the launcher would print its last lines, the table, again.
func (b *bench) spawn(ctx context.Context, program string) (err error) {
	verdict, err := os.CreateTemp("", "symgrad-bench-*")
	if err != nil {
		return fmt.Errorf("bench: a file for the verdict: %w", err)
	}
	defer func() { err = errors.Join(err, verdict.Close(), os.Remove(verdict.Name())) }()
	res, err := launch.Spawn(ctx, launch.SpawnConfig{
		Program: program, Args: append(append([]string{"bench"}, b.flags.args()...), "--verdict="+verdict.Name()),
		N: b.flags.ranks, Stdout: b.stdout, Stderr: b.stderr, Handover: b.earlierText,
	})
	switch {
	case res.Code != 0:
		return &exitError{code: res.Code, err: err}
	case err != nil:
		return err
	}
	var wrong wrongResults
	switch _, err := fmt.Fscan(verdict, &wrong); {
	case errors.Is(err, io.EOF): // no wrong results
		return nil
	case err != nil:
		return fmt.Errorf("bench: read the verdict: %w", err)
	}
	return wrong
}

// check determines the number of ranks and checks the flags.
func (b *bench) check(ranksGiven bool) error {
	f := b.flags
	if b.env.Launcher != launch.None {
		switch {
		case f.backend == backend.Sim && b.env.Size > 1:
			return errors.New("backend sim runs its ranks itself: start it without a launcher")
		case ranksGiven && f.ranks != b.env.Size:
			return fmt.Errorf("-n %d, but %s has started %d ranks: remove -n", f.ranks, b.env.Launcher, b.env.Size)
		}
		f.ranks = b.env.Size
	}
	if err := f.parse(); err != nil {
		return err
	}
	if err := f.cfg.Validate(f.ranks); err != nil {
		return err
	}
	if f.vs != "" {
		earlier, err := b.readEarlier()
		if err != nil {
			return fmt.Errorf("--vs: %w", err)
		}
		if err := perf.Comparable(earlier, f.cfg, f.ranks, f.named()...); err != nil {
			return fmt.Errorf("--vs %s: %w", f.vs, err)
		}
		b.earlier = &earlier
	}
	return nil
}

// rank is one rank. versions are those of libraries that the process's memory map does not show. A
// failure aborts the other ranks. Wrong results go to the file of --verdict, if there is one.
func (b *bench) rank(ctx context.Context, w *dist.World, on perf.Setup, versions map[string]string) error {
	table := perf.NewTable(b.stdout, version(), b.flags.cfg)
	res, err := perf.RunOn(w, on, b.flags.cfg, table)
	if err == nil && w.Rank() == 0 {
		res.Libraries = librariesHere(ctx, b.ask)
		maps.Copy(res.Libraries, versions)
		err = b.finish(res, table)
	}
	var wrong wrongResults
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &wrong):
		_ = w.Abort(err) // fails only if all peers are gone
	case b.flags.verdict != "":
		if err := os.WriteFile(b.flags.verdict, fmt.Appendln(nil, int64(wrong)), 0o600); err != nil {
			return errors.Join(wrong, fmt.Errorf("bench: write the verdict: %w", err))
		}
		return nil
	}
	return err
}

// wrongResults is the number of wrong elements, as the error of a completed measurement.
type wrongResults int64

// Error returns "7 elements were wrong".
func (n wrongResults) Error() string {
	return fmt.Sprintf("bench: %d elements were wrong: see the table", int64(n))
}

// finish prints and writes the results that follow the rows.
func (b *bench) finish(res perf.Result, table *perf.Table) error {
	if err := table.End(res); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	if b.flags.json != "" {
		if err := writeFile(b.flags.json, res.WriteJSON); err != nil {
			return fmt.Errorf("--json: %w", err)
		}
	}
	if b.flags.plot != "" {
		draw := func(w io.Writer) error { return perf.Plot(w, b.flags.format, res, b.earlier) }
		if err := writeFile(b.flags.plot, draw); err != nil {
			return fmt.Errorf("--plot: %w", err)
		}
	}
	if b.earlier != nil {
		c, err := perf.Compare(*b.earlier, res)
		if err != nil {
			return fmt.Errorf("--vs %s: %w", b.flags.vs, err)
		}
		if err := c.Write(b.stdout); err != nil {
			return fmt.Errorf("write the output: %w", err)
		}
	}
	if n := res.Wrong(); n > 0 {
		return wrongResults(n)
	}
	return nil
}

// canBeFile rejects a file name that is a folder or whose folder is missing. Checking first saves
// minutes of measuring.
func canBeFile(name string) error {
	if name == "" {
		return nil
	}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return &fs.PathError{Op: "open", Path: name, Err: syscall.EISDIR}
	}
	_, err := os.Stat(filepath.Dir(name))
	var of *fs.PathError
	if errors.As(err, &of) {
		return &fs.PathError{Op: "open", Path: name, Err: of.Err}
	}
	return err
}

// writeFile creates a file with the output of write.
func writeFile(name string, write func(io.Writer) error) (err error) {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return write(file)
}

// maxResult is the largest result file to read; a row takes less than 1 KiB.
const maxResult = 64 << 20

// readEarlier returns the result of --vs. A rank uses the text that its starter has read.
func (b *bench) readEarlier() (perf.Result, error) {
	var err error
	if b.earlierText, err = b.env.Handover(); b.earlierText == nil && err == nil {
		b.earlierText, err = foreign.ReadNamed(b.flags.vs, maxResult)
	}
	if err != nil {
		return perf.Result{}, err
	}
	r, err := perf.ReadJSON(bytes.NewReader(b.earlierText))
	if err != nil {
		return perf.Result{}, fmt.Errorf("%s: %w", b.flags.vs, err)
	}
	return r, nil
}

// readResult returns the result in a file.
func readResult(name string) (perf.Result, error) {
	text, err := foreign.ReadNamed(name, maxResult)
	if err != nil {
		return perf.Result{}, err
	}
	r, err := perf.ReadJSON(bytes.NewReader(text))
	if err != nil {
		return perf.Result{}, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}
