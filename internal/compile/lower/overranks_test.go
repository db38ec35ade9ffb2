package lower

import (
	"fmt"
	"math"
	"slices"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/program/oracle"
	"github.com/symgrad/symgrad/ops"
)

// normGraph is a graph of one rank with two normalizations over the ranks.
type normGraph struct {
	rankGraph
	norms []*ops.BatchNorm
	stats [][]float32 // running, after the tape machine's run
}

// newNormGraph has rows of samples from number first on; without any, a row of NaN that does not
// count.
func newNormGraph(w *dist.World, rows, first int, sumOfCosts bool) (*normGraph, error) {
	buildingRanks.Lock()
	defer buildingRanks.Unlock()
	r := &normGraph{rankGraph: rankGraph{g: G.NewGraph()}}
	next := 0.0
	node := func(name string, value func(i int) float64, shape ...int) *G.Node {
		v := make([]float32, gtensor.Shape(shape).TotalSize())
		for i := range v {
			v[i] = float32(value(i))
		}
		return G.NewTensor(r.g, gtensor.Float32, len(shape), G.WithName(name), G.WithShape(shape...),
			G.WithValue(gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(v))))
	}
	param := func(name string, center float64, shape ...int) *G.Node {
		next += 100
		from := next
		n := node(name, func(i int) float64 { return center + 0.5*math.Sin(from+float64(i)) }, shape...)
		r.params = append(r.params, n)
		return n
	}
	weight, sample := 1.0, func(i int) float64 { return math.Sin(float64(50*first) + float64(i)*1.3) }
	if rows == 0 {
		rows, weight, sample = 1, 0, func(int) float64 { return math.NaN() }
	}
	x := node("x", sample, rows, 2, 5, 5)
	y := node("y", func(i int) float64 { return math.Sin(float64(1000+3*first) + float64(i)) }, rows, 4)
	counts := node("rows", func(int) float64 { return weight }, rows)
	norm := func(h *G.Node, name string, c int) (*G.Node, error) {
		z, n, err := ops.SyncBatchNorm(w.Group, h, param("scale "+name, 1, c), param("bias "+name, 0, c),
			ops.BatchNormConfig{Name: name, Rows: counts, SumOfCosts: sumOfCosts})
		r.norms = append(r.norms, n)
		return z, err
	}
	h := G.Must(G.Conv2d(x, param("filter", 0, 3, 2, 3, 3), gtensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1}))
	h, err := norm(h, "images", 3)
	if err != nil {
		return nil, err
	}
	h = G.Must(G.Reshape(G.Must(G.Tanh(h)), gtensor.Shape{rows, 75}))
	if h, err = norm(G.Must(G.Mul(h, param("w", 0, 75, 4))), "rows", 4); err != nil {
		return nil, err
	}
	r.cost = G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(h, y))))))
	return r, nil
}

// attach is rankGraph's. It also records the running statistics, and resets them.
func (r *normGraph) attach(w *dist.World, weight float64) error {
	if err := r.rankGraph.attach(w, weight, ddp.Config{Idle: true}); err != nil {
		return err
	}
	for _, n := range r.norms {
		mean, variance := n.Stats()
		for i, d := range []*gtensor.Dense{mean, variance} {
			v := d.Data().([]float32)
			r.stats = append(r.stats, append([]float32(nil), v...))
			for k := range v {
				v[k] = float32(i)
			}
		}
	}
	return nil
}

// lower also binds the running statistics.
func (r *normGraph) lower(cfg Options) (*Lowered, oracle.Rank, error) {
	l, rank, err := r.rankGraph.lower(cfg)
	if err == nil {
		for _, s := range l.States {
			rank.Memory[s.ID] = s.At.Raw()
		}
	}
	return l, rank, err
}

// TestSyncBatchNormBySteps runs the device programs on all ranks, one of them without data, and
// compares gradients and running statistics with the tape machine's.
func TestSyncBatchNormBySteps(t *testing.T) {
	parts := []int{3, 0, 2}
	for name, c := range map[string]struct {
		cfg        Options
		sumOfCosts bool
	}{"optimized": {}, "plain": {cfg: Options{NoOptimize: true}}, "sum of costs": {sumOfCosts: true}} {
		t.Run(name, func(t *testing.T) {
			graphs := make([]*normGraph, len(parts))
			inWorld(t, len(parts), func(w *dist.World) error {
				rows := parts[w.Rank()]
				r, err := newNormGraph(w, rows, 10*w.Rank(), c.sumOfCosts)
				if err != nil {
					return err
				}
				graphs[w.Rank()] = r
				return r.attach(w, float64(rows))
			})
			all, ranks := make([]*Lowered, len(parts)), make([]oracle.Rank, len(parts))
			for i, r := range graphs {
				var err error
				if all[i], ranks[i], err = r.lower(c.cfg); err != nil {
					t.Fatal(err)
				}
			}
			if err := oracle.RunRanks(ranks); err != nil {
				t.Fatal(err)
			}
			for i, r := range graphs {
				r.compare(t, i, all[i], ranks[i])
				r.compareStats(t, i)
			}
		})
	}
}

func (r *normGraph) compareStats(t *testing.T, rank int) {
	t.Helper()
	for k, n := range r.norms {
		mean, variance := n.Stats()
		for i, d := range []*gtensor.Dense{mean, variance} {
			for c, got := range d.Data().([]float32) {
				if want := r.stats[2*k+i][c]; !(math.Abs(float64(got-want)) <= 1e-6) {
					t.Errorf("rank %d: statistics %d of %q, channel %d: %v, want %v", rank, i, n.Name(), c, got, want)
				}
			}
		}
	}
}

// TestGradientsWithoutWeightAreNotLookedAt gives a rank with weight 0 samples of NaN: all ranks
// must have the gradients of the others.
func TestGradientsWithoutWeightAreNotLookedAt(t *testing.T) {
	for _, cfg := range []Options{{}, {NoOptimize: true}} {
		const n = 3
		graphs := make([]*rankGraph, n)
		inWorld(t, n, func(w *dist.World) error {
			r, err := newRankGraph(2+w.Rank(), 10*w.Rank())
			if err != nil {
				return err
			}
			weight := float64(w.Rank())
			if weight == 0 {
				for _, in := range r.g.Inputs() {
					if in.Name() == "x" {
						in.Value().Data().([]float32)[0] = float32(math.NaN())
					}
				}
			}
			graphs[w.Rank()] = r
			return r.attach(w, weight, ddp.Config{BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024, Idle: true})
		})
		all, ranks := make([]*Lowered, n), make([]oracle.Rank, n)
		for i, r := range graphs {
			var err error
			if all[i], ranks[i], err = r.lower(cfg); err != nil {
				t.Fatal(err)
			}
		}
		if err := oracle.RunRanks(ranks); err != nil {
			t.Fatal(err)
		}
		for i, r := range graphs {
			for _, g := range r.grads {
				if slices.ContainsFunc(g, func(v float32) bool { return v != v }) {
					t.Fatalf("rank %d: the tape machine's gradient is no number", i)
				}
			}
			r.compare(t, i, all[i], ranks[i])
		}
	}
}

// TestSyncBatchNormOutsideTrainingDoesNotCommunicate lowers a graph for its results and for
// training, in which all layers share a group.
func TestSyncBatchNormOutsideTrainingDoesNotCommunicate(t *testing.T) {
	inWorld(t, 1, func(w *dist.World) error {
		r, err := newNormGraph(w, 4, 0, false)
		if err != nil {
			return err
		}
		for training, want := range map[bool]int{false: 0, true: 1} {
			for _, n := range r.norms {
				n.SetTraining(training)
			}
			g := Collect(r.g, G.Nodes{r.cost})
			l, err := Graph(g, forDevice(Options{}, g, nil))
			if err == nil {
				err = program.Validate(l.Program)
			}
			if err != nil {
				return err
			}
			if len(l.Groups) != want {
				return fmt.Errorf("training %v: it has %d groups, want %d:\n%v", training, len(l.Groups), want, l.Program)
			}
		}
		return nil
	})
}
