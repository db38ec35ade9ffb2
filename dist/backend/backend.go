// Package backend opens worlds: it knows all backends, in the order in which they are tried, and chooses one.
//
//	w, err := backend.Open(ctx, backend.Config{}) // who am I, from the environment; meet the others; best backend
//	defer w.Close()
//
// Started plainly a program is a world of one rank; started by symgrad run, torchrun, mpirun or srun it is one of theirs.
package backend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/shm"
	"github.com/symgrad/symgrad/internal/sim"
)

// The backends.
const (
	Auto = "auto" // the first of Choices that is usable
	SHM  = "shm"  // shared memory of one host
	Sim  = "sim"  // goroutines of one process; only with Simulate
)

// Config is how a world is opened. The zero value is usable.
type Config struct {
	Backend      string        // Auto or SHM; "" means Auto
	Env          *launch.Env   // who this rank is; nil means launch.Current
	InitTimeout  time.Duration // longest wait for all ranks to meet; 0 means one minute
	StepTimeout  time.Duration // longest wait for a peer in one operation; 0 means 100 s
	Unchecked    bool          // do not compare operations across ranks
	TraceEntries int           // of the recorder; 0 means dist.DefaultTraceEntries
	ShmDir       string        // tmpfs folder for shared memory; "" means anonymous memory
}

// Validate reports the first setting that no backend understands.
func (c Config) Validate() error {
	switch {
	case c.Backend != "" && c.Backend != Auto && c.Backend != SHM && c.Backend != Sim:
		return fmt.Errorf("backend: %w: %q is none of auto, shm, sim", dist.ErrInvalid, c.Backend)
	case c.InitTimeout < 0 || c.StepTimeout < 0:
		return fmt.Errorf("backend: %w: negative timeout", dist.ErrInvalid)
	case c.TraceEntries < 0:
		return fmt.Errorf("backend: %w: negative number of trace entries", dist.ErrInvalid)
	}
	return nil
}

// Choice is a backend and whether it can be used for a job.
type Choice struct {
	Name   string
	Usable bool
	Why    string // the reason, either way
}

// Choices is all backends for the job of env, in the order in which Auto takes them.
func Choices(env launch.Env) []Choice {
	s := Choice{Name: SHM, Usable: true, Why: "all ranks are on this host"}
	if !env.OneHost() {
		s.Usable = false
		s.Why = fmt.Sprintf("%d of %d ranks are on this host, and shared memory needs all", env.LocalSize, env.Size)
	}
	return []Choice{s, {Name: Sim, Why: "ranks would be goroutines; it is taken only when asked for"}}
}

// Open is the world that this process is a rank of.
//
// Collective: all ranks of the job. Owns: the caller closes the world. Errors: those of launch.Detect for a wrong
// environment, of launch.Rendezvous when the ranks do not meet, and of the backend; dist.ErrUnsupported, with the reasons,
// when no backend can be used.
func Open(ctx context.Context, cfg Config) (*dist.World, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	env, err := cfg.env()
	if err != nil {
		return nil, err
	}
	if _, err := choose(cfg.Backend, env); err != nil {
		return nil, err
	}
	store, closer, err := launch.Rendezvous(ctx, env, launch.Config{Timeout: cfg.InitTimeout})
	if err != nil {
		return nil, err
	}
	t, err := shm.Open(ctx, env.Rank, env.Size, store, shm.Config{
		StepTimeout: cfg.StepTimeout, InitTimeout: cfg.InitTimeout, Dir: cfg.ShmDir, Unchecked: cfg.Unchecked,
	})
	if err != nil {
		return nil, errors.Join(err, closer.Close())
	}
	local := dist.LocalInfo{Rank: env.LocalRank, Size: env.LocalSize, Launcher: env.Launcher, Job: env.Job}
	w, err := dist.NewWorld(t, local, cfg.TraceEntries, closer.Close)
	if err != nil {
		return nil, errors.Join(err, t.Close(), closer.Close())
	}
	return w, nil
}

func (c Config) env() (launch.Env, error) {
	if c.Env != nil {
		return *c.Env, c.Env.Validate()
	}
	return launch.Current()
}

// choose is the name of the backend for the job of env.
func choose(name string, env launch.Env) (string, error) {
	var reasons []string
	for _, c := range Choices(env) {
		if name != "" && name != Auto && name != c.Name {
			continue
		}
		if c.Usable {
			return c.Name, nil
		}
		reasons = append(reasons, c.Name+": "+c.Why)
	}
	return "", fmt.Errorf("backend: %w here: %s", dist.ErrUnsupported, strings.Join(reasons, "; "))
}

// Simulate runs body on every rank of a world of n ranks that are goroutines of this process, and returns when all are
// done. When one returns an error the others are told, so that none waits for it.
//
// Errors: those of body, the first failing rank's first, and wrong settings.
func Simulate(n int, cfg Config, body func(w *dist.World) error) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	worlds, err := sim.New(n, sim.Config{StepTimeout: cfg.StepTimeout, Unchecked: cfg.Unchecked, TraceEntries: cfg.TraceEntries})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var errs []error
	var ranks sync.WaitGroup
	for _, w := range worlds {
		ranks.Go(func() {
			err := body(w)
			if err != nil {
				mu.Lock()
				errs = append(errs, fmt.Errorf("rank %d: %w", w.Rank(), err))
				mu.Unlock()
				_ = w.Abort(fmt.Errorf("rank %d: %w", w.Rank(), err))
			}
			if err := w.Close(); err != nil {
				mu.Lock()
				errs = append(errs, fmt.Errorf("rank %d: close: %w", w.Rank(), err))
				mu.Unlock()
			}
		})
	}
	ranks.Wait()
	return errors.Join(errs...)
}
