package ddp_test

import (
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"log/slog"
	"slices"
	"testing"

	"github.com/chewxy/hm"
	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/optim"
)

// cast is a vector of float32 as float64, or the reverse, which Gorgonia has no op for.
type cast struct{ to gtensor.Dtype }

func (o cast) Arity() int { return 1 }
func (o cast) Type() hm.Type {
	from := gtensor.Float32
	if o.to == gtensor.Float32 {
		from = gtensor.Float64
	}
	return hm.NewFnType(G.TensorType{Dims: 1, Of: from}, G.TensorType{Dims: 1, Of: o.to})
}

func (o cast) InferShape(ds ...G.DimSizer) (gtensor.Shape, error) {
	return ds[0].(gtensor.Shape).Clone(), nil
}

func (o cast) Do(in ...G.Value) (G.Value, error) {
	wide, err := elements(in[0])
	if err != nil {
		return nil, err
	}
	return tensorOf(o.to, wide, len(wide)), nil
}
func (o cast) ReturnsPtr() bool     { return true }
func (o cast) CallsExtern() bool    { return false }
func (o cast) OverwritesInput() int { return -1 }
func (o cast) WriteHash(h hash.Hash) {
	fmt.Fprint(h, o)
}

func (o cast) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}
func (o cast) String() string       { return fmt.Sprint("cast to ", o.to) }
func (o cast) DiffWRT(n int) []bool { return []bool{true} }
func (o cast) SymDiff(_ G.Nodes, _, grad *G.Node) (G.Nodes, error) {
	back := cast{gtensor.Float32}
	if o.to == gtensor.Float32 {
		back.to = gtensor.Float64
	}
	n, err := G.ApplyOp(back, grad)
	return G.Nodes{n}, err
}

// motley is a regression with parameters of both dtypes, numbers among them, and one that the cost
// does not depend on.
func motley(rows int, seed uint64) *model {
	building.Lock()
	defer building.Unlock()
	b := &build{g: G.NewGraph(), dt: gtensor.Float64, rng: newRand(seed)}
	x := G.NewMatrix(b.g, b.dt, G.WithName("x"), G.WithShape(rows, 31))
	y := G.NewMatrix(b.g, b.dt, G.WithName("y"), G.WithShape(rows, 5))
	b.param("idle", 7)
	h := G.Must(G.Tanh(affine(b, x, "0", 31, 37)))
	scale := G.NewScalar(b.g, b.dt, G.WithName("scale"), G.WithValue(b.rng.NormFloat64()))
	h = G.Must(G.HadamardProd(affine(b, h, "1", 37, 5), scale))
	cost := G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(h, y))))))
	b.dt = gtensor.Float32
	slope := G.NewScalar(b.g, b.dt, G.WithName("slope"), G.WithValue(float32(b.rng.NormFloat64())))
	u, v := b.param("u", 700), b.param("v", 700)
	s := G.Must(G.HadamardProd(G.Must(G.HadamardProd(u, v)), slope)) // no constants: Gorgonia takes 1 of both dtypes for one node
	cost = G.Must(G.Add(cost, G.Must(G.Mean(G.Must(G.Square(G.Must(G.ApplyOp(cast{gtensor.Float64}, s))))))))
	return &model{x: x, y: y, cost: cost, params: append(b.params, scale, slope)}
}

// quiet is cfg without a report of unused learnables.
func quiet(cfg ddp.Config) ddp.Config {
	cfg.Log = slog.New(slog.DiscardHandler)
	return cfg
}

func TestShardedTrainingHasBothDTypesAndNumbers(t *testing.T) {
	for machine := range machines {
		for _, n := range someRanks() {
			regime{
				family: odd, model: motley, dt: gtensor.Float64, cfg: quiet(small), machine: machine,
				optimizer: optimizers[3].Config, steps: 20, parts: evenly,
			}.compare(t, n)
		}
	}
}

// TestUnusedLearnablesStayAlike has a learnable that is not trained: all ranks keep rank 0's.
func TestUnusedLearnablesStayAlike(t *testing.T) {
	var idle [2][]float64
	onRanks(t, 2, func(w *dist.World) error {
		m := motley(3, uint64(1+w.Rank()))
		d, err := ddp.Attach(w, m.cost, m.params, quiet(ddp.Config{Stage: 1}))
		if err != nil {
			return err
		}
		if got := d.Unused(); !slices.Equal(got, []string{"idle"}) {
			return fmt.Errorf("unused are %v", got)
		}
		if _, err := d.NewSolver(optim.Config{Name: optim.SGD}); err != nil {
			return err
		}
		idle[w.Rank()], err = elements(m.params[0].Value())
		return errors.Join(err, d.Close())
	})
	if len(idle[0]) != 7 || !slices.Equal(idle[0], idle[1]) {
		t.Errorf("the ranks have %v", idle)
	}
}
