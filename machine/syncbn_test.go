package machine_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/ops"
)

// block is a residual network with batch normalization over the ranks: two convolutions, an
// addition, a mean over each image, and another normalized layer.
type block struct {
	g             *G.ExprGraph
	dt            gtensor.Dtype
	x, y, rows    *G.Node
	cost          *G.Node
	params        G.Nodes
	norms         []*ops.BatchNorm
	rng           *rand.Rand
	group         *dist.Group
	weights, bare bool // rows have weights; layers have no scale and bias
}

const (
	blockImage  = 5
	blockLength = 2 * blockImage * blockImage
)

func (b *block) tensor(v []float64, shape ...int) *gtensor.Dense {
	if b.dt == gtensor.Float64 {
		return gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(v))
	}
	single := make([]float32, len(v))
	for i := range v {
		single[i] = float32(v[i])
	}
	return gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(single))
}

func (b *block) param(name string, scale, center float64, shape ...int) *G.Node {
	v := make([]float64, gtensor.Shape(shape).TotalSize())
	for i := range v {
		v[i] = center + scale*b.rng.NormFloat64()
	}
	p := G.NewTensor(b.g, b.dt, len(shape), G.WithName(name), G.WithShape(shape...), G.WithValue(b.tensor(v, shape...)))
	b.params = append(b.params, p)
	return p
}

func (b *block) norm(name string, h *G.Node, shape ...int) (*G.Node, error) {
	cfg := ops.BatchNormConfig{Name: name}
	if b.weights {
		cfg.Rows = b.rows
	}
	var scale, bias *G.Node
	if !b.bare {
		scale, bias = b.param("scale "+name, 0.3, 1, shape...), b.param("bias "+name, 0.3, 0, shape...)
	}
	y, n, err := ops.SyncBatchNorm(b.group, h, scale, bias, cfg)
	b.norms = append(b.norms, n)
	return y, err
}

// newBlock is the network for a rank's rows. The cost is the weighted mean over the rows.
func newBlock(group *dist.Group, dt gtensor.Dtype, rows int, weights, bare bool) (*block, error) {
	building.Lock()
	defer building.Unlock()
	b := &block{g: G.NewGraph(), dt: dt, rng: rand.New(rand.NewPCG(7, 8)), group: group, weights: weights, bare: bare}
	b.x = G.NewTensor(b.g, dt, 4, G.WithName("x"), G.WithShape(rows, 2, blockImage, blockImage))
	b.y = G.NewMatrix(b.g, dt, G.WithName("y"), G.WithShape(rows, 3))
	b.rows = G.NewVector(b.g, dt, G.WithName("rows"), G.WithShape(rows))
	conv := func(h, filter *G.Node) *G.Node {
		return G.Must(G.Conv2d(h, filter, gtensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1}))
	}
	h, err := b.norm("norm0", conv(b.x, b.param("filter0", 0.3, 0, 2, 2, 3, 3)), 2)
	if err != nil {
		return nil, err
	}
	h, err = b.norm("norm1", conv(G.Must(G.Rectify(h)), b.param("filter1", 0.3, 0, 2, 2, 3, 3)), 1, 2, 1, 1)
	if err != nil {
		return nil, err
	}
	h = G.Must(G.Tanh(G.Must(G.Add(h, b.x))))
	h = G.Must(G.Mul(G.Must(G.Reshape(h, gtensor.Shape{rows, blockLength})), b.param("w", 0.2, 0, blockLength, 3)))
	if h, err = b.norm("norm2", h, 3); err != nil {
		return nil, err
	}
	miss := G.Must(G.Sum(G.Must(G.Square(G.Must(G.Sub(h, b.y)))), 1))
	b.cost = G.Must(G.Div(G.Must(G.Sum(G.Must(G.HadamardProd(miss, b.rows)))), G.Must(G.Sum(b.rows))))
	return b, nil
}

// feed sets rows from..to of a step or, if there are none, a row of NaN that does not count. It
// returns the weight of the rows.
func (b *block) feed(step, from, to int) (float64, error) {
	if from == to {
		return 0, b.fill(step, from, from+1, true, func(int) float64 { return 0 })
	}
	weight := func(i int) float64 {
		if b.weights {
			return float64((i + step) % 3)
		}
		return 1
	}
	total := 0.0
	for i := from; i < to; i++ {
		total += weight(i)
	}
	return total, b.fill(step, from, to, false, weight)
}

// fill sets the rows of the network; void rows have NaN.
func (b *block) fill(step, from, to int, void bool, weight func(i int) float64) error {
	var x, y, rows []float64
	for i := from; i < to; i++ {
		rng := rand.New(rand.NewPCG(uint64(i), uint64(step)))
		for range blockLength {
			x = append(x, rng.NormFloat64()+0.5)
		}
		for range 3 {
			y = append(y, rng.NormFloat64())
		}
		rows = append(rows, weight(i))
	}
	if void {
		for i := range x {
			x[i] = math.NaN()
		}
		y[1] = math.Inf(1)
	}
	n := len(rows)
	return errors.Join(
		G.Let(b.x, b.tensor(x, n, 2, blockImage, blockImage)),
		G.Let(b.y, b.tensor(y, n, 3)),
		G.Let(b.rows, b.tensor(rows, n)))
}

// learned returns the parameters and the running statistics.
func (b *block) learned() (params, stats []float64) {
	add := func(to []float64, d *gtensor.Dense) []float64 {
		if v, ok := d.Data().([]float64); ok {
			return append(to, v...)
		}
		for _, v := range d.Data().([]float32) {
			to = append(to, float64(v))
		}
		return to
	}
	for _, p := range b.params {
		params = add(params, p.Value().(*gtensor.Dense))
	}
	for _, n := range b.norms {
		mean, variance := n.Stats()
		stats = add(add(stats, mean), variance)
	}
	return params, stats
}

// blockRun is a training of a block.
type blockRun struct {
	dt            gtensor.Dtype
	parts         []int // rows of each rank
	weights, bare bool
	cfg           ddp.Config
	vm            func(b *block) (G.VM, error)
}

func blockTape(b *block) (G.VM, error) { return G.NewTapeMachine(b.g), nil }

func blockMachine(cfg machine.Config) func(b *block) (G.VM, error) {
	return func(b *block) (G.VM, error) { return machine.New(b.g, cfg) }
}

// train returns parameters and running statistics of each rank after some steps, every second with
// two micro-batches.
func (r *blockRun) train(t *testing.T, steps int) (params, stats [][]float64) {
	t.Helper()
	params, stats = make([][]float64, len(r.parts)), make([][]float64, len(r.parts))
	onRanks(t, len(r.parts), func(w *dist.World) error {
		from := 0
		for _, p := range r.parts[:w.Rank()] {
			from += p
		}
		b, err := r.attached(w, from, steps)
		if err != nil {
			return err
		}
		params[w.Rank()], stats[w.Rank()] = b.learned()
		return nil
	})
	return params, stats
}

func (r *blockRun) attached(w *dist.World, from, steps int) (*block, error) {
	mine := r.parts[w.Rank()]
	b, err := newBlock(w.Group, r.dt, max(mine, 1), r.weights || slices.Contains(r.parts, 0), r.bare)
	if err != nil {
		return nil, err
	}
	b.weights = r.weights
	d, err := ddp.Attach(w, b.cost, b.params, r.cfg)
	if err != nil {
		return nil, err
	}
	vm, err := r.vm(b)
	if err != nil {
		return nil, err
	}
	defer vm.Close()
	once := func(step int) error {
		weight, err := b.feed(step, from, from+mine)
		if err == nil {
			err = d.SetWeight(weight)
		}
		if err != nil {
			return err
		}
		defer vm.Reset()
		return vm.RunAll()
	}
	solver := G.NewMomentum(G.WithLearnRate(0.05))
	for step := range steps {
		if step%2 == 1 {
			if err := d.NoSync(func() error { return once(100 + step) }); err != nil {
				return nil, err
			}
		}
		if err := errors.Join(once(step), solver.Step(d.Model())); err != nil {
			return nil, err
		}
	}
	return b, d.Close()
}

// TestSyncBatchNormTrainsAsOnOneRank trains on 1 to 4 ranks, with unequal parts, ranks without
// rows, and weights, under both machines, and compares with one rank under the tape machine.
func TestSyncBatchNormTrainsAsOnOneRank(t *testing.T) {
	vms := map[string]func(b *block) (G.VM, error){
		"tape": blockTape, "optimized": blockMachine(optimized), "unoptimized": blockMachine(unoptimized),
	}
	for name, c := range map[string]struct {
		run blockRun
		rel float64
	}{
		"double":         {blockRun{dt: gtensor.Float64}, 1e-9},
		"single":         {blockRun{dt: gtensor.Float32}, 2e-5},
		"weights":        {blockRun{dt: gtensor.Float64, weights: true}, 1e-9},
		"without affine": {blockRun{dt: gtensor.Float64, bare: true}, 1e-9},
		"small buckets":  {blockRun{dt: gtensor.Float64, cfg: ddp.Config{BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024}}, 1e-9},
	} {
		one := c.run
		one.parts, one.vm = []int{9}, blockTape
		wantParams, wantStats := one.train(t, 4)
		for kind, vm := range vms {
			for _, parts := range [][]int{{9}, {2, 7}, {4, 0, 5}, {3, 1, 4, 1}} {
				if len(parts) > 2 && (kind == "unoptimized" || name != "double") && name != "single" {
					continue
				}
				t.Run(fmt.Sprintf("%s %s %v", name, kind, parts), func(t *testing.T) {
					run := c.run
					run.parts, run.vm = parts, vm
					params, stats := run.train(t, 4)
					for r := range parts {
						if off := farthest(params[r], wantParams[0]); !(off <= c.rel) {
							t.Errorf("parameters of rank %d are off by %g", r, off)
						}
						if off := farthest(stats[r], wantStats[0]); !(off <= c.rel) {
							t.Errorf("running statistics of rank %d are off by %g", r, off)
						}
						if !slices.Equal(params[r], params[0]) || !slices.Equal(stats[r], stats[0]) {
							t.Errorf("ranks 0 and %d have other bits", r)
						}
					}
				})
			}
		}
	}
}

// farthest returns the largest difference of elements.
func farthest(a, b []float64) float64 {
	if len(a) != len(b) || len(a) == 0 {
		return math.Inf(1)
	}
	most := 0.0
	for i := range a { // max keeps a NaN
		most = max(most, math.Abs(a[i]-b[i]))
	}
	return most
}
