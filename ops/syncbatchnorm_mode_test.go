package ops_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
)

// plainNorm is a layer without scale and bias over x, read before later ops write over it.
func plainNorm(g *dist.Group, v []float64, shape []int, c ops.BatchNormConfig) (*layer, error) {
	l := &layer{g: gorgonia.NewGraph()}
	l.x = input(l.g, gtensor.Float64, "x", v, shape...)
	if c.Rows == nil && c.Name == "rows" {
		l.weights = input(l.g, gtensor.Float64, "rows", make([]float64, shape[0]), shape[0])
		c.Rows = l.weights
	}
	var err error
	if l.y, l.norm, err = ops.SyncBatchNorm(g, l.x, nil, nil, c); err != nil {
		return nil, err
	}
	gorgonia.Read(l.y, &l.read)
	l.cost, err = gorgonia.Sum(gorgonia.Must(gorgonia.Cube(l.y)))
	return l, err
}

// TestSyncBatchNormIsTheFormula computes two samples of two channels by hand: channel 0 has 1, 3,
// 5, 11, whose mean is 5, biased variance 14 and unbiased variance 56/3; channel 1 has 2, 2, 2, 2.
func TestSyncBatchNormIsTheFormula(t *testing.T) {
	for _, c := range []ops.BatchNormConfig{{}, {Momentum: 0.25, Epsilon: 2}} {
		onRanks(t, 2, func(w *dist.World) error {
			x := [][]float64{{1, 3, 2, 2}, {5, 11, 2, 2}}[w.Rank()]
			l, err := plainNorm(w.Group, x, []int{1, 2, 1, 2}, c)
			if err != nil {
				return err
			}
			if err := run(l.g); err != nil {
				return err
			}
			momentum, epsilon := 0.1, 1e-5
			if c.Momentum != 0 {
				momentum, epsilon = c.Momentum, c.Epsilon
			}
			got := l.norm.Config()
			if got.Momentum != momentum || got.Epsilon != epsilon || got.Name != "x" || l.norm.Name() != "x" || l.norm.Rank() != w.Rank() {
				return fmt.Errorf("the settings are %+v", got)
			}
			root := math.Sqrt(14 + epsilon)
			y, err := floats(l.read)
			if err != nil {
				return err
			}
			mean, variance := l.norm.Stats()
			return errors.Join(
				near("y", y, []float64{(x[0] - 5) / root, (x[1] - 5) / root, 0, 0}, 1e-14),
				near("running mean", mean.Data().([]float64), []float64{5 * momentum, 2 * momentum}, 1e-14),
				near("running variance", variance.Data().([]float64), []float64{1 - momentum + momentum*56/3, 1 - momentum}, 1e-14))
		})
	}
}

// TestSyncBatchNormOfNothing has no row that counts, on any rank: nothing moves, and no value is
// NaN.
func TestSyncBatchNormOfNothing(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		x := []float64{math.NaN(), math.Inf(1), 1, 2}
		l, err := plainNorm(w.Group, x, []int{2, 2}, ops.BatchNormConfig{Name: "rows"})
		if err != nil {
			return err
		}
		grads, err := differentiate(l.cost, l.x)
		if err != nil {
			return err
		}
		if err := run(l.g); err != nil {
			return err
		}
		mean, variance := l.norm.Stats()
		return errors.Join(equal("y", l.read, make([]float64, 4)), equal("dx", grads[0].Value(), make([]float64, 4)),
			equal("running mean", mean, []float64{0, 0}), equal("running variance", variance, []float64{1, 1}))
	})
}

// TestRowsThatDoNotCountPoisonNothing has a rank whose rows are NaN, and another rank with all the
// rows that count.
func TestRowsThatDoNotCountPoisonNothing(t *testing.T) {
	c := normCase{dt: gtensor.Float64, sample: []int{2}, parts: []int{4, 0}, weights: true}
	want := runNorm(t, c.whole(), 1)[0]
	onRanks(t, 2, func(w *dist.World) error {
		differentiating.Lock()
		l, err := c.layer(w.Group, 0, 4)
		differentiating.Unlock()
		if err == nil && w.Rank() == 1 {
			for _, n := range l.g.Inputs() {
				v, ok := n.Value().Data().([]float64)
				switch {
				case ok && n.Name() == "rows":
					clear(v)
				case ok && n.Name() == "x":
					v[0], v[1], v[3] = math.NaN(), math.Inf(1), math.Inf(-1)
				}
			}
		}
		if err == nil {
			err = l.differentiate()
		}
		if err == nil {
			err = run(l.g)
		}
		if err != nil {
			return err
		}
		r, err := l.result()
		if err != nil {
			return err
		}
		if w.Rank() == 1 {
			return errors.Join(near("y", r.y, make([]float64, 8), 0), near("dx", r.dx, make([]float64, 8), 0),
				near("dscale", r.dscale, []float64{0, 0}, 0), near("running mean", r.mean, want.mean, 1e-12))
		}
		return errors.Join(near("y", r.y, want.y, 1e-12), near("dx", r.dx, want.dx, 1e-12), near("dscale", r.dscale, want.dscale, 1e-12))
	})
}

// TestSyncBatchNormOutsideTrainingNeedsNobody runs one rank alone with given statistics: mean 1 and
// variance 4, and an epsilon of 5.
func TestSyncBatchNormOutsideTrainingNeedsNobody(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		if w.Rank() == 1 {
			return nil
		}
		l, err := plainNorm(w.Group, []float64{1, 4, -2}, []int{3, 1}, ops.BatchNormConfig{Epsilon: 5})
		if err != nil {
			return err
		}
		grads, err := differentiate(l.cost, l.x)
		if err != nil {
			return err
		}
		mean, variance := dense(gtensor.Float64, []float64{1}, 1), dense(gtensor.Float64, []float64{4}, 1)
		if err := l.norm.SetStats(mean, variance); err != nil {
			return err
		}
		if err := run(l.g, gorgonia.EvalMode()); err != nil {
			return err
		}
		if l.norm.Training() {
			return errors.New("it is still training")
		}
		y, err := floats(l.read)
		if err != nil {
			return err
		}
		dx, err := floats(grads[0].Value()) // 3y^2/3
		if err != nil {
			return err
		}
		gotMean, gotVariance := l.norm.Stats()
		return errors.Join(near("y", y, []float64{0, 1, -1}, 1e-14), near("dx", dx, []float64{0, 1, 1}, 1e-14),
			equal("running mean", gotMean, []float64{1}), equal("running variance", gotVariance, []float64{4}))
	})
}

// TestSetStatsRefusesWhatDoesNotFit also checks that the old statistics stay.
func TestSetStatsRefusesWhatDoesNotFit(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		l, err := plainNorm(w.Group, make([]float64, 6), []int{3, 2}, ops.BatchNormConfig{})
		if err != nil {
			return err
		}
		two, three := dense(gtensor.Float64, []float64{7, 8}, 2), dense(gtensor.Float64, []float64{1, 2, 3}, 3)
		single := dense(gtensor.Float32, []float64{7, 8}, 2)
		for _, c := range []struct {
			mean, variance *gtensor.Dense
			want           error
		}{
			{nil, two, dist.ErrInvalid},
			{two, three, dist.ErrCount},
			{single, two, dist.ErrDType},
			{two, dense(gtensor.Float64, []float64{1, -1}, 2), dist.ErrInvalid},
			{two, dense(gtensor.Float64, []float64{math.NaN(), 1}, 2), dist.ErrInvalid},
			{dense(gtensor.Float64, []float64{1, math.NaN()}, 2), two, dist.ErrInvalid},
		} {
			if err := l.norm.SetStats(c.mean, c.variance); !errors.Is(err, c.want) {
				return fmt.Errorf("got %w, want %w", err, c.want)
			}
		}
		mean, variance := l.norm.Stats()
		if err := errors.Join(equal("mean", mean, []float64{0, 0}), equal("variance", variance, []float64{1, 1})); err != nil {
			return err
		}
		return errors.Join(l.norm.SetStats(two, two), equal("mean", mean, []float64{7, 8}), equal("variance", variance, []float64{7, 8}))
	})
}

// TestSyncBatchNormRefusesWhatDoesNotFit checks errors that come before any communication.
func TestSyncBatchNormRefusesWhatDoesNotFit(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		g := gorgonia.NewGraph()
		in := func(name string, dt gtensor.Dtype, shape ...int) *gorgonia.Node {
			return input(g, dt, name, make([]float64, size(shape)), shape...)
		}
		x := in("x", gtensor.Float64, 4, 3)
		apart := input(gorgonia.NewGraph(), gtensor.Float64, "apart", make([]float64, 3), 3)
		for what, c := range map[string]struct {
			group          *dist.Group
			x, scale, bias *gorgonia.Node
			cfg            ops.BatchNormConfig
			want           error
		}{
			"no group":          {nil, x, nil, nil, ops.BatchNormConfig{}, dist.ErrInvalid},
			"no input":          {w.Group, nil, nil, nil, ops.BatchNormConfig{}, dist.ErrInvalid},
			"momentum":          {w.Group, x, nil, nil, ops.BatchNormConfig{Momentum: 1.5}, dist.ErrInvalid},
			"epsilon":           {w.Group, x, nil, nil, ops.BatchNormConfig{Epsilon: math.Inf(1)}, dist.ErrInvalid},
			"three axes":        {w.Group, in("x3", gtensor.Float64, 4, 3, 2), nil, nil, ops.BatchNormConfig{}, dist.ErrCount},
			"integers":          {w.Group, in("xi", gtensor.Int64, 4, 3), nil, nil, ops.BatchNormConfig{}, dist.ErrDType},
			"another graph":     {w.Group, x, nil, apart, ops.BatchNormConfig{}, dist.ErrInvalid},
			"a scale of 4":      {w.Group, x, in("s", gtensor.Float64, 4), nil, ops.BatchNormConfig{}, dist.ErrCount},
			"a bias of singles": {w.Group, x, nil, in("b", gtensor.Float32, 3), ops.BatchNormConfig{}, dist.ErrDType},
			"weights of 3 rows": {w.Group, x, nil, nil, ops.BatchNormConfig{Rows: in("r", gtensor.Float64, 3)}, dist.ErrCount},
		} {
			if _, _, err := ops.SyncBatchNorm(c.group, c.x, c.scale, c.bias, c.cfg); !errors.Is(err, c.want) {
				return fmt.Errorf("%s: got %w, want %w", what, err, c.want)
			}
			for _, n := range g.AllNodes() {
				if _, ok := ops.DescribeBatchNorm(n); ok {
					return fmt.Errorf("%s: node %q was left in the graph", what, n.Name())
				}
			}
		}
		return nil
	})
}

// TestSyncBatchNormTakesOneOfScaleAndBias, of any shape with as many elements as channels.
func TestSyncBatchNormTakesOneOfScaleAndBias(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		g := gorgonia.NewGraph()
		x := input(g, gtensor.Float64, "x", []float64{-1, 1}, 2, 1, 1, 1)
		scale := input(g, gtensor.Float64, "scale", []float64{3}, 1, 1, 1, 1)
		bias := input(g, gtensor.Float64, "bias", []float64{0.5}, 1, 1)
		first, _, err := ops.SyncBatchNorm(w.Group, x, scale, nil, ops.BatchNormConfig{Epsilon: 1e-30})
		if err != nil {
			return err
		}
		second, _, err := ops.SyncBatchNorm(w.Group, first, nil, bias, ops.BatchNormConfig{Epsilon: 1e-30})
		if err != nil {
			return err
		}
		var y1, y2 gorgonia.Value
		gorgonia.Read(first, &y1)
		gorgonia.Read(second, &y2)
		cost := gorgonia.Must(gorgonia.Sum(second))
		grads, err := differentiate(cost, scale, bias)
		if err != nil {
			return err
		}
		return errors.Join(run(g), equal("first", y1, []float64{-3, 3}), equal("second", y2, []float64{-0.5, 1.5}),
			equal("dbias", grads[1].Value(), []float64{2}), equal("dscale", grads[0].Value(), []float64{0}))
	})
}

// TestADeadPeerEndsABatchNorm has a rank that dies in the forward or in the backward pass.
func TestADeadPeerEndsABatchNorm(t *testing.T) {
	for op, what := range map[int]string{1: "norm.statistics", 2: "norm.gradient"} {
		c := normCase{dt: gtensor.Float64, sample: []int{2}, parts: []int{2, 2, 2}}
		errs, err := runScript(3, fmt.Sprintf("die rank=1 op=%d", op), func(w *dist.World) error {
			differentiating.Lock()
			l, err := c.layer(w.Group, 2*w.Rank(), 2*w.Rank()+2)
			differentiating.Unlock()
			if err == nil {
				err = l.differentiate()
			}
			if err != nil {
				return err
			}
			return run(l.g)
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []int{0, 2} {
			var dead *dist.RankError
			if err := ops.Cause(errs[r]); !errors.As(err, &dead) || dead.Rank != 1 || !strings.Contains(err.Error(), what) {
				t.Errorf("rank %d: %v; want one that names rank 1 and %s", r, err, what)
			}
		}
	}
}

// TestGradientOfABatchNormsGradient checks the error, and that two costs of one layer have two
// gradients.
func TestGradientOfABatchNormsGradient(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		l, err := plainNorm(w.Group, []float64{1, 2, 4}, []int{3, 1}, ops.BatchNormConfig{})
		if err != nil {
			return err
		}
		grads, err := differentiate(l.cost, l.x)
		if err != nil {
			return err
		}
		d, ok := grads[0].Op().(gorgonia.SDOp)
		if !ok {
			return fmt.Errorf("%T has no derivative to refuse", grads[0].Op())
		}
		if slices.Contains(d.DiffWRT(4), true) {
			return errors.New("it says that it can be differentiated")
		}
		if _, err := d.SymDiff(gorgonia.Nodes{l.x}, grads[0], l.x); !errors.Is(err, dist.ErrUnsupported) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

// TestDescribeBatchNormNamesAllParts looks at the nodes of a differentiated layer.
func TestDescribeBatchNormNamesAllParts(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		c := normCase{dt: gtensor.Float32, sample: []int{2}, parts: []int{3}, weights: true}
		differentiating.Lock()
		l, err := c.layer(w.Group, 0, 3)
		differentiating.Unlock()
		if err == nil {
			err = l.differentiate()
		}
		if err != nil {
			return err
		}
		seen := map[ops.BatchNormPart]int{}
		for _, n := range l.g.AllNodes() {
			d, ok := ops.DescribeBatchNorm(n)
			if !ok {
				continue
			}
			seen[d.Part]++
			exchanges := d.Part == ops.BatchNormGather || d.Part == ops.BatchNormReduce
			if d.Layer != l.norm || !*d.Training || !d.Rows || !d.Scale || !d.Bias || (d.Exchange.Group != nil) != exchanges {
				return fmt.Errorf("%v: %+v", n, d)
			}
			if want := "batch norm " + d.Part.String() + " of norm"; n.Op().String() != want {
				return fmt.Errorf("%v, want %s", n.Op(), want)
			}
		}
		for part := ops.BatchNormMoments; part <= ops.BatchNormBiasGrad; part++ {
			if seen[part] != 1 {
				return fmt.Errorf("%d nodes are %v", seen[part], part)
			}
		}
		if s := ops.BatchNormPart(200).String(); s != "part 200" {
			return errors.New(s)
		}
		return nil
	})
}

// TestLispMachineRunsABatchNormForward also checks the error of its gradient.
func TestLispMachineRunsABatchNormForward(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		for _, forward := range []bool{true, false} {
			g := gorgonia.NewGraph()
			x := input(g, gtensor.Float64, "x", []float64{-3, 3}, 2, 1)
			y, _, err := ops.SyncBatchNorm(w.Group, x, nil, nil, ops.BatchNormConfig{Epsilon: 1e-30})
			if err != nil {
				return err
			}
			cost := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Square(y))))
			if !forward {
				vm := gorgonia.NewLispMachine(g)
				err := errors.Join(vm.RunAll(), vm.Close())
				if err == nil || !strings.Contains(err.Error(), "tape machine") {
					return fmt.Errorf("the backward pass: %w", err)
				}
				continue
			}
			vm := gorgonia.NewLispMachine(g, gorgonia.ExecuteFwdOnly())
			if err := errors.Join(vm.RunAll(), vm.Close(), equal("cost", cost.Value(), []float64{2})); err != nil {
				return err
			}
		}
		return nil
	})
}
