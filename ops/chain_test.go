package ops_test

import (
	"fmt"
	"math"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
)

// wave returns count numbers; neighbors differ.
func wave(count int, phase float64) []float64 {
	v := make([]float64, count)
	for i := range v {
		v[i] = math.Sin(phase + 1.7*float64(i))
	}
	return v
}

// sharded: x is this rank's rows of a weight. All rows are gathered and multiplied with the rank's
// batch. The products are summed over the ranks and scattered by rows: parameter sharding and
// tensor parallelism in one chain.
func sharded(w *dist.World, x *gorgonia.Node) (*gorgonia.Node, error) {
	n := w.Size()
	weight, err := ops.AllGather(w.Group, x)
	if err != nil {
		return nil, err
	}
	rows := weight.Shape()[0]
	batch := input(x.Graph(), gtensor.Float64, "batch", wave(2*n*rows, float64(w.Rank())), 2*n, rows)
	h, err := gorgonia.Mul(batch, weight)
	if err != nil {
		return nil, err
	}
	if h, err = gorgonia.Tanh(h); err != nil {
		return nil, err
	}
	y, err := ops.ReduceScatter(w.Group, h, dist.Avg)
	if err != nil {
		return nil, err
	}
	return curved(w, y)
}

func TestGradientOfAllGatherMatmulReduceScatter(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { checkGradient(t, n, []int{2, 3}, sharded) })
	}
}

func TestGradientWithBoundDualValues(t *testing.T) {
	checkGradient(t, 2, []int{2, 3}, sharded, gorgonia.BindDualValues())
}

// parallel is a two-layer perceptron whose hidden units are divided among the ranks: the first
// layer by the rows of its weight, the second by columns, the result by an allreduce. Every rank
// has the whole loss, so each counts 1/n.
func parallel(w *dist.World) (cost *gorgonia.Node, weights gorgonia.Nodes, err error) {
	const in, hidden, out, batch = 3, 12, 2, 4
	n, r, g := w.Size(), w.Rank(), gorgonia.NewGraph()
	w1, w2 := wave(hidden*in, 0.3), wave(out*hidden, 0.9)
	part := make([]float64, 0, out*hidden/n) // the rank's columns of w2
	for o := range out {
		part = append(part, block(w2[o*hidden:(o+1)*hidden], r, n)...)
	}
	weights = gorgonia.Nodes{
		input(g, gtensor.Float64, "w1", block(w1, r, n), hidden/n, in),
		input(g, gtensor.Float64, "w2", part, out, hidden/n),
	}
	x := input(g, gtensor.Float64, "x", wave(in*batch, 2), in, batch)
	share := input(g, gtensor.Float64, "1/n", []float64{1 / float64(n)})
	h, err := gorgonia.Mul(weights[0], x)
	if err != nil {
		return nil, nil, err
	}
	if h, err = gorgonia.Tanh(h); err != nil {
		return nil, nil, err
	}
	if h, err = gorgonia.Mul(weights[1], h); err != nil {
		return nil, nil, err
	}
	y, err := ops.AllReduce(w.Group, h, dist.Sum)
	if err != nil {
		return nil, nil, err
	}
	if y, err = gorgonia.Square(y); err != nil {
		return nil, nil, err
	}
	if cost, err = gorgonia.Sum(y); err != nil {
		return nil, nil, err
	}
	cost, err = gorgonia.Mul(cost, share)
	return cost, weights, err
}

func TestTensorParallelGradientEqualsThatOfOneRank(t *testing.T) {
	gradients := func(n int) (grads [2][]float64) { // reassembled from the ranks' parts
		parts := make([][2][]float64, n)
		onRanks(t, n, func(w *dist.World) error {
			cost, weights, err := parallel(w)
			if err != nil {
				return err
			}
			ds, err := differentiate(cost, weights...)
			if err != nil {
				return err
			}
			if err := run(cost.Graph()); err != nil {
				return err
			}
			for i, d := range ds {
				if parts[w.Rank()][i], err = floats(d.Value()); err != nil {
					return err
				}
			}
			return nil
		})
		for _, p := range parts {
			grads[0] = append(grads[0], p[0]...)
		}
		for o := range 2 {
			for _, p := range parts {
				grads[1] = append(grads[1], block(p[1], o, 2)...)
			}
		}
		return grads
	}
	one := gradients(1)
	for _, n := range []int{2, 3, 4} {
		for i, got := range gradients(n) {
			if err := near(fmt.Sprintf("gradient %d of %d ranks", i, n), got, one[i], 1e-13); err != nil {
				t.Error(err)
			}
		}
	}
}
