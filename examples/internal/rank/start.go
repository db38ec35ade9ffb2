package rank

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/launch"
)

// start runs the ranks of the job, or this process's rank.
//
// Returns: the exit code of the ranks that it started, else 0. Errors: those of this process's
// ranks.
func (o *options) start(stdout, stderr io.Writer) (int, error) {
	ctx := context.Background()
	if o.backend == backend.Sim {
		return 0, o.simulate(ctx, stdout)
	}
	program, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("this program: %w", err)
	}
	res, spawned, err := launch.Self(ctx, o.env, launch.SpawnConfig{
		Program: program, Args: o.args, N: o.n, Stdout: stdout, Stderr: stderr,
	})
	if spawned {
		return res.Code, err
	}
	return 0, o.join(ctx, stdout)
}

// join runs this process as a rank of its job.
func (o *options) join(ctx context.Context, stdout io.Writer) error {
	cfg := o.config()
	cfg.Env = &o.env
	w, err := backend.Open(ctx, cfg)
	if err != nil {
		return fmt.Errorf("rank %d of %d: %w", o.env.Rank, o.env.Size, err)
	}
	if err := errors.Join(o.rank(ctx, w, stdout), w.Close()); err != nil {
		return err
	}
	marks := launch.OpenMarks(o.env)
	return errors.Join(marks.Succeed(), marks.Close())
}

// simulate runs all ranks as goroutines of this process. It returns the first of several errors,
// because the others follow from it.
func (o *options) simulate(ctx context.Context, stdout io.Writer) error {
	var once sync.Once
	var first error
	err := backend.Simulate(o.n, o.config(), func(w *dist.World) error {
		err := o.rank(ctx, w, stdout)
		if err != nil {
			once.Do(func() { first = err })
		}
		return err
	})
	if first != nil {
		return first
	}
	return err
}

// rank runs one rank. A failure aborts the others, so that none waits for it.
func (o *options) rank(ctx context.Context, w *dist.World, stdout io.Writer) error {
	out := io.Discard
	if w.Rank() == 0 {
		out = stdout
	}
	err := o.Run(ctx, w, out)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("rank %d of %d: %w", w.Rank(), w.Size(), err)
	_ = w.Abort(err) // fails only if all peers are gone
	return err
}
