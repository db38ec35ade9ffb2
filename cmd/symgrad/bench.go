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
	"github.com/symgrad/symgrad/internal/perf"
	"github.com/symgrad/symgrad/internal/probe"
)

// newBenchCommand is symgrad bench: nccl-tests for every backend.
func newBenchCommand() *cobra.Command {
	f := newBenchFlags()
	cmd := &cobra.Command{
		Use:   "bench [flags]",
		Short: "Measure collectives and one-sided operations, as nccl-tests does",
		Long: `Measure collectives and one-sided operations, as nccl-tests does: time and
bandwidth of every size, with the results checked.

Started plainly it starts the ranks itself, -n of them; started by symgrad run,
mpirun, torchrun or srun it takes part as one. Rank 0 prints the table and writes
the files. Sizes take K, M or G, in steps of 1024, and are those of the larger
buffer of a rank.

The one-sided ones are between rank 0 and the last: put and get until complete;
put-bw and get-bw, one of 64; pingpong, one way of a put with a signal; atomics, one
of 64 fetch-adds of all ranks on one word.

Between GPUs (--backend cuda, nccl or nvshmem) operations are queued on the group's
stream back to back, or captured once and replayed (-G), and timed by the device; a
row's time is that of the slowest rank. Several engines take turns at every size.

Exit codes: 0, 1 for wrong results or a failure, 2 for flags that make no sense, 75
for a rank that only lost another one.`,
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
	earlier        *perf.Result                                             // of --vs
	earlierText    []byte                                                   // as the file has it, for the ranks: a pipe has one reader
	ask            func(ctx context.Context, q probe.Question) probe.Answer // asks for a library's version
	stdout, stderr io.Writer
}

// run checks everything that can be checked before a rank starts, then starts the ranks or is one
// of them.
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

// blame lets a rank that only lost another one say so by its exit code: the launcher then names the
// other.
func blame(env *launch.Env, err error) error {
	if env.Launcher != launch.None && launch.ExitCode(err) == launch.ExitPeerLost {
		return &exitError{code: launch.ExitPeerLost, err: err}
	}
	return err
}

// spawn starts the ranks. Wrong results are no failure of theirs, of which the launcher would show
// the last lines, and so the table once more: rank 0 leaves the verdict in a file.
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
	case errors.Is(err, io.EOF): // nothing was wrong
		return nil
	case err != nil:
		return fmt.Errorf("bench: read the verdict: %w", err)
	}
	return wrong
}

// check settles how many ranks there are and whether the flags make sense for them.
func (b *bench) check(ranksGiven bool) error {
	f := b.flags
	if b.env.Launcher != launch.None {
		switch {
		case f.backend == backend.Sim && b.env.Size > 1:
			return errors.New("backend sim makes its ranks itself: start it plainly")
		case ranksGiven && f.ranks != b.env.Size:
			return fmt.Errorf("-n %d, but %s has started %d ranks: leave -n out", f.ranks, b.env.Launcher, b.env.Size)
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

// rank runs one rank; versions are those of libraries that the process does not show. On a failure
// it aborts the group, so that no other rank waits for this one. It reports wrong results to the
// command that started the ranks, if that asked for it.
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
		_ = w.Abort(err) // fails only if no other rank is left
	case b.flags.verdict != "":
		if err := os.WriteFile(b.flags.verdict, fmt.Appendln(nil, int64(wrong)), 0o600); err != nil {
			return errors.Join(wrong, fmt.Errorf("bench: write the verdict: %w", err))
		}
		return nil
	}
	return err
}

// wrongResults is the error of a measurement that worked, of operations that did not.
type wrongResults int64

// Error is "7 elements were wrong".
func (n wrongResults) Error() string {
	return fmt.Sprintf("bench: %d elements were wrong: see the table", int64(n))
}

// finish prints and writes everything that follows the rows.
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

// canBeFile returns the error of a file whose folder is missing, or that is a folder itself. Such
// an error should come before minutes of measuring.
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

// writeFile makes a file with the output of write.
func writeFile(name string, write func(io.Writer) error) (err error) {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return write(file)
}

// maxResult is the bytes of a result that are read at most: a row has less than 1 KiB.
const maxResult = 64 << 20

// readEarlier returns the result of --vs, which an earlier run has written: as the starter of this
// rank has read it, if it has.
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

// readResult is the result that an earlier run has written.
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
