package ddp

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/tensor"
)

var building sync.Mutex

// attachVectors attaches parameters of 300 and 3 elements, which have the values of their indices
// plus the rank after Attach.
func attachVectors(w *dist.World, cfg Config) (*DDP, G.Nodes, error) {
	building.Lock()
	g := G.NewGraph()
	var params G.Nodes
	var cost *G.Node
	for i, n := range []int{300, 3} {
		p := G.NewVector(g, gtensor.Float32, G.WithName(fmt.Sprint("w", i)), G.WithShape(n), G.WithInit(G.Zeroes()))
		params = append(params, p)
		if c := G.Must(G.Sum(G.Must(G.Square(p)))); cost == nil {
			cost = c
		} else {
			cost = G.Must(G.Add(cost, c))
		}
	}
	building.Unlock()
	d, err := Attach(w, cost, params, cfg)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range params {
		v := p.Value().Data().([]float32)
		for i := range v {
			v[i] = float32(i + w.Rank())
		}
	}
	return d, params, nil
}

// onGroup runs body on the ranks of a world, on all at once.
func onGroup(t *testing.T, n int, body func(w *dist.World) error) {
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
				_ = w.Abort(errs[r])
			}
			errs[r] = errors.Join(errs[r], w.Close())
		})
	}
	ranks.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestFormsAreCutWithoutOverlap checks that the parts of a form are as long as they should be and
// do not overlap, and that its size is the one that plans predict.
func TestFormsAreCutWithoutOverlap(t *testing.T) {
	for name, cfg := range map[string]Config{
		"nothing":            {},
		"cast":               {WireDType: tensor.BF16},
		"feedback":           {WireDType: tensor.BF16, ErrorFeedback: true, BucketMB: 1.0 / 1024},
		"feedback, staged":   {WireDType: tensor.F16, ErrorFeedback: true, BucketMB: 1.0 / 1024, Stage: 2},
		"virtual":            {VirtualRanks: 6},
		"virtual, in slices": {VirtualRanks: 6, BucketMB: 1.0 / 1024, Stage: 1},
	} {
		t.Run(name, func(t *testing.T) {
			onGroup(t, 2, func(w *dist.World) error {
				d, _, err := attachVectors(w, cfg)
				if err != nil {
					return err
				}
				f, err := d.driver.formOf()
				if err != nil {
					return err
				}
				all := slices.Concat(f.places, f.feedback.Residuals, f.virtual.Send)
				if len(f.feedback.Residuals) > 0 {
					all = append(all, f.feedback.Finite, f.feedback.Doubt)
				}
				if f.virtual.Runs > 0 {
					all = append(all, f.virtual.Own, f.virtual.All, f.virtual.Shares[0], f.virtual.Shares[1])
				}
				for i, b := range all {
					for _, c := range all[:i] {
						if tensor.Overlap(b, c) {
							return fmt.Errorf("%v and %v overlap", b, c)
						}
					}
				}
				for i, b := range f.feedback.Residuals {
					if n := d.plan.Buckets[i].Elements; b.Len() != n || f.wires[i].Len() != n {
						return fmt.Errorf("bucket %d has %d elements, %d residuals and a message of %d", i, n, b.Len(), f.wires[i].Len())
					}
				}
				wire, err := d.plan.Wire(d.cfg, 2, true)
				if err == nil && wire.Bytes != f.raw.Bytes() {
					err = fmt.Errorf("the form has %d B, and Wire predicts %d", f.raw.Bytes(), wire.Bytes)
				}
				return errors.Join(err, d.Close())
			})
		})
	}
}

// TestResidualsOfAGroupOnGPUsAreRead sets and reads the state of error feedback in a symmetric
// heap, and checks that a step that does not count leaves none.
func TestResidualsOfAGroupOnGPUsAreRead(t *testing.T) {
	onGroup(t, 2, func(w *dist.World) error {
		d, _, err := attachVectors(w, Config{WireDType: tensor.BF16, ErrorFeedback: true})
		if err != nil {
			return err
		}
		host := d.wire
		x, err := newBySteps(d)
		d.wire = x
		if err != nil {
			return err
		}
		state := d.HookState()
		first, err := tensor.Data[float32](state[0].Data)
		if err != nil {
			return err
		}
		if len(state) != 2 || slices.Max(first) != 0 || state[0].Slot != "residual" || !state[0].Sum {
			return fmt.Errorf("the first state is %+v", state)
		}
		first[1] = float32(1 + w.Rank())
		read := func() (float32, error) {
			all, err := tensor.Data[float32](d.HookState()[0].Data)
			if err != nil {
				return 0, err
			}
			return all[1], nil
		}
		check := func(when string, want float32) error {
			got, err := read()
			if err == nil && got != want {
				err = fmt.Errorf("%s: the residual is %v, want %v", when, got, want)
			}
			return err
		}
		set := func() error { return d.SetHookState(state) }
		mine := first[1]
		errs := []error{set(), check("set", mine)}
		d.driver.Ran(nil)
		errs = append(errs, check("after a run", mine))
		d.driver.Ran(dist.ErrAborted)
		errs = append(errs, check("after a failed run", 0))
		run, err := d.driver.Next()
		if err == nil && run.Weights[4] != 0 {
			err = fmt.Errorf("the run after a failed one gets %v", run.Weights)
		}
		errs = append(errs, err, set(), check("set again", mine))
		errs = append(errs, x.put(x.feedback.Doubt, tensor.Of([]float64{nan()})), check("after gradients that are not finite", 0))
		d.wire = host
		return errors.Join(append(errs, x.close(), d.Close())...)
	})
}

// TestRunsOfGPUsAreChecked has the checks of runs by steps.
func TestRunsOfGPUsAreChecked(t *testing.T) {
	onGroup(t, 2, func(w *dist.World) error {
		d, _, err := attachVectors(w, Config{VirtualRanks: 4})
		if err != nil {
			return err
		}
		host := d.wire
		x, err := newBySteps(d)
		if err != nil {
			return err
		}
		d.wire = x
		if _, err := d.driver.Next(); !errors.Is(err, dist.ErrInvalid) {
			return fmt.Errorf("one run of two: %w, want ErrInvalid", err)
		}
		err = d.NoSync(func() error {
			run, err := d.driver.Next()
			if err == nil && (!run.Local || !run.Virtual || run.Part != 0 || run.Joins) {
				err = fmt.Errorf("the first run is %+v", run)
			}
			d.driver.Ran(err)
			return err
		})
		if err != nil {
			return err
		}
		run, err := d.driver.Next()
		if err == nil && (run.Local || run.Joins || run.Weights[0] != 2) {
			err = fmt.Errorf("the last run is %+v", run)
		}
		d.wire = host
		return errors.Join(err, x.close(), d.Close())
	})
}

// TestWeightsOnGPUsAreAveraged averages weights in a symmetric heap, once from the nodes and back,
// and once where a machine keeps them.
func TestWeightsOnGPUsAreAveraged(t *testing.T) {
	onGroup(t, 3, func(w *dist.World) error {
		d, params, err := attachVectors(w, Config{LocalSteps: 2})
		if err != nil {
			return err
		}
		x := &d.driver
		if err := x.values.allocate(d, params); err != nil {
			return err
		}
		own := float64(1 + w.Rank())
		total, err := x.sumOnGPU(own)
		if err != nil || total != 6 {
			return fmt.Errorf("the sum of 1, 2 and 3 is %v, %w", total, err)
		}
		want := func(i int) float32 { // products are rounded, and added in the order of the ranks
			sum := float32(0)
			for r := range 3 {
				sum += float32(float32(float64(1+r)/total) * float32(i+r))
			}
			return sum
		}
		if err := errors.Join(x.setShareOnGPU(own/total), x.averageOnGPU()); err != nil {
			return err
		}
		check := func(where string, got []float32) error {
			for i := range got {
				if got[i] != want(i) {
					return fmt.Errorf("%s, element %d: %v, want %v", where, i, got[i], want(i))
				}
			}
			return nil
		}
		errs := []error{check("the nodes", params[0].Value().Data().([]float32)), check("the nodes", params[1].Value().Data().([]float32))}
		x.Keep()
		for i := range x.values.all {
			on, err := tensor.Data[float32](x.values.all[i].buf)
			if err != nil {
				return err
			}
			for k := range on {
				on[k] = float32(k + w.Rank())
			}
			clear(params[i].Value().Data().([]float32))
		}
		errs = append(errs, x.averageOnGPU())
		for i := range x.values.all {
			on, err := tensor.Data[float32](x.values.all[i].buf)
			errs = append(errs, err, check("the machine's weights", on))
			if slices.Max(params[i].Value().Data().([]float32)) != 0 {
				errs = append(errs, errors.New("the nodes have the averages before Sync"))
			}
		}
		return errors.Join(append(errs, d.Close())...)
	})
}
