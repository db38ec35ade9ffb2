package backend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/hosts"
	"github.com/symgrad/symgrad/internal/mpi"
	"github.com/symgrad/symgrad/internal/shm"
	"github.com/symgrad/symgrad/internal/wire"
)

// openTimeout is the value of a zero InitTimeout.
const openTimeout = time.Minute

// byMPI reports whether the launcher of env is one of MPI, so that its library connects the ranks.
func byMPI(env launch.Env) bool {
	return env.Launcher == launch.OpenMPI || env.Launcher == launch.MPICH
}

// openOverHosts opens the world of ranks on one or several hosts: shared memory inside a host,
// messages between hosts.
//
// Collective: all ranks of the job.
func (c Config) openOverHosts(ctx context.Context, env launch.Env) (*dist.World, error) {
	wait := c.InitTimeout
	if wait == 0 {
		wait = openTimeout
	}
	within, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("%w after %v", dist.ErrTimeout, wait))
	defer cancel()
	losses := new(hosts.Losses)
	w, err := c.openWire(env, losses)
	if err != nil {
		return nil, err
	}
	host, err := shm.HostID()
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	near := func(ctx context.Context, rank, size int, store dist.Store) (dist.Transport, error) {
		return shm.Open(ctx, rank, size, store, shm.Config{
			StepTimeout: c.StepTimeout, InitTimeout: c.InitTimeout, Dir: c.ShmDir, Unchecked: c.Unchecked,
		})
	}
	own := hosts.Card{Host: host, Job: launch.JobName(env)}
	t, place, err := hosts.Join(within, w, losses, own, near, hosts.Config{StepTimeout: c.StepTimeout, Timing: c.Timing})
	if err != nil {
		return nil, fmt.Errorf("backend: %s: %w", c.NameFor(env), err)
	}
	local := dist.LocalInfo{Rank: place.LocalRank, Size: place.LocalSize, Launcher: env.Launcher, Job: place.Job}
	world, err := dist.NewWorld(t, local, c.TraceEntries, nil)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return world, nil
}

// openWire opens the wire of the backend, and compares its ranks with those of env.
func (c Config) openWire(env launch.Env, losses *hosts.Losses) (wire.Wire, error) {
	w, err := mpi.Open(mpi.Config{Environ: launch.Environ(), OnLost: losses.Lost})
	if err != nil {
		return nil, fmt.Errorf("backend: %w: %s: %w", dist.ErrUnsupported, MPI, err)
	}
	if info := w.Info(); info.Rank != env.Rank || info.Size != env.Size {
		err := fmt.Errorf("backend: %w: the library of MPI says rank %d of %d, and the launcher's variables rank %d of %d: "+
			"start the program with the mpirun of that library", dist.ErrInvalid, info.Rank, info.Size, env.Rank, env.Size)
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}
