package ddp_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/internal/invariants"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/optim"
)

// virtualRun trains with as many parts a step as there are virtual ranks, whatever the number of
// real ones.
type virtualRun struct {
	f     family
	dt    gtensor.Dtype
	parts int
	steps int
	cfg   ddp.Config
	sizes []int // samples of the parts, in turn; 0 is a part without samples
}

// on is the gradients of the last step and the weights at its end.
func (v virtualRun) on(w *dist.World) (result, error) {
	rows := slices.Max(v.sizes)
	l, err := newLearner(w, v.f, v.dt, rows, v.cfg, optim.Config{Name: optim.Adam, LearningRate: 0.01})
	if err != nil {
		return result{}, err
	}
	each := v.parts / w.Size()
	part := func(step, i int) error {
		p := w.Rank()*each + i
		lo := 100*step + 10*p
		return l.run(indices(lo, lo+rows), float64(v.sizes[p%len(v.sizes)]))
	}
	var res result
	for step := range v.steps {
		err := l.d.NoSync(func() error {
			for i := range each - 1 {
				if err := part(step, i); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return result{}, err
		}
		if err := part(step, each-1); err != nil {
			return result{}, err
		}
		if res.grads, err = gradients(l.d.Model()); err != nil {
			return result{}, err
		}
		if err := l.step(); err != nil {
			return result{}, err
		}
	}
	if res.weights, err = l.weights(); err != nil {
		return result{}, err
	}
	return res, l.close()
}

// everywhere checks that the ranks of all worlds have the same bits.
func (v virtualRun) everywhere(t *testing.T, want result, sizes ...int) {
	t.Helper()
	onWorlds(t, sizes, func(t *testing.T, w *dist.World) error {
		got, err := v.on(w)
		if v.cfg.Stage > 0 {
			got.grads = want.grads // of which a rank has its own only
		}
		if err == nil && !same(got, want) {
			err = fmt.Errorf("other bits: gradients off by %g, weights by %g", relative(got.grads, want.grads), relative(got.weights, want.weights))
		}
		return err
	})
}

// TestVirtualRanksGiveTheBitsOfRealOnes has plain data parallelism on as many real ranks as the
// definition.
func TestVirtualRanksGiveTheBitsOfRealOnes(t *testing.T) {
	for _, c := range []virtualRun{
		{f: mlp, dt: gtensor.Float32, sizes: []int{3}},
		{f: mlp, dt: gtensor.Float64, sizes: []int{3, 1, 0, 2}},
		{f: cnn, dt: gtensor.Float32, sizes: []int{1, 2}},
		{f: norm, dt: gtensor.Float32, sizes: []int{2}, cfg: ddp.Config{Average: ddp.Sum}},
	} {
		c.parts, c.steps = 4, 5
		var want result
		plain := c
		onRanks(t, 4, func(w *dist.World) error {
			got, err := plain.on(w)
			if w.Rank() == 0 {
				want = got
			}
			return err
		})
		for _, way := range []ddp.Config{
			{},
			{NoOverlap: true},
			{BucketMB: 1.0 / 1024},
			{BucketMB: 0.004, FirstBucketMB: 0.002},
			{BucketMB: 1.0 / 1024, NoOverlap: true},
			{Stage: 1},
			{Stage: 1, BucketMB: 1.0 / 1024},
		} {
			way.VirtualRanks, way.Average = 4, c.cfg.Average
			c.cfg = way
			t.Run(fmt.Sprintf("%s/%v/%v/buckets %v serial %v stage %d", c.f.name, c.dt, way.Average, way.BucketMB, way.NoOverlap, way.Stage), func(t *testing.T) {
				if invariants.Enabled { // slow, and one world shows the same
					c.everywhere(t, want, 2)
				} else {
					c.everywhere(t, want, 1, 2, 4)
				}
			})
		}
	}
}

func TestVirtualRanksOnRanksThatAreNoPowerOf2(t *testing.T) {
	c := virtualRun{f: tied, dt: gtensor.Float32, parts: 6, steps: 3, sizes: []int{2, 1}}
	var want result
	plain := c
	onRanks(t, 6, func(w *dist.World) error {
		got, err := plain.on(w)
		if w.Rank() == 0 {
			want = got
		}
		return err
	})
	c.cfg.VirtualRanks = 6
	c.everywhere(t, want, 1, 2, 3)
}

func TestVirtualRanksRefuseOtherNumbersOfRuns(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		l, err := newLearner(w, mlp, gtensor.Float32, 3, ddp.Config{VirtualRanks: 4}, optim.Config{})
		if err != nil {
			return err
		}
		check := func(err error) error {
			if !errors.Is(ops.Cause(err), dist.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "1 runs inside NoSync and one outside") {
				return fmt.Errorf("the run is %w, want ErrInvalid that says what a step is", err)
			}
			return nil
		}
		if err := check(l.run(indices(0, 3), 3)); err != nil {
			return fmt.Errorf("too few: %w", err)
		}
		err = l.d.NoSync(func() error { return errors.Join(l.run(indices(0, 3), 3), l.run(indices(0, 3), 3)) })
		if err := check(err); err != nil {
			return fmt.Errorf("too many: %w", err)
		}
		// The step after is clean.
		if err := l.d.NoSync(func() error { return l.run(indices(0, 3), 3) }); err != nil {
			return err
		}
		if err := l.run(indices(0, 3), 3); err != nil {
			return err
		}
		got, err := gradients(l.d.Model())
		if err != nil {
			return err
		}
		if want := ownGradients(t, mlp, gtensor.Float32, [][]int{indices(0, 3)})[0]; !slices.Equal(got, want) { // 4 quarters, exactly
			return fmt.Errorf("gradient off by %g", relative(got, want))
		}
		return l.close()
	})
}

func TestVirtualRanksWithoutSamplesAreAnError(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		l, err := newLearner(w, mlp, gtensor.Float32, 3, ddp.Config{VirtualRanks: 2}, optim.Config{})
		if err != nil {
			return err
		}
		if err := l.run(indices(0, 3), 0); !errors.Is(ops.Cause(err), ddp.ErrNoWeight) {
			return fmt.Errorf("the run is %w, want ErrNoWeight", err)
		}
		if got, want := l.d.WireBytes(), int64(0); got <= want {
			return fmt.Errorf("WireBytes is %d", got)
		}
		return l.close()
	})
}
