package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/host/blas"
	"github.com/symgrad/symgrad/internal/settings"
	"github.com/symgrad/symgrad/internal/tool/cli"
	"github.com/symgrad/symgrad/train/internal/output"
)

// start runs the ranks of the job, or this process's rank.
//
// Returns: the exit code of the ranks that it started, else 0. Errors: cli.ErrUsage, interrupted,
// those of a rank.
func start(o options, stdout, stderr io.Writer) (int, error) {
	env := o.env
	if env.Launcher == launch.None {
		env.Columns = launch.Columns(stdout) // a launcher sets it itself
	}
	if o.program.Find != nil {
		if err := o.program.Find(o.cfg); err != nil {
			return 0, err // once, not once per rank
		}
	}
	if err := settings.CheckRanks(o.cfg, planned(o.cfg, env).Size); err != nil {
		return 0, cli.AsUsage(err)
	}
	if o.cfg.Comm.Backend == backend.Sim {
		return 0, simulate(o, env, stdout)
	}
	if _, err := settings.SiteOf(o.cfg, planned(o.cfg, env)); err != nil {
		return 0, err // once, not once per rank
	}
	program, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("this program: %w", err)
	}
	if planned(o.cfg, env).Size > env.Size {
		return startRanks(o, env, program, stdout, stderr)
	}
	return 0, one(o, env, stdout)
}

// startRanks starts this program as the ranks of a job. It claims the output folder first, because
// the ranks' logs go there.
//
// Returns: the exit code of the job.
func startRanks(o options, env launch.Env, program string, stdout, stderr io.Writer) (code int, err error) {
	if o.claimed, err = output.New(o.cfg); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, o.claimed.Close()) }()
	cfg, err := o.spawned(program, stdout, stderr)
	if err != nil {
		return 0, err
	}
	res, _, err := launch.Self(context.Background(), env, cfg)
	return res.Code, err
}

// spawned returns the configuration to start this program as ranks. After a signal the ranks finish
// their step and save, so a long launch.grace also extends the launcher's patience.
func (o *options) spawned(program string, stdout, stderr io.Writer) (launch.SpawnConfig, error) {
	c := o.cfg.Launch
	handed, err := o.handed()
	return launch.SpawnConfig{
		Program: program, Args: o.args, N: c.NprocPerNode, Master: c.Master, Bind: c.Bind, Handover: handed,
		Grace: c.Grace, Patience: max(c.Grace, launch.DefaultPatience), LogDir: o.cfg.LogDir(), Stdout: stdout, Stderr: stderr,
	}, err
}

// planned returns the job that the program would start, or env if it starts none.
func planned(c *config.Config, env launch.Env) launch.Env {
	if n := c.Launch.NprocPerNode; env.Launcher == launch.None && n > 1 {
		env.Size, env.LocalSize = n, n
	}
	return env
}

// one runs this process as a rank.
func one(o options, env launch.Env, stdout io.Writer) (err error) {
	ctx, release := untilSignal(context.Background())
	defer release()
	marks := launch.OpenMarks(env) // the end of the process closes them
	if err := marks.Begin(0); err != nil {
		return err
	}
	j, err := newJob(o, env, stdout)
	if err != nil {
		return fmt.Errorf("rank %d of %d: %w", env.Rank, env.Size, err)
	}
	j.marks = marks
	// One processor for communication in addition to the rank's share of cores: without it a bucket
	// would wait for a matrix product to end.
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), j.threads+1))
	cfg := settings.Backend(j.cfg, j.site.GPU)
	cfg.Env = &env
	w, err := backend.Open(ctx, cfg)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return fmt.Errorf("rank %d of %d: %w", env.Rank, env.Size, err)
	}
	err, left := j.attended(ctx, w)
	if left {
		return err // the rank still uses the world; the end of the process closes it
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	return marks.Succeed()
}

// patience returns the time in which a rank may notice that its group broke or that a signal
// arrived: it may be computing or waiting for a disk. On GPUs, work that waits for a dead rank
// takes a while to stop.
func (j *job) patience() time.Duration {
	if j.site.GPU {
		return 10 * time.Second
	}
	return time.Second
}

// attended loads the data and runs the rank. It returns when the rank ends, or patience after the
// group broke.
//
// Returns: left if the rank still runs. Errors: those of load and run; the reason why the group
// broke.
func (j *job) attended(ctx context.Context, w *dist.World) (err error, left bool) {
	group, release := w.Context(context.Background())
	defer release()
	ended := make(chan error, 1)
	go func() { // if left, the end of the process ends it
		release := abortAfter(ctx, w)
		err := j.load()
		release()
		if err != nil {
			err = fmt.Errorf("rank %d of %d: %w", w.Rank(), w.Size(), err)
			_ = w.Abort(err) // fails only if all peers are gone
			ended <- err
			return
		}
		ended <- j.run(ctx, w)
	}()
	select {
	case err := <-ended:
		return err, false
	case <-group.Done():
	}
	late := time.NewTimer(j.patience())
	defer late.Stop()
	select {
	case err := <-ended:
		return err, false
	case <-late.C:
	}
	cause := context.Cause(ctx)
	if cause == nil {
		cause = context.Cause(group)
	}
	return fmt.Errorf("rank %d of %d: %w", w.Rank(), w.Size(), cause), true
}

// simulate runs all ranks as goroutines of this process.
func simulate(o options, env launch.Env, stdout io.Writer) error {
	if env.Size > 1 {
		return cli.Usage("comm.backend=sim runs all ranks in one process, but %s started %d; start the program without a launcher and set launch.nproc_per_node", env.Launcher, env.Size)
	}
	ctx, release := untilSignal(context.Background())
	defer release()
	n := max(1, o.cfg.Launch.NprocPerNode)
	env.Size, env.LocalSize = n, n
	j, err := newJob(o, env, stdout)
	if err != nil {
		return err
	}
	loaded := make(chan error, 1)
	go func() { loaded <- j.load() }() // after a signal, the end of the process ends it
	select {
	case err := <-loaded:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var mu sync.Mutex
	var first error
	err = backend.Simulate(n, settings.Backend(j.cfg, j.site.GPU), func(w *dist.World) error {
		err := j.run(ctx, w)
		mu.Lock()
		defer mu.Unlock()
		first = reason(first, err)
		return err
	})
	if first != nil {
		return first
	}
	return err
}

// reason returns the error that caused the other; first came first. An aborted rank is never the
// cause, although it may return before the rank that aborted it.
func reason(first, second error) error {
	if first == nil || second != nil && errors.Is(first, dist.ErrAborted) && !errors.Is(second, dist.ErrAborted) {
		return second
	}
	return first
}

// job is the common state of the ranks of this process.
type job struct {
	options
	env     launch.Env // in a simulation, rank 0's
	marks   *launch.Marks
	site    settings.Site
	threads int // of a rank
	blas    blas.Info
	problem Problem
	facts   []string  // lines that must be equal on all ranks
	out     io.Writer // of rank 0
}

// newJob chooses the BLAS; load loads the data later.
func newJob(o options, env launch.Env, out io.Writer) (*job, error) {
	j := &job{options: o, env: env, out: out, threads: o.cfg.CPU.Threads}
	if j.threads == 0 {
		j.threads = max(1, runtime.GOMAXPROCS(0)/env.LocalSize)
		if env.Bound { // the cores that this process sees are its own
			j.threads = runtime.GOMAXPROCS(0)
		}
	}
	var err error
	if j.site, err = settings.SiteOf(o.cfg, env); err != nil {
		return nil, err
	}
	impl, err := blas.Open(settings.BLAS(o.cfg.CPU, j.threads))
	if err != nil {
		return nil, err
	}
	gorgonia.Use(impl)
	if j.blas = impl.Info(); j.blas.Name == "gonum" {
		j.blas.Threads = 0 // the header prints the threads of the process
	}
	return j, nil
}

// load loads the data. That can take long, so it runs after the rendezvous, when the ranks notice a
// lost peer.
func (j *job) load() (err error) {
	if j.problem, err = j.program.Open(j.cfg); err != nil {
		return err
	}
	if n := j.problem.Len(); n < 1 {
		return fmt.Errorf("the problem has %d training samples: its Len must return 1 at least", n)
	}
	j.facts = append(j.facts, "program: "+j.program.Name, fmt.Sprintf("--resident: %v", j.timing.resident), fmt.Sprintf("on GPUs: %v", j.site.GPU), j.cfg.Canonical(), j.problem.Digest())
	return nil
}

// newSampler returns the samples of a rank of so many.
func (j *job) newSampler(rank, size int) (*data.Sampler, error) {
	return data.NewSampler(data.SamplerConfig{
		Samples: j.problem.Len(), GlobalBatch: j.cfg.Data.GlobalBatch, Rank: rank, Size: size,
		Seed: j.cfg.Run.Seed, Shuffle: j.cfg.Data.Shuffle, DropLast: j.cfg.Data.DropLast,
	})
}

// say prints on rank 0. It returns write errors: a full disk must not look like success.
func (j *job) say(format string, args ...any) error {
	if _, err := fmt.Fprintf(j.out, format, args...); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// run is one rank, from the rendezvous to the summary. A failure aborts the other ranks with its
// reason.
//
// Collective: all ranks. Errors: interrupted if ctx ended by a signal; else the error names the
// rank.
func (j *job) run(ctx context.Context, w *dist.World) error {
	g := newGuard(ctx, w)
	err := train(ctx, w, j, g)
	g.off()
	stop := (&saved{})
	switch cause := context.Cause(ctx); {
	case err == nil:
		return nil
	case errors.As(err, &stop): // all ranks stopped together: no abort
		return fmt.Errorf("rank %d of %d: %w", w.Rank(), w.Size(), stop)
	case cause != nil:
		return fmt.Errorf("rank %d of %d: %w", w.Rank(), w.Size(), cause)
	}
	err = fmt.Errorf("rank %d of %d: %w", w.Rank(), w.Size(), err)
	_ = w.Abort(err) // fails only if all peers are gone
	return err
}
