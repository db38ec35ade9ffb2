package lower

import (
	"fmt"
	"hash"
	"hash/fnv"
	"log/slog"
	"math"
	"testing"

	"github.com/chewxy/hm"
	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/compile/program"
	"github.com/symgrad/symgrad/internal/compile/values"
	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// widened converts a vector of float32 to float64, or the reverse, with a derivative that
// Gorgonia's own conversion lacks.
type widened struct{ from, to gtensor.Dtype }

func (o *widened) Arity() int { return 1 }
func (o *widened) Type() hm.Type {
	return hm.NewFnType(G.TensorType{Dims: 1, Of: o.from}, G.TensorType{Dims: 1, Of: o.to})
}

func (o *widened) InferShape(ds ...G.DimSizer) (gtensor.Shape, error) {
	return ds[0].(gtensor.Shape).Clone(), nil
}

func (o *widened) Do(...G.Value) (G.Value, error) { return nil, fmt.Errorf("%v is a step", o) }
func (o *widened) ReturnsPtr() bool               { return true }
func (o *widened) CallsExtern() bool              { return false }
func (o *widened) OverwritesInput() int           { return -1 }
func (o *widened) WriteHash(h hash.Hash)          { _, _ = fmt.Fprint(h, o) }
func (o *widened) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}
func (o *widened) String() string     { return fmt.Sprint("cast to ", o.to) }
func (o *widened) DiffWRT(int) []bool { return []bool{true} }
func (o *widened) SymDiff(_ G.Nodes, _, grad *G.Node) (G.Nodes, error) {
	n, err := G.ApplyOp(&widened{o.to, o.from}, grad)
	return G.Nodes{n}, err
}

// newMotley alternates parameters of both dtypes, with scalars among them, and one that does not
// affect the cost.
func newMotley(rows int) *rankGraph {
	buildingRanks.Lock()
	defer buildingRanks.Unlock()
	r := &rankGraph{g: G.NewGraph()}
	node := func(name string, dt gtensor.Dtype, shape ...int) *G.Node {
		n := gtensor.Shape(shape).TotalSize()
		wide, narrow := make([]float64, n), make([]float32, n)
		for i := range wide {
			wide[i] = math.Sin(float64(100*len(r.params) + i))
			narrow[i] = float32(wide[i])
		}
		var backing any = wide
		if dt == G.Float32 {
			backing = narrow
		}
		value := gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(backing))
		return G.NewTensor(r.g, dt, len(shape), G.WithName(name), G.WithShape(shape...), G.WithValue(value))
	}
	param := func(n *G.Node) *G.Node {
		r.params = append(r.params, n)
		return n
	}
	h := node("x", G.Float64, rows, 31)
	param(node("idle", G.Float64, 7))
	for i := range 3 {
		name := func(s string) string { return fmt.Sprint(s, i) }
		h = G.Must(G.Tanh(G.Must(G.Mul(h, param(node(name("w"), G.Float64, 31, 31))))))
		slope := param(G.NewScalar(r.g, G.Float32, G.WithName(name("slope")), G.WithValue(float32(i)+0.5)))
		s := G.Must(G.HadamardProd(param(node(name("u"), G.Float32, 700)), param(node(name("v"), G.Float32, 700))))
		s = G.Must(G.ApplyOp(&widened{G.Float32, G.Float64}, G.Must(G.HadamardProd(s, slope))))
		scale := param(G.NewScalar(r.g, G.Float64, G.WithName(name("scale")), G.WithValue(float64(i)+0.5)))
		h = G.Must(G.Add(h, G.Must(G.HadamardProd(G.Must(G.Mean(G.Must(G.Square(s)))), scale))))
	}
	r.cost = G.Must(G.Mean(G.Must(G.Square(h))))
	return r
}

// wide returns the elements of all parameters.
func (r *rankGraph) wide(t *testing.T) (all []float64) {
	t.Helper()
	for _, p := range r.params {
		dt, err := tensor.FromGorgonia(p.Dtype())
		if err != nil {
			t.Fatal(err)
		}
		b, err := values.Memory(p.Value(), dt)
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Len() {
			all = append(all, program.Element(dt, b.Raw(), i))
		}
	}
	return all
}

// motleyRun makes runs inside NoSync, and the one after them, on two ranks. One has no samples in
// the first two.
func motleyRun(t *testing.T, lanes []*lane, step, part int) {
	t.Helper()
	for rank, n := range lanes {
		weight := float64(1 + rank)
		if part == rank && n.d.Machine().Layout().Idle {
			weight = 0
		}
		if err := n.d.SetWeight(weight); err != nil {
			t.Fatal(err)
		}
		x := n.rankGraph.g.ByName("x")[0].Value().Data().([]float64)
		for i := range x {
			if x[i] = math.Sin(float64(i*(1+step) + rank + 10*part)); weight == 0 {
				x[i] = math.NaN()
			}
		}
		l := n.d.Machine().Layout()
		for _, b := range l.Buckets {
			for i := 0; i < b.Len() && len(l.Shards) > 0; i++ { // what lay there is nothing to add to
				program.SetElement(b.DType(), b.Raw(), i, math.NaN())
			}
		}
	}
	if err := together(lanes); err != nil {
		t.Fatal(err)
	}
}

// TestBothDTypesInEveryStageBySteps trains a model of float32 and float64 with the device programs,
// whose buckets fill alternately. With Stages 2 and 3 each dtype has its own memory, and weights
// must not depend on the stage.
func TestBothDTypesInEveryStageBySteps(t *testing.T) {
	conversions = append(conversions, "*lower.widened")
	defer func() { conversions = conversions[:1] }()
	for _, c := range []struct {
		parts int
		wire  tensor.DType
		rule  optim.Config
		near  float64
	}{
		{1, tensor.F32, optim.Config{Name: optim.Adam, LearningRate: 0.01}, 1e-6},
		{3, tensor.F32, optim.Config{Name: optim.LAMB, LearningRate: 0.01, ClipNorm: 0.1}, 1e-6},
		{3, tensor.BF16, optim.Config{Name: optim.SGD, LearningRate: 0.1}, 1e-3}, // each part is rounded
	} {
		if invariants.Enabled && c.wire == tensor.F32 {
			continue // the race detector needs one
		}
		var want []float64
		for stage := range 4 {
			cfg := ddp.Config{
				Stage: stage, BucketMB: 2.0 / 1024, FirstBucketMB: 1.0 / 1024, WireDType: c.wire, Idle: c.parts > 1, Log: slog.New(slog.DiscardHandler),
			}
			for rank, n := range motleyLanes(t, cfg, c.rule, c.parts) {
				got := n.wide(t)
				if want == nil {
					want = got
				}
				off := 0.0
				for i := range want {
					off = math.Max(off, math.Abs(got[i]-want[i])) // NaN stays
				}
				if !(off <= c.near) || len(got) != len(want) {
					t.Errorf("%s, %v, stage %d, rank %d: %d weights are off by %g", c.rule.Name, c.wire, stage, rank, len(got), off)
				}
			}
		}
	}
}

// motleyLanes returns two ranks after three steps of so many runs each.
func motleyLanes(t *testing.T, cfg ddp.Config, rule optim.Config, parts int) []*lane {
	t.Helper()
	lanes := make([]*lane, 2)
	inWorld(t, len(lanes), func(w *dist.World) (err error) {
		r := newMotley(2 + w.Rank())
		if r.d, err = ddp.Attach(w, r.cost, r.params, cfg); err == nil {
			lanes[w.Rank()], err = newLane(r, Options{}, &rule)
		}
		return err
	})
	for step := range 3 {
		if parts > 1 {
			err := inNoSync(lanes, func() error {
				for part := range parts - 1 {
					motleyRun(t, lanes, step, part)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		motleyRun(t, lanes, step, parts-1)
	}
	if cfg.Stage == 3 {
		consolidate(t, lanes)
	}
	return lanes
}
