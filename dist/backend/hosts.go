package backend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/host/shm"
	"github.com/symgrad/symgrad/internal/net/hosts"
	"github.com/symgrad/symgrad/internal/net/mpi"
	"github.com/symgrad/symgrad/internal/net/ucx"
	"github.com/symgrad/symgrad/internal/net/wire"
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
	t, place, leave, err := c.reach(ctx, env, c.StepTimeout)
	if err != nil {
		return nil, err
	}
	world, err := dist.NewWorld(t, localAt(place, env), c.TraceEntries, leave)
	if err != nil {
		return nil, errors.Join(err, t.Close(), leave())
	}
	return world, nil
}

// localAt is localOf for a rank on one of several hosts, which the ranks have found themselves.
func localAt(p hosts.Place, env launch.Env) dist.LocalInfo {
	return dist.LocalInfo{Rank: p.LocalRank, Size: p.LocalSize, Node: p.Node, Nodes: p.Nodes, Launcher: env.Launcher, Job: p.Job}
}

// reach opens the transport of all ranks on the memory of their hosts. step is the longest wait for
// a peer in one operation.
//
// Collective: all ranks of the job. Returns: also a function that leaves the store, after the
// transport is closed.
func (c Config) reach(ctx context.Context, env launch.Env, step time.Duration) (dist.Transport, hosts.Place, func() error, error) {
	if ctx == nil {
		return nil, hosts.Place{}, nil, fmt.Errorf("backend: no context: %w", dist.ErrInvalid)
	}
	wait := c.InitTimeout
	if wait == 0 {
		wait = openTimeout
	}
	within, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("%w after %v", dist.ErrTimeout, wait))
	defer cancel()
	within, lost := context.WithCancelCause(within)
	defer lost(nil)
	deaths := &news{cancel: lost}
	open := c.openMPI
	if name := c.NameFor(env); name == UCX || OnGPUs(name) && !byMPI(env) {
		open = c.openUCX
	}
	w, leave, err := open(within, &env, deaths)
	if err != nil {
		return nil, hosts.Place{}, nil, err
	}
	t, place, err := c.join(within, env, w, &deaths.losses, step)
	if err != nil {
		return nil, hosts.Place{}, nil, errors.Join(fmt.Errorf("backend: %s: %w", c.NameFor(env), firstDeath(within, err)), leave())
	}
	return t, place, leave, nil
}

// join opens the transport of all ranks over w, which it takes also if it fails.
func (c Config) join(
	ctx context.Context, env launch.Env, w wire.Wire, losses *hosts.Losses, step time.Duration,
) (dist.Transport, hosts.Place, error) {
	host, err := hostOf(env)
	if err != nil {
		return nil, hosts.Place{}, errors.Join(err, w.Close())
	}
	near := func(ctx context.Context, rank, size int, store dist.Store) (dist.Transport, error) {
		return shm.Open(ctx, rank, size, store, shm.Config{
			StepTimeout: step, InitTimeout: c.InitTimeout, Dir: c.ShmDir, Unchecked: c.Unchecked,
		})
	}
	name, err := os.Hostname()
	if err != nil {
		name = "" // only errors need it
	}
	own := hosts.Card{Host: host, Name: name, Job: launch.JobName(env)}
	return hosts.Join(ctx, w, losses, own, near, hosts.Config{StepTimeout: step, Timing: c.Timing && !OnGPUs(c.Name()), Fast: c.FastOrder})
}

// hostOf returns the name of this rank's host. A launcher may number several hosts on one machine,
// and users may name them: they do not share memory either.
func hostOf(env launch.Env) (string, error) {
	host, err := shm.HostID()
	if err == nil && env.Nodes > 1 {
		host = fmt.Sprintf("%s node %d", host, env.Node)
	}
	if err == nil && env.Host != "" {
		host += " " + env.Host
	}
	return host, err
}

// noStore leaves no store.
func noStore() error { return nil }

// openMPI opens the wire of MPI, and compares its ranks with those of env.
func (c Config) openMPI(ctx context.Context, env *launch.Env, deaths *news) (wire.Wire, func() error, error) {
	w, err := mpi.Open(ctx, mpi.Config{Environ: launch.Environ(), OnLost: deaths.losses.Lost})
	if ctx.Err() != nil && err != nil {
		return nil, nil, fmt.Errorf("backend: rank %d/%d: %w", env.Rank, env.Size, err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("backend: %w: %s: %w", dist.ErrUnsupported, MPI, err)
	}
	if info := w.Info(); info.Rank != env.Rank || info.Size != env.Size {
		err := fmt.Errorf("backend: %w: the library of MPI says rank %d of %d, and the launcher's variables rank %d of %d: "+
			"start the program with the mpirun of that library", dist.ErrInvalid, info.Rank, info.Size, env.Rank, env.Size)
		return nil, nil, errors.Join(err, w.Close())
	}
	return w, noStore, nil
}

// openUCX opens the wire of UCX, whose addresses travel through the store of the rendezvous. It
// names the job if the launcher has not.
//
// Returns: also a function that leaves the store.
func (c Config) openUCX(ctx context.Context, env *launch.Env, deaths *news) (wire.Wire, func() error, error) {
	if _, err := ucx.Find(); err != nil {
		return nil, nil, fmt.Errorf("backend: %w: %w", dist.ErrUnsupported, err)
	}
	store, closer, err := launch.Rendezvous(ctx, *env, launch.Config{Timeout: c.InitTimeout})
	if err != nil {
		return nil, nil, err
	}
	if err := launch.NameJob(ctx, env, store); err != nil {
		return nil, nil, errors.Join(err, closer.Close())
	}
	w, err := ucx.Open(ctx, env.Rank, env.Size, store, ucx.Config{
		Job: env.Job, Transports: transports(launch.Environ()), OnLost: deaths.losses.Lost,
	})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("backend: %w", err), closer.Close())
	}
	stop := deaths.watch(store)
	return w, func() error {
		stop()
		return closer.Close()
	}, nil
}

// transports returns the transports of UCX, or "" if the user's UCX_TLS chooses them: all between
// hosts. UCX takes containers of one machine for one host, and its shared memory fails between
// them.
func transports(environ []string) string {
	if slices.ContainsFunc(environ, func(v string) bool { return strings.HasPrefix(v, "UCX_TLS=") }) {
		return ""
	}
	return "^sm"
}
