package ops_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
)

// normCase is a batch of rows, divided among ranks, and a layer over it. The cost of a rank is the
// mean over its rows of the sum of target*y + y^3/10, with the row weights of the layer.
type normCase struct {
	dt        gtensor.Dtype
	sample    []int // shape of a row
	parts     []int // rows of each rank
	weights   bool  // rows have weights: every third does not count
	plain     bool  // without scale and bias
	sumOfCost bool
	offset    float64 // of all inputs
	single    bool    // ranks have the whole batch's rows, and those that are not theirs do not count
}

// normResult holds the values of a rank after a run.
type normResult struct {
	y, dx, dscale, dbias, mean, variance []float64
	weight                               float64 // of the rank's rows
}

func (c *normCase) rows() int {
	n := 0
	for _, p := range c.parts {
		n += p
	}
	return n
}

// waves returns the elements from..to of an endless sequence of numbers.
func waves(seed float64, from, to int) []float64 {
	v := make([]float64, to-from)
	for i := range v {
		v[i] = math.Sin(seed+1.7*float64(from+i)) + 0.5*math.Cos(seed*float64(from+i+1))
	}
	return v
}

// weightOf is the weight of a row of the batch.
func (c *normCase) weightOf(row int) float64 {
	switch {
	case !c.weights:
		return 1
	case row%3 == 1:
		return 0
	}
	return 0.5 + float64(row%4)
}

// layer is a graph of the rows from..to.
type layer struct {
	g                          *gorgonia.ExprGraph
	x, y, scale, bias, cost    *gorgonia.Node
	norm                       *ops.BatchNorm
	dx, dscale, dbias, weights *gorgonia.Node
	weight                     float64
	read                       gorgonia.Value // y: later ops write over it
}

func (c *normCase) layer(group *dist.Group, from, to int) (*layer, error) {
	size := size(c.sample)
	l := &layer{g: gorgonia.NewGraph()}
	first, last := from, to
	if c.single {
		first, last = 0, c.rows()
	}
	v := waves(1, first*size, last*size)
	for i := range v {
		v[i] += c.offset
	}
	l.x = input(l.g, c.dt, "x", v, append([]int{last - first}, c.sample...)...)
	var w []float64
	for row := first; row < last; row++ {
		k := c.weightOf(row)
		if row < from || row >= to {
			k = 0
		}
		w = append(w, k)
		l.weight += k
	}
	cfg := ops.BatchNormConfig{Name: "norm", SumOfCosts: c.sumOfCost}
	rowWeights := input(l.g, c.dt, "rows", w, len(w))
	if c.weights || c.single {
		cfg.Rows = rowWeights
	}
	if !c.plain {
		l.scale = input(l.g, c.dt, "scale", waves(5, 0, c.sample[0]), c.sample[0])
		l.bias = input(l.g, c.dt, "bias", waves(6, 0, c.sample[0]), c.sample[0])
	}
	var err error
	if l.y, l.norm, err = ops.SyncBatchNorm(group, l.x, l.scale, l.bias, cfg); err != nil {
		return nil, err
	}
	gorgonia.Read(l.y, &l.read)
	target := input(l.g, c.dt, "target", waves(2, first*size, last*size), append([]int{last - first}, c.sample...)...)
	l.cost, err = meanCost(l.y, target, rowWeights, l.weight)
	return l, err
}

// meanCost is sum_i w_i sum(target_i*y_i + y_i^3/10) / weight, or 0 without weight.
func meanCost(y, target, rows *gorgonia.Node, weight float64) (*gorgonia.Node, error) {
	n := y.Shape()[0]
	flat := gtensor.Shape{n, y.Shape().TotalSize() / n}
	a := gorgonia.Must(gorgonia.HadamardProd(y, target))
	b := gorgonia.Must(gorgonia.Mul(gorgonia.Must(gorgonia.Cube(y)), constant(y.Dtype(), 0.1)))
	all := gorgonia.Must(gorgonia.Reshape(gorgonia.Must(gorgonia.Add(a, b)), flat))
	perRow := gorgonia.Must(gorgonia.Sum(all, 1))
	part := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.HadamardProd(perRow, rows))))
	return gorgonia.Mul(part, constant(y.Dtype(), 1/max(weight, 1e-300)))
}

func constant(dt gtensor.Dtype, x float64) *gorgonia.Node {
	if dt == gtensor.Float32 {
		return gorgonia.NewConstant(float32(min(x, 1e30)))
	}
	return gorgonia.NewConstant(x)
}

// differentiate adds the gradients.
func (l *layer) differentiate() error {
	wrt := gorgonia.Nodes{l.x}
	if l.scale != nil {
		wrt = append(wrt, l.scale, l.bias)
	}
	grads, err := differentiate(l.cost, wrt...)
	if err != nil {
		return err
	}
	l.dx = grads[0]
	if l.scale != nil {
		l.dscale, l.dbias = grads[1], grads[2]
	}
	return nil
}

// result returns the values of the nodes.
func (l *layer) result() (*normResult, error) {
	r := &normResult{weight: l.weight}
	mean, variance := l.norm.Stats()
	for _, v := range []struct {
		to   *[]float64
		from gorgonia.Value
	}{{&r.y, l.read}, {&r.dx, l.dx.Value()}, {&r.mean, mean}, {&r.variance, variance}} {
		var err error
		if *v.to, err = floats(v.from); err != nil {
			return nil, err
		}
	}
	if l.scale == nil {
		return r, nil
	}
	var err error
	if r.dscale, err = floats(l.dscale.Value()); err != nil {
		return nil, err
	}
	r.dbias, err = floats(l.dbias.Value())
	return r, err
}

// runNorm is the results of the ranks after some runs.
func runNorm(t *testing.T, c normCase, runs int) []*normResult {
	t.Helper()
	results := make([]*normResult, len(c.parts))
	onRanks(t, len(c.parts), func(w *dist.World) error {
		from := 0
		for _, p := range c.parts[:w.Rank()] {
			from += p
		}
		differentiating.Lock()
		l, err := c.layer(w.Group, from, from+c.parts[w.Rank()])
		differentiating.Unlock()
		if err != nil {
			return err
		}
		if err := l.differentiate(); err != nil {
			return err
		}
		vm := gorgonia.NewTapeMachine(l.g)
		defer vm.Close()
		for range runs {
			if err := vm.RunAll(); err != nil {
				return err
			}
			vm.Reset()
		}
		results[w.Rank()], err = l.result()
		return err
	})
	if t.Failed() {
		t.FailNow()
	}
	return results
}

// mean returns the weighted mean of all ranks' values, as ddp computes gradients, or the sum for
// SumOfCosts.
func (c *normCase) mean(all []*normResult, of func(*normResult) []float64) []float64 {
	var sum []float64
	total := 0.0
	for _, r := range all {
		total += r.weight
	}
	for _, r := range all {
		w := r.weight / total
		if c.sumOfCost {
			w = 1
		}
		v := of(r)
		if sum == nil {
			sum = make([]float64, len(v))
		}
		for i := range v {
			sum[i] += w * v[i]
		}
	}
	return sum
}

// compare checks that the ranks have the values of one rank with the whole batch.
func (c *normCase) compare(t *testing.T, all []*normResult, one *normResult, rel float64) {
	t.Helper()
	size, row := size(c.sample), 0
	total := one.weight
	for k, r := range all {
		for i := range c.parts[k] {
			at := i
			if c.single {
				at = row
			}
			factor := r.weight / total
			if c.sumOfCost {
				factor = 1
			}
			dx := slices.Clone(r.dx[at*size : (at+1)*size])
			for j := range dx {
				dx[j] *= factor
			}
			if err := errors.Join(
				near(fmt.Sprintf("rank %d: y of row %d", k, row), r.y[at*size:(at+1)*size], one.y[row*size:(row+1)*size], rel),
				near(fmt.Sprintf("rank %d: dx of row %d", k, row), dx, one.dx[row*size:(row+1)*size], rel),
			); err != nil {
				t.Error(err)
			}
			row++
		}
		if !slices.Equal(r.mean, all[0].mean) || !slices.Equal(r.variance, all[0].variance) {
			t.Errorf("ranks 0 and %d have other running statistics: %v %v, %v %v", k, all[0].mean, all[0].variance, r.mean, r.variance)
		}
	}
	err := errors.Join(near("running mean", all[0].mean, one.mean, rel), near("running variance", all[0].variance, one.variance, rel))
	if !c.plain {
		err = errors.Join(err,
			near("dscale", c.mean(all, func(r *normResult) []float64 { return r.dscale }), one.dscale, rel),
			near("dbias", c.mean(all, func(r *normResult) []float64 { return r.dbias }), one.dbias, rel))
	}
	if err != nil {
		t.Error(err)
	}
}

// whole is the case on one rank.
func (c normCase) whole() normCase {
	c.parts, c.single = []int{c.rows()}, false
	return c
}

// TestSyncBatchNormOfRanksIsThatOfOneRank divides a batch in unequal parts.
func TestSyncBatchNormOfRanksIsThatOfOneRank(t *testing.T) {
	for name, c := range map[string]normCase{
		"rows of channels":  {dt: gtensor.Float64, sample: []int{3}},
		"images":            {dt: gtensor.Float64, sample: []int{3, 2, 2}},
		"far from 0":        {dt: gtensor.Float64, sample: []int{3, 2, 2}, offset: 1e6},
		"weights":           {dt: gtensor.Float64, sample: []int{3, 2, 2}, weights: true},
		"single precision":  {dt: gtensor.Float32, sample: []int{3, 2, 2}},
		"single, weights":   {dt: gtensor.Float32, sample: []int{4}, weights: true},
		"no scale, no bias": {dt: gtensor.Float64, sample: []int{3, 2, 2}, plain: true},
		"rows of others":    {dt: gtensor.Float64, sample: []int{3}, single: true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, parts := range [][]int{{7}, {2, 5}, {1, 4, 2}, {1, 3, 2, 1}} {
				c.parts = parts
				rel := 1e-9
				if c.dt == gtensor.Float32 {
					rel = 1e-6
				}
				if c.offset != 0 {
					rel = 1e-7
				}
				c.compare(t, runNorm(t, c, 2), runNorm(t, c.whole(), 2)[0], rel)
			}
		})
	}
}

// TestSyncBatchNormOfASumOfCosts has equal parts, for which both losses differ only by a factor,
// and unequal parts.
func TestSyncBatchNormOfASumOfCosts(t *testing.T) {
	c := normCase{dt: gtensor.Float64, sample: []int{3}, parts: []int{3, 3}, sumOfCost: true}
	sum := runNorm(t, c, 1)
	c.sumOfCost = false
	for r, mean := range runNorm(t, c, 1) {
		if err := near("dx", sum[r].dx, mean.dx, 1e-12); err != nil {
			t.Error(err)
		}
	}
}

// TestSyncBatchNormGradientIsThatOfDifferences compares the gradients of two ranks with differences
// of the loss, of both kinds.
func TestSyncBatchNormGradientIsThatOfDifferences(t *testing.T) {
	for _, c := range []normCase{
		{dt: gtensor.Float64, sample: []int{2}, parts: []int{3, 2}, weights: true},
		{dt: gtensor.Float64, sample: []int{2, 1, 2}, parts: []int{2, 3}},
		{dt: gtensor.Float64, sample: []int{2, 1, 2}, parts: []int{1, 3}, sumOfCost: true, weights: true},
	} {
		results := runNorm(t, c, 1)
		total := 0.0
		for _, r := range results {
			total += r.weight
		}
		for rank, r := range results {
			factor := r.weight / total
			if c.sumOfCost {
				factor = 1
			}
			for _, in := range []struct {
				name string
				grad []float64
			}{{"x", r.dx}, {"scale", r.dscale}, {"bias", r.dbias}} {
				for i := range in.grad {
					const h = 1e-5
					want := (c.loss(t, rank, in.name, i, h) - c.loss(t, rank, in.name, i, -h)) / (2 * h)
					if got := factor * in.grad[i]; !(math.Abs(got-want) <= 1e-7*max(1, math.Abs(want))) {
						t.Errorf("%+v: rank %d: gradient of %s[%d] is %.9g, differences say %.9g", c, rank, in.name, i, got, want)
					}
				}
			}
		}
	}
}

// loss is the loss of all ranks when element i of an input of one rank is changed by h.
func (c normCase) loss(t *testing.T, rank int, name string, i int, h float64) float64 {
	costs, weights := make([]float64, len(c.parts)), make([]float64, len(c.parts))
	onRanks(t, len(c.parts), func(w *dist.World) error {
		from := 0
		for _, p := range c.parts[:w.Rank()] {
			from += p
		}
		differentiating.Lock()
		l, err := c.layer(w.Group, from, from+c.parts[w.Rank()])
		differentiating.Unlock()
		if err != nil {
			return err
		}
		if w.Rank() == rank {
			n := map[string]*gorgonia.Node{"x": l.x, "scale": l.scale, "bias": l.bias}[name]
			n.Value().Data().([]float64)[i] += h
		}
		if err := run(l.g); err != nil {
			return err
		}
		v, err := floats(l.cost.Value())
		costs[w.Rank()], weights[w.Rank()] = v[0], l.weight
		return err
	})
	if c.sumOfCost {
		return costs[0] + costs[1]
	}
	return (weights[0]*costs[0] + weights[1]*costs[1]) / (weights[0] + weights[1])
}
