package ddp_test

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// valueless is w of width by width in a graph, without a value, and a cost of it.
func valueless(width int) (cost *G.Node, params G.Nodes) {
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float32, G.WithName("x"), G.WithShape(2, width))
	w := G.NewMatrix(g, G.Float32, G.WithName("w"), G.WithShape(width, width))
	b := G.NewMatrix(g, G.Float32, G.WithName("b"), G.WithShape(1, width))
	y := G.Must(G.BroadcastAdd(G.Must(G.Mul(x, w)), b, nil, []byte{0}))
	return G.Must(G.Mean(G.Must(G.Square(y)))), G.Nodes{w, b}
}

// Imagine makes the Plan of Attach, at every stage, whether or not parameters have values.
func TestImaginedPlansAreThoseOfAttach(t *testing.T) {
	for stage := range 4 {
		onRanks(t, 2, func(w *dist.World) error {
			cfg := ddp.Config{Stage: stage, BucketMB: 1.0 / 1024, WireDType: tensor.BF16, ErrorFeedback: true}
			m := wider.make(gtensor.Float32, 3, 1)
			want, err := ddp.Attach(w, m.cost, m.params, cfg)
			if err != nil {
				return err
			}
			m = wider.make(gtensor.Float32, 3, 1)
			got, err := ddp.Imagine(w, m.cost, m.params, cfg)
			if err != nil {
				return err
			}
			plan := got.Plan()
			if plan.Memory != "no memory" {
				return fmt.Errorf("the plan is in %q", plan.Memory)
			}
			if plan.Memory = want.Plan().Memory; !reflect.DeepEqual(plan, want.Plan()) || len(got.Grads()) != len(want.Grads()) {
				return fmt.Errorf("the plan is\n%v, want\n%v", plan, want.Plan())
			}
			a, b := got.Machine().Layout(), want.Machine().Layout()
			for i := range b.Buckets {
				if x, y := a.Buckets[i], b.Buckets[i]; x.Len() != y.Len() || x.DType() != y.DType() || x.IsZero() {
					return fmt.Errorf("bucket %d is %v, want %v", i, x, y)
				}
			}
			return errors.Join(got.Close(), got.Close(), want.Close())
		})
	}
}

// Parameters of more bytes than there is memory, and no values, are laid out in next to none.
func TestImaginedTrainingTakesNoMemory(t *testing.T) {
	const width = 1 << 17 // 64 GiB of float32
	for stage := range 4 {
		onRanks(t, 1, func(w *dist.World) error {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			cost, params := valueless(width)
			d, err := ddp.Imagine(w, cost, params, ddp.Config{Stage: stage})
			if err != nil {
				return err
			}
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > 8<<20 {
				t.Errorf("stage %d: %d B allocated", stage, got)
			}
			n := 0
			for _, b := range d.Plan().Buckets {
				n += b.Elements
			}
			if n < width*(width+1) {
				t.Errorf("stage %d: %d elements in buckets", stage, n)
			}
			return d.Close()
		})
	}
}

// Nothing that is imagined can train, and Attach still wants values.
func TestImaginedTrainingCannotRun(t *testing.T) {
	for stage := range 4 {
		onRanks(t, 1, func(w *dist.World) error {
			cfg := ddp.Config{Stage: stage}
			cost, params := valueless(8)
			if _, err := ddp.Attach(w, cost, params, cfg); !errors.Is(err, dist.ErrInvalid) {
				return fmt.Errorf("Attach without values: %w", err)
			}
			m := mlp.make(gtensor.Float32, 3, 1)
			d, err := ddp.Imagine(w, m.cost, m.params, cfg)
			if err != nil {
				return err
			}
			if err := m.let(mlp, indices(0, 3)); err != nil {
				return err
			}
			vm := G.NewTapeMachine(m.cost.Graph(), G.BindDualValues(m.params...))
			if err := vm.RunAll(); err == nil || stage < 3 && !errors.Is(ops.Cause(err), dist.ErrInvalid) { // Gorgonia misses the shards
				return fmt.Errorf("stage %d: the run is %w", stage, err)
			}
			if _, err := d.NewSolver(optim.Config{Name: optim.SGD}); !errors.Is(err, dist.ErrInvalid) {
				return fmt.Errorf("NewSolver is %w", err)
			}
			if _, err := d.Machine().Next(); !errors.Is(err, dist.ErrInvalid) {
				return fmt.Errorf("Next is %w", err)
			}
			return errors.Join(vm.Close(), d.Close())
		})
	}
}
