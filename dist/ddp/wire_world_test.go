package ddp_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/host/shm"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/optim"
)

// host is a backend of the host, with all ranks in this process.
type host struct {
	name string
	make func(n int) ([]*dist.World, error)
}

var hosts = []host{
	{"sim", func(n int) ([]*dist.World, error) { return sim.New(n, sim.Config{}) }},
	sharedMemory("shm", 0),
}

// sharedMemory is a host whose ranks hand each other so many bytes at a time.
func sharedMemory(name string, chunkBytes int) host {
	return host{name, func(n int) ([]*dist.World, error) {
		ends, err := shm.Local(n, shm.GoMemory, shm.Config{StepTimeout: time.Minute, ChunkBytes: chunkBytes})
		if err != nil {
			return nil, err
		}
		worlds := make([]*dist.World, n)
		for r, t := range ends {
			local := dist.LocalInfo{Rank: r, Size: n, Launcher: "none", Job: "shm"}
			if worlds[r], err = dist.NewWorld(t, local, 0, nil); err != nil {
				return nil, err
			}
		}
		return worlds, nil
	}}
}

// on runs body on every rank of a world.
func (h host) on(t *testing.T, n int, body func(w *dist.World) error) {
	t.Helper()
	worlds, err := h.make(n)
	if err != nil {
		t.Fatal(err)
	}
	var ranks sync.WaitGroup
	for r, w := range worlds {
		ranks.Go(func() {
			err := body(w)
			if err != nil {
				_ = w.Abort(fmt.Errorf("rank %d: %w", r, err))
			}
			if err = errors.Join(err, w.Close()); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	ranks.Wait()
}

// onWorlds runs body on every rank of worlds of each of the sizes, on each backend.
func onWorlds(t *testing.T, sizes []int, body func(t *testing.T, w *dist.World) error) {
	t.Helper()
	for _, h := range hosts {
		for _, n := range sizes {
			t.Run(fmt.Sprintf("%s/%d ranks", h.name, n), func(t *testing.T) {
				h.on(t, n, func(w *dist.World) error { return body(t, w) })
			})
		}
	}
}

// learner is one rank that trains: float32 or float64, any solver.
type learner struct {
	w      *dist.Group
	m      *model
	d      *ddp.DDP
	vm     G.VM
	f      family
	solver optim.Solver
}

// newLearner attaches the model of a rank; opt may be the zero Config for none.
func newLearner(on dist.Members, f family, dt gtensor.Dtype, rows int, cfg ddp.Config, opt optim.Config) (*learner, error) {
	w := on.Members()
	m := f.make(dt, rows, uint64(1+w.Rank()))
	d, err := ddp.Attach(on, m.cost, m.params, cfg)
	if err != nil {
		return nil, err
	}
	l := &learner{w: w, m: m, d: d, f: f, vm: G.NewTapeMachine(m.cost.Graph(), G.BindDualValues(m.params...))}
	if opt.Name != "" {
		l.solver, err = d.NewSolver(opt)
	}
	return l, err
}

// run is one run of the graph over samples, with the given weight.
func (l *learner) run(samples []int, weight float64) error {
	if err := l.d.SetWeight(weight); err != nil {
		return err
	}
	l.vm.Reset()
	if err := l.m.let(l.f, samples); err != nil {
		return err
	}
	return l.vm.RunAll()
}

// loss is the mean cost of the last run.
func (l *learner) loss() (float64, error) {
	v, err := elements(l.m.cost.Value())
	if err != nil {
		return 0, err
	}
	return v[0], nil
}

func (l *learner) step() error { return l.solver.Step(l.d.Model()) }

func (l *learner) weights() ([]float64, error) { return weights(l.m.params) }

func (l *learner) close() error { return errors.Join(l.vm.Close(), l.d.Close()) }

// ownGradients is the gradient of each part's mean cost, from the weights that rank 0 starts with,
// by gorgonia alone.
func ownGradients(t *testing.T, f family, dt gtensor.Dtype, parts [][]int) [][]float64 {
	t.Helper()
	all := make([][]float64, len(parts))
	for r, part := range parts {
		res, err := trial{family: f, dt: dt, steps: 1, parts: func(int, int) [][]int { return [][]int{part} }}.alone()
		if err != nil {
			t.Fatal(err)
		}
		all[r] = res.grads
	}
	return all
}

// agreeOn is an error unless all ranks have the bits of rank 0.
func agreeOn(w *dist.World, what string, mine []float64) error {
	first, err := broadcast(w, mine)
	if err != nil {
		return err
	}
	if !slices.Equal(mine, first) {
		return fmt.Errorf("%s are others than on rank 0, off by %g", what, relative(mine, first))
	}
	return nil
}

// wider has matrices that are worth compressing.
var wider = family{name: "wider", in: []int{24}, out: 3, layers: func(b *build, x *G.Node) *G.Node {
	h := G.Must(G.Tanh(affine(b, x, "0", 24, 40)))
	h = G.Must(G.Tanh(affine(b, h, "1", 40, 32)))
	return affine(b, h, "2", 32, 3)
}}

// copyValue copies the value of one node to another's, in place.
func copyValue(to, from *G.Node) error {
	_, err := G.Copy(to.Value(), from.Value())
	return err
}
