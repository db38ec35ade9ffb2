package machine_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/ops"
)

// onRanks runs body on every rank of a world of n, each on a goroutine of its own.
func onRanks(t *testing.T, n int, body func(w *dist.World) error) {
	t.Helper()
	worlds, err := sim.New(n, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, n)
	var ranks sync.WaitGroup
	for r, w := range worlds {
		ranks.Go(func() {
			if errs[r] = body(w); errs[r] != nil {
				_ = w.Abort(fmt.Errorf("rank %d: %w", r, errs[r]))
			}
			errs[r] = errors.Join(errs[r], w.Close())
		})
	}
	ranks.Wait()
	for r, err := range errs {
		if err != nil {
			t.Errorf("rank %d/%d: %v", r, n, err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// building is held while a graph is built: Gorgonia counts some ops in a variable without a lock.
var building sync.Mutex

// share is a network for the samples of one rank, which start at a number of the whole batch. build
// makes it without a gradient.
func share(build func(rows int) *net, whole, rank, ranks int) (n *net, from, to int) {
	building.Lock()
	defer building.Unlock()
	from, to = whole*rank/ranks, whole*(rank+1)/ranks
	return build(to - from), from, to
}

// bare is small without its gradient.
func bare(rows int) *net {
	n := newNet()
	n.x = n.input("x", rows, 5)
	h := G.Must(G.Tanh(n.affine("0", n.x, 5, 7)))
	n.out = n.affine("1", h, 7, 3)
	n.y = n.input("y", rows, 3)
	n.cost = G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(n.out, n.y))))))
	return n
}

// feed sets the inputs to samples from..to of a step.
func (n *net) feed(step, from, to int) error {
	for _, in := range []*G.Node{n.x, n.y} {
		width := in.Shape()[1]
		v := make([]float32, 0, (to-from)*width)
		for i := from; i < to; i++ {
			for j := range width {
				v = append(v, float32((i*7+j*3+step*5)%11)/5-1)
			}
		}
		if err := G.Let(in, gtensor.New(gtensor.WithShape(to-from, width), gtensor.WithBacking(v))); err != nil {
			return err
		}
	}
	return nil
}

// weights returns a copy of the parameters.
func (n *net) weights() []float32 {
	var all []float32
	for _, p := range n.params {
		all = append(all, p.Value().Data().([]float32)...)
	}
	return all
}

// newVM makes a machine.
type newVM func(n *net) (G.VM, error)

func tape(n *net) (G.VM, error)     { return G.NewTapeMachine(n.g), nil }
func machined(n *net) (G.VM, error) { return machine.New(n.g, plain) }

// train returns the weights after some steps of data-parallel training on 12 samples, in unequal
// parts, with two micro-batches in every second step.
func train(w *dist.World, make newVM, cfg ddp.Config) ([]float32, error) {
	n, from, to := share(bare, 12, w.Rank(), w.Size())
	d, err := ddp.Attach(w, n.cost, n.params, cfg)
	if err != nil {
		return nil, err
	}
	vm, err := make(n)
	if err != nil {
		return nil, err
	}
	defer vm.Close()
	solver := G.NewMomentum(G.WithLearnRate(0.1))
	if err := d.SetWeight(float64(to - from)); err != nil {
		return nil, err
	}
	once := func(step int) error {
		if err := n.feed(step, from, to); err != nil {
			return err
		}
		defer vm.Reset()
		return vm.RunAll()
	}
	for step := range 6 {
		if step%2 == 1 {
			if err := d.NoSync(func() error { return once(10 + step) }); err != nil {
				return nil, err
			}
		}
		if err := once(step); err != nil {
			return nil, err
		}
		if err := solver.Step(d.Model()); err != nil {
			return nil, err
		}
	}
	return n.weights(), d.Close()
}

// TestRanksTrainAsUnderTheTapeMachine trains on 1, 2 and 3 ranks, with one bucket and with one for
// each parameter.
func TestRanksTrainAsUnderTheTapeMachine(t *testing.T) {
	for _, ranks := range []int{1, 2, 3} {
		for name, cfg := range map[string]ddp.Config{
			"one bucket": {}, "small buckets": {BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024}, "no overlap": {NoOverlap: true},
		} {
			var got [2][][]float32
			for i, make := range []newVM{tape, machined} {
				got[i] = byRank(ranks)
				onRanks(t, ranks, func(w *dist.World) (err error) {
					got[i][w.Rank()], err = train(w, make, cfg)
					return err
				})
			}
			for r := range ranks {
				if off := largestDifference(got[0][r], got[1][r]); !(off <= 1e-6) {
					t.Errorf("%d ranks, %s: the weights of rank %d are off by %g", ranks, name, r, off)
				}
				if !slices.Equal(got[1][r], got[1][0]) {
					t.Errorf("%d ranks, %s: ranks 0 and %d have other weights", ranks, name, r)
				}
			}
		}
	}
}

// byRank has a result for each rank.
func byRank(n int) [][]float32 { return make([][]float32, n) }

func largestDifference(a, b []float32) float64 {
	if len(a) != len(b) {
		return 1
	}
	most := 0.0
	for i := range a {
		most = max(most, float64(a[i]-b[i]), float64(b[i]-a[i]))
	}
	return most
}

// TestGradientsAreBornInTheirBuckets checks that gradients, and those that the solver reads, are in
// the bucket without a copy.
func TestGradientsAreBornInTheirBuckets(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		n, from, to := share(bare, 8, w.Rank(), 2)
		d, err := ddp.Attach(w, n.cost, n.params, ddp.Config{})
		if err != nil {
			return err
		}
		m, err := machine.New(n.g, plain)
		if err != nil {
			return err
		}
		defer m.Close()
		for step := range 2 {
			if err := errors.Join(n.feed(step, from, to), m.RunAll()); err != nil {
				return err
			}
		}
		if n.cost.Value() == nil {
			return errors.New("the cost has no value")
		}
		for _, p := range n.params {
			placed, ok := ops.HookOf(p).Reducer().(ops.Placed)
			if !ok {
				return fmt.Errorf("the reducer of %s has no place", p.Name())
			}
			gradient, reduced := placed.Place()
			v, err := p.Grad()
			if err != nil {
				return err
			}
			if gradient.Pointer() != reduced.Pointer() || v.Uintptr() != uintptr(reduced.Pointer()) {
				return fmt.Errorf("the gradient of %s is not in its bucket", p.Name())
			}
		}
		return d.Close()
	})
}

// TestARunOnRanksAllocatesNothing counts allocations of one rank's step, with its buckets, beyond
// those of the group.
func TestARunOnRanksAllocatesNothing(t *testing.T) {
	allocs := map[string]float64{}
	for name, make := range map[string]newVM{"tape": tape, "machine": machined} {
		onRanks(t, 1, func(w *dist.World) error {
			n, from, to := share(bare, 8, 0, 1)
			d, err := ddp.Attach(w, n.cost, n.params, ddp.Config{})
			if err != nil {
				return err
			}
			vm, err := make(n)
			if err != nil {
				return err
			}
			defer vm.Close()
			err = n.feed(0, from, to)
			allocs[name] = testing.AllocsPerRun(20, func() { err = errors.Join(err, vm.RunAll()); vm.Reset() })
			return errors.Join(err, d.Close())
		})
	}
	if allocs["machine"] > 4 {
		t.Errorf("a step allocates %v times; the tape machine %v", allocs["machine"], allocs["tape"])
	}
}

// TestDropoutIsTheSameForAnyNumberOfRanks compares the elements of a batch that one rank drops with
// those of three ranks.
func TestDropoutIsTheSameForAnyNumberOfRanks(t *testing.T) {
	const samples = 12
	dropped := func(ranks int) []float64 {
		parts := make([][]float64, ranks)
		onRanks(t, ranks, func(w *dist.World) error {
			n, from, to := share(func(rows int) *net {
				n := bare(rows)
				n.out = G.Must(G.Dropout(n.out, 0.5))
				n.cost = G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(n.out, n.y))))))
				return n
			}, samples, w.Rank(), ranks)
			d, err := ddp.Attach(w, n.cost, n.params, ddp.Config{})
			if err != nil {
				return err
			}
			m, err := machine.New(n.g, plain, append(d.Grads(), n.out, n.cost)...)
			if err != nil {
				return err
			}
			defer m.Close()
			if err := errors.Join(n.feed(0, from, to), m.RunAll()); err != nil {
				return err
			}
			for _, v := range n.out.Value().Data().([]float32) {
				parts[w.Rank()] = append(parts[w.Rank()], float64(v))
			}
			return d.Close()
		})
		return slices.Concat(parts...)
	}
	one, three := dropped(1), dropped(3)
	zeros := 0
	for i := range one {
		if one[i] == 0 {
			zeros++
		}
		if (one[i] == 0) != (three[i] == 0) {
			t.Fatalf("element %d of the batch is %v on one rank and %v on three", i, one[i], three[i])
		}
	}
	if zeros < 8 || zeros > 28 {
		t.Errorf("%d of 36 elements are dropped, want about 18", zeros)
	}
}

// cutLayer is a layer divided among the ranks; its outputs are the gradient of its weights and the
// cost.
func cutLayer(w *dist.World) (*net, G.Nodes, error) {
	building.Lock()
	defer building.Unlock()
	n := newNet()
	n.x = n.input("x", 4, 3)
	weight := n.param("w", 0.5, 3, 3)
	part, err := ops.ReduceScatter(w.Group, G.Must(G.Tanh(G.Must(G.Mul(n.x, weight)))), dist.Avg)
	if err != nil {
		return nil, nil, err
	}
	all, err := ops.AllGather(w.Group, G.Must(G.Square(part)))
	if err != nil {
		return nil, nil, err
	}
	total, err := ops.AllReduce(w.Group, all, dist.PreMulSum(float32(0.5+float64(w.Rank()))))
	if err != nil {
		return nil, nil, err
	}
	if total, err = ops.Barrier(w.Group, total); err != nil {
		return nil, nil, err
	}
	n.cost = G.Must(G.Mean(total))
	grads, err := G.Grad(n.cost, weight)
	return n, append(grads, n.cost), err
}

// runCutLayer returns the outputs of a run of cutLayer.
func runCutLayer(w *dist.World, make newVM) ([]float32, error) {
	n, outputs, err := cutLayer(w)
	if err != nil {
		return nil, err
	}
	vm, err := make(n)
	if err != nil {
		return nil, err
	}
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		return nil, err
	}
	var all []float32
	for _, o := range outputs {
		switch d := o.Value().Data().(type) {
		case []float32:
			all = append(all, d...)
		case float32:
			all = append(all, d)
		}
	}
	return all, nil
}

// TestCollectivesOfGraphsRun compares a layer divided among the ranks, and its gradient, with the
// tape machine's.
func TestCollectivesOfGraphsRun(t *testing.T) {
	for _, ranks := range []int{1, 2} {
		var got [2][][]float32
		for i, make := range []newVM{tape, machined} {
			got[i] = byRank(ranks)
			onRanks(t, ranks, func(w *dist.World) (err error) {
				got[i][w.Rank()], err = runCutLayer(w, make)
				return err
			})
		}
		for r := range ranks {
			if off := largestDifference(got[0][r], got[1][r]); len(got[0][r]) != 10 || !(off <= 1e-6) {
				t.Errorf("%d ranks: gradient and cost of rank %d are off by %g: %v, want %v", ranks, r, off, got[1][r], got[0][r])
			}
		}
	}
}
