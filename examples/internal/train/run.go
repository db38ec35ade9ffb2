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
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/blas"
	"github.com/symgrad/symgrad/internal/settings"
)

// start runs the ranks of the job, or this one of them.
//
// Returns: the exit code of the ranks that it started, else 0. Errors: usageError, interrupted,
// those of a rank.
func start(o options, stdout, stderr io.Writer) (int, error) {
	env := o.env
	if env.Launcher == launch.None {
		env.Columns = launch.Columns(stdout) // a launcher would have told
	}
	if o.program.Find != nil {
		if err := o.program.Find(o.cfg); err != nil {
			return 0, err // once, and not once a rank
		}
	}
	if err := settings.CheckRanks(o.cfg, planned(o.cfg, env).Size); err != nil {
		return 0, usageError{err}
	}
	if o.cfg.Comm.Backend == backend.Sim {
		return 0, simulate(o, env, stdout)
	}
	if _, err := siteOf(o.cfg, planned(o.cfg, env)); err != nil {
		return 0, err // likewise
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

// startRanks starts this program as the ranks of a job. The output folder is claimed before: their
// logs go there.
//
// Returns: the exit code of the job.
func startRanks(o options, env launch.Env, program string, stdout, stderr io.Writer) (code int, err error) {
	if o.claimed, err = claimOutput(o.cfg); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, o.claimed.close()) }()
	cfg, err := o.spawned(program, stdout, stderr)
	if err != nil {
		return 0, err
	}
	res, _, err := launch.Self(context.Background(), env, cfg)
	return res.Code, err
}

// spawned is how the program starts itself as ranks. After a signal they end their step and save:
// launch.grace is longer than the launcher's own patience where that takes longer.
func (o *options) spawned(program string, stdout, stderr io.Writer) (launch.SpawnConfig, error) {
	c := o.cfg.Launch
	handed, err := o.handed()
	return launch.SpawnConfig{
		Program: program, Args: o.args, N: c.NprocPerNode, Master: c.Master, Bind: c.Bind, Handover: handed,
		Grace: c.Grace, Patience: max(c.Grace, launch.DefaultPatience), LogDir: o.cfg.LogDir(), Stdout: stdout, Stderr: stderr,
	}, err
}

// planned is the job that the program starts, if it starts one.
func planned(c *config.Config, env launch.Env) launch.Env {
	if n := c.Launch.NprocPerNode; env.Launcher == launch.None && n > 1 {
		env.Size, env.LocalSize = n, n
	}
	return env
}

// one is this process as a rank.
func one(o options, env launch.Env, stdout io.Writer) (err error) {
	ctx, release := untilSignal(context.Background())
	defer release()
	j, err := newJob(o, env, stdout)
	if err != nil {
		return fmt.Errorf("rank %d of %d: %w", env.Rank, env.Size, err)
	}
	// This rank's share of the cores, and one more processor for its communication: on one alone a
	// bucket would wait for a matrix product to end.
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), j.threads+1))
	cfg := j.backendConfig()
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
		return err // running work uses the world; the end of the process closes it
	}
	return errors.Join(err, w.Close())
}

// patience is the time for a rank to notice by itself that its group is broken, by its next
// operation, or that it must end: it may compute, or wait for a disk. On GPUs, work that waits for
// a dead rank takes a while to stop.
func (j *job) patience() time.Duration {
	if j.site.gpu {
		return 10 * time.Second
	}
	return time.Second
}

// attended loads the data and runs the rank, and returns when that has ended, or a moment after the
// group has broken.
//
// Returns: left for a rank that goes on all the same. Errors: those of load and run; why the group
// is broken.
func (j *job) attended(ctx context.Context, w *dist.World) (err error, left bool) {
	group, release := w.Context(context.Background())
	defer release()
	ended := make(chan error, 1)
	go func() { // ended by the process where it is left
		release := abortAfter(ctx, w)
		err := j.load()
		release()
		if err != nil {
			err = fmt.Errorf("rank %d of %d: %w", w.Rank(), w.Size(), err)
			_ = w.Abort(err) // fails only if no other rank is left
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

// simulate is all ranks as goroutines of this process.
func simulate(o options, env launch.Env, stdout io.Writer) error {
	if env.Size > 1 {
		return usageError{fmt.Errorf("comm.backend=sim runs all ranks in one process, but %s started %d; start the program plainly, with launch.nproc_per_node", env.Launcher, env.Size)}
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
	go func() { loaded <- j.load() }() // ended by the process after a signal
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
	err = backend.Simulate(n, j.backendConfig(), func(w *dist.World) error {
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

// reason returns which of two ranks' errors, in the order of their arrival, caused the other: the
// one whose rank was not aborted by another. A rank that aborts the others may return after them.
func reason(first, second error) error {
	if first == nil || second != nil && errors.Is(first, dist.ErrAborted) && !errors.Is(second, dist.ErrAborted) {
		return second
	}
	return first
}

// job has the common state of the ranks of this process.
type job struct {
	options
	env     launch.Env // in a simulation, rank 0's
	site    site
	threads int // of a rank
	blas    blas.Info
	problem Problem
	facts   []string  // lines that must be equal on all ranks
	out     io.Writer // of rank 0
}

// newJob chooses the BLAS; load then loads the data.
func newJob(o options, env launch.Env, out io.Writer) (*job, error) {
	j := &job{options: o, env: env, out: out, threads: o.cfg.CPU.Threads}
	if j.threads == 0 {
		j.threads = max(1, runtime.GOMAXPROCS(0)/env.LocalSize)
		if env.Bound { // the cores that this process sees are its own
			j.threads = runtime.GOMAXPROCS(0)
		}
	}
	var err error
	if j.site, err = siteOf(o.cfg, env); err != nil {
		return nil, err
	}
	impl, err := blas.Open(blasConfig(o.cfg.CPU, j.threads))
	if err != nil {
		return nil, err
	}
	gorgonia.Use(impl)
	if j.blas = impl.Info(); j.blas.Name == "gonum" {
		j.blas.Threads = 0 // as many as the process has, which is printed elsewhere
	}
	return j, nil
}

// load loads the data. It takes as long as the disk does, and so comes after the ranks have met:
// then they notice when one of them is gone.
func (j *job) load() (err error) {
	if j.problem, err = j.program.Open(j.cfg); err != nil {
		return err
	}
	j.facts = append(j.facts, "program: "+j.program.Name, fmt.Sprintf("--resident: %v", j.timing.resident), fmt.Sprintf("on GPUs: %v", j.site.gpu), j.cfg.Canonical(), j.problem.Digest())
	return nil
}

func blasConfig(c config.CPU, threads int) blas.Config {
	b := blas.Config{Threads: threads}
	switch c.BLAS {
	case "auto":
	case "gonum":
		b = blas.Config{Disable: true}
	default:
		b.Path = c.BLAS
	}
	return b
}

// run is one rank, from the meeting of the ranks to the summary. When it fails the other ranks are
// told why.
//
// Collective: all ranks. Errors: interrupted when ctx was; else the rank is named.
func (j *job) run(ctx context.Context, w *dist.World) error {
	g := newGuard(ctx, w)
	err := train(ctx, w, j, g)
	g.off()
	stop := (&saved{})
	switch cause := context.Cause(ctx); {
	case err == nil:
		return nil
	case errors.As(err, &stop): // not an error that the others need to be told
		return fmt.Errorf("rank %d of %d: %w", w.Rank(), w.Size(), stop)
	case cause != nil:
		return fmt.Errorf("rank %d of %d: %w", w.Rank(), w.Size(), cause)
	}
	err = fmt.Errorf("rank %d of %d: %w", w.Rank(), w.Size(), err)
	_ = w.Abort(err) // fails only if no other rank is left
	return err
}
