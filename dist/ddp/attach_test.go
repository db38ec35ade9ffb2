package ddp_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/ops"
)

// TestAttachRefuses has something wrong on one rank of two; the other must hear of it.
func TestAttachRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		want  error
		words []string
		spoil func(m *model, cfg *ddp.Config) (*G.Node, G.Nodes)
	}{
		{"no cost", dist.ErrInvalid, []string{"no cost"}, func(m *model, _ *ddp.Config) (*G.Node, G.Nodes) { return nil, m.params }},
		{"no learnables", dist.ErrInvalid, []string{"none of the 0"}, func(m *model, _ *ddp.Config) (*G.Node, G.Nodes) { return m.cost, nil }},
		{"nil learnable", dist.ErrInvalid, []string{"learnable 1"}, func(m *model, _ *ddp.Config) (*G.Node, G.Nodes) {
			return m.cost, G.Nodes{m.params[0], nil}
		}},
		{"learnable twice", dist.ErrInvalid, []string{`"w0"`, "name of its own"}, func(m *model, _ *ddp.Config) (*G.Node, G.Nodes) {
			return m.cost, append(m.params, m.params[0])
		}},
		{"learnable of another graph", dist.ErrInvalid, []string{`"w0"`, "graph"}, func(m *model, _ *ddp.Config) (*G.Node, G.Nodes) {
			return m.cost, mlp.make(gtensor.Float64, 3, 1).params
		}},
		{"a result as learnable", dist.ErrInvalid, []string{"not a parameter"}, func(m *model, _ *ddp.Config) (*G.Node, G.Nodes) {
			return m.cost, G.Nodes{m.params[0], G.Must(G.Tanh(m.params[0]))}
		}},
		{"the cost as learnable", dist.ErrInvalid, []string{"it is the cost"}, func(m *model, _ *ddp.Config) (*G.Node, G.Nodes) {
			return m.params[0], G.Nodes{m.params[0]}
		}},
		{"learnable without a value", dist.ErrInvalid, []string{`"late"`, "WithValue"}, func(m *model, _ *ddp.Config) (*G.Node, G.Nodes) {
			late := G.NewVector(m.cost.Graph(), G.Float64, G.WithName("late"), G.WithShape(3))
			return m.cost, append(m.params, late)
		}},
		{"integer learnable", dist.ErrDType, []string{`"count"`, "float32 or float64"}, func(m *model, _ *ddp.Config) (*G.Node, G.Nodes) {
			count := G.NewVector(m.cost.Graph(), gtensor.Int32, G.WithName("count"), G.WithShape(3),
				G.WithValue(gtensor.New(gtensor.WithBacking([]int32{1, 2, 3}))))
			return m.cost, append(m.params, count)
		}},
		{"learnable whose value is a transposed view", nil, []string{`"w0"`, "contiguous"}, func(m *model, _ *ddp.Config) (*G.Node, G.Nodes) {
			v := gtensor.New(gtensor.WithShape(10, 6), gtensor.Of(gtensor.Float64))
			if err := v.T(); err != nil {
				panic(err)
			}
			G.WithValue(v)(m.params[0])
			return m.cost, m.params
		}},
		{"learnables that share memory, sharded", dist.ErrAlias, []string{`"w0" and "b0"`, "one node"}, func(m *model, cfg *ddp.Config) (*G.Node, G.Nodes) {
			shared := make([]float64, 70)
			G.WithValue(gtensor.New(gtensor.WithShape(6, 10), gtensor.WithBacking(shared[:60])))(m.params[0])
			G.WithValue(gtensor.New(gtensor.WithShape(1, 10), gtensor.WithBacking(shared[59:69])))(m.params[1])
			cfg.Stage = 1
			return m.cost, m.params
		}},
		{"graph differentiated before", dist.ErrInvalid, []string{"instead of gorgonia.Grad"}, func(m *model, _ *ddp.Config) (*G.Node, G.Nodes) {
			if _, err := G.Grad(m.cost, m.params...); err != nil {
				panic(err)
			}
			return m.cost, m.params
		}},
		{"bucket too small", dist.ErrInvalid, []string{"BucketMB", "1 KiB"}, func(m *model, cfg *ddp.Config) (*G.Node, G.Nodes) {
			cfg.BucketMB = 1e-5
			return m.cost, m.params
		}},
		{"cost that is no scalar", nil, []string{"scalar"}, func(m *model, _ *ddp.Config) (*G.Node, G.Nodes) {
			return G.Must(G.Square(m.params[0])), m.params
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			onRanks(t, 2, func(w *dist.World) error {
				m := mlp.make(gtensor.Float64, 3, 1)
				cost, learnables, cfg := m.cost, m.params, ddp.Config{}
				if w.Rank() == 1 {
					cost, learnables = c.spoil(m, &cfg)
				}
				_, err := ddp.Attach(w, cost, learnables, cfg)
				want := c.want
				if w.Rank() == 0 {
					want = ddp.ErrPeer
				}
				if err == nil || (want != nil && !errors.Is(err, want)) {
					return fmt.Errorf("Attach is %v, want %v", err, want)
				}
				for _, word := range append(c.words, "rank 1") {
					if !strings.Contains(err.Error(), word) {
						return fmt.Errorf("Attach is %q, want an error with %q", err, word)
					}
				}
				// The group is as usable as before.
				work, err := w.Barrier()
				return errors.Join(err, work.Wait())
			})
		})
	}
	if _, err := ddp.Attach(nil, nil, nil, ddp.Config{}); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("no world: %v", err)
	}
}

// opaque is an op without a symbolic derivative.
type opaque struct{ G.Op }

func TestAttachNamesTheNodeThatCannotBeDifferentiated(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		m := mlp.make(gtensor.Float64, 3, 1)
		inner := G.Must(G.Cube(mlp.make(gtensor.Float64, 3, 1).params[0])).Op()
		cost := G.Must(G.Sum(G.Must(G.ApplyOp(opaque{inner}, m.params[0]))))
		_, err := ddp.Attach(w, cost, m.params, ddp.Config{})
		if !errors.Is(err, dist.ErrUnsupported) || !strings.Contains(err.Error(), "opaque") {
			return fmt.Errorf("Attach is %v, want ErrUnsupported naming the op", err)
		}
		return nil
	})
}

func TestAttachGivesAllRanksTheWeightsOfRank0(t *testing.T) {
	for _, dt := range []gtensor.Dtype{gtensor.Float32, gtensor.Float64} {
		want, err := weights(mlp.make(dt, 3, 1).params)
		if err != nil {
			t.Fatal(err)
		}
		onRanks(t, 3, func(w *dist.World) error {
			m := mlp.make(dt, 3, uint64(1+w.Rank()))
			unused := G.NewVector(m.cost.Graph(), dt, G.WithName("unused"), G.WithShape(1),
				G.WithValue(tensorOf(dt, []float64{float64(w.Rank())}, 1)))
			frozen := G.NewVector(m.cost.Graph(), dt, G.WithName("frozen"), G.WithShape(1),
				G.WithValue(tensorOf(dt, []float64{float64(w.Rank())}, 1)))
			memory := m.params[0].Value().Uintptr()
			d, err := ddp.Attach(w, m.cost, append(m.params, unused), ddp.Config{Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				return err
			}
			defer d.Close()
			if got, err := weights(m.params); err != nil || !slices.Equal(got, want) {
				return fmt.Errorf("other weights than rank 0's: %v", err)
			}
			if got, err := elements(unused.Value()); err != nil || got[0] != 0 {
				return fmt.Errorf("the unused parameter is %v (%v), want rank 0's", got, err)
			}
			if got, err := elements(frozen.Value()); err != nil || got[0] != float64(w.Rank()) {
				return fmt.Errorf("what is no learnable is %v (%v), want what it was", got, err)
			}
			if m.params[0].Value().Uintptr() != memory {
				return errors.New("the weights were moved")
			}
			return nil
		})
	}
}

func TestUnusedParametersAreReportedAndLeftOut(t *testing.T) {
	var logged bytes.Buffer
	onRanks(t, 2, func(w *dist.World) error {
		m := mlp.make(gtensor.Float64, 3, 1)
		g := m.cost.Graph()
		idle := G.NewMatrix(g, G.Float64, G.WithName("idle"), G.WithShape(2, 2), G.WithInit(G.Ones()))
		side := G.NewMatrix(g, G.Float64, G.WithName("side"), G.WithShape(2, 2), G.WithInit(G.Ones()))
		G.Must(G.Sum(side)) // a metric, not the cost
		cfg := ddp.Config{Log: slog.New(slog.DiscardHandler)}
		if w.Rank() == 0 {
			cfg.Log = slog.New(slog.NewTextHandler(&logged, nil))
		}
		d, err := ddp.Attach(w, m.cost, append(G.Nodes{idle}, append(m.params, side)...), cfg)
		if err != nil {
			return err
		}
		defer d.Close()
		if got := d.Unused(); !slices.Equal(got, []string{"idle", "side"}) {
			return fmt.Errorf("Unused is %v", got)
		}
		if !strings.Contains(d.String(), "not trained: idle side") {
			return fmt.Errorf("the plan does not tell:\n%v", d)
		}
		if n := len(d.Model()); n != len(m.params) {
			return fmt.Errorf("Model has %d parameters, want %d", n, len(m.params))
		}
		vm := G.NewTapeMachine(g, G.BindDualValues(append(m.params, idle, side)...))
		defer vm.Close()
		if err := m.let(mlp, indices(0, 3)); err != nil {
			return err
		}
		if err := vm.RunAll(); err != nil {
			return err
		}
		return G.NewVanillaSolver().Step(d.Model())
	})
	if s := logged.String(); !strings.Contains(s, "idle side") || strings.Count(s, "\n") != 1 {
		t.Errorf("rank 0 logged %q, want one line naming idle and side", s)
	}
}

// TestEvaluationNeedsNoOtherRank runs the forward part alone, on one rank only.
func TestEvaluationNeedsNoOtherRank(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		a, err := attach(w, norm, 3, ddp.Config{}, 0)
		if err != nil {
			return err
		}
		before, err := weights(a.m.params)
		if err != nil {
			return err
		}
		if w.Rank() == 1 {
			ops := len(w.Recorder().Records())
			vm := G.NewTapeMachine(a.m.cost.Graph().SubgraphRoots(a.m.cost), G.EvalMode())
			defer vm.Close()
			if err := a.m.let(norm, indices(0, 3)); err != nil {
				return err
			}
			if err := vm.RunAll(); err != nil {
				return err
			}
			if n := len(w.Recorder().Records()) - ops; n != 0 {
				return fmt.Errorf("evaluation communicated %d times", n)
			}
		}
		if after, err := weights(a.m.params); err != nil || !slices.Equal(after, before) {
			return fmt.Errorf("evaluation changed the weights (%v)", err)
		}
		if err := a.run(indices(3*w.Rank(), 3*w.Rank()+3)); err != nil {
			return err
		}
		return a.close()
	})
}

// TestParamIsTheHookThatAttachUses builds one use of a parameter with ddp.Param and leaves the
// other to Attach.
func TestParamIsTheHookThatAttachUses(t *testing.T) {
	build := func(explicit bool) *model {
		b := &build{g: G.NewGraph(), dt: gtensor.Float64, rng: newRand(1)}
		x := G.NewMatrix(b.g, b.dt, G.WithName("x"), G.WithShape(3, 4))
		y := G.NewMatrix(b.g, b.dt, G.WithName("y"), G.WithShape(3, 4))
		w := b.param("w", 4, 4)
		used := w
		if explicit {
			used = G.Must(ddp.Param(w))
			if again := G.Must(ddp.Param(w)); again != used {
				panic("Param gives two nodes for one parameter")
			}
		}
		h := G.Must(G.Mul(G.Must(G.Tanh(G.Must(G.Mul(x, used)))), w))
		return &model{x: x, y: y, cost: G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(h, y)))))), params: b.params}
	}
	f := family{in: []int{4}, out: 4}
	var got [2][]float64
	for i, explicit := range []bool{false, true} {
		onRanks(t, 1, func(w *dist.World) error {
			m := build(explicit)
			d, err := ddp.Attach(w, m.cost, m.params, ddp.Config{})
			if err != nil {
				return err
			}
			a := &attached{w, m, d, G.NewTapeMachine(m.cost.Graph()), f}
			if err := a.run(indices(0, 3)); err != nil {
				return err
			}
			got[i] = a.grads()
			return a.close()
		})
	}
	if !slices.Equal(got[0], got[1]) {
		t.Errorf("gradients differ: %v, %v", got[0], got[1])
	}
	if _, err := ddp.Param(nil); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("Param(nil) is %v", err)
	}
}

func TestScalarParametersAreTrained(t *testing.T) {
	for _, machine := range []int{0, 1} {
		onRanks(t, 2, func(w *dist.World) error {
			g := G.NewGraph()
			x := G.NewVector(g, G.Float32, G.WithName("x"), G.WithShape(2))
			slope := G.NewScalar(g, G.Float32, G.WithName("slope"), G.WithValue(float32(3+w.Rank())))
			shift := G.NewScalar(g, G.Float32, G.WithName("shift"), G.WithValue(float32(1)))
			cost := G.Must(G.Mean(G.Must(G.Add(G.Must(G.Mul(x, slope)), shift))))
			d, err := ddp.Attach(w, cost, G.Nodes{slope, shift}, ddp.Config{})
			if err != nil {
				return err
			}
			m := &model{x: x, y: x, cost: cost, params: G.Nodes{slope, shift}}
			vm, err := machines[machine].make(m, d.Grads())
			if err != nil {
				return err
			}
			defer vm.Close()
			at := float32(2 * w.Rank())
			if err := G.Let(x, gtensor.New(gtensor.WithBacking([]float32{at, at + 1}))); err != nil {
				return err
			}
			if err := vm.RunAll(); err != nil {
				return err
			}
			if err := G.NewVanillaSolver(G.WithLearnRate(1)).Step(d.Model()); err != nil {
				return err
			}
			// mean(x) over both ranks is (0+1+2+3)/4; both started from rank 0's slope of 3.
			if got := slope.Value().Data().(float32); got != 3-1.5 {
				return fmt.Errorf("slope is %v, want 1.5", got)
			}
			if got := shift.Value().Data().(float32); got != 0 {
				return fmt.Errorf("shift is %v, want 0", got)
			}
			return d.Close()
		})
	}
}

func TestCloseKeepsGradientsReadable(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		a, err := attach(w, mlp, 3, ddp.Config{}, 0)
		if err != nil {
			return err
		}
		if err := a.run(indices(0, 3)); err != nil {
			return err
		}
		before := a.grads()
		for range 2 {
			if err := a.d.Close(); err != nil {
				return err
			}
		}
		if !slices.Equal(a.grads(), before) {
			return errors.New("Close changed the gradients")
		}
		if err := a.run(indices(0, 3)); !errors.Is(ops.Cause(err), dist.ErrClosed) {
			return fmt.Errorf("RunAll after Close is %v, want ErrClosed", err)
		}
		return a.vm.Close()
	})
}

// TestAClosedWorldHasFreedTheBuckets runs and closes after the world has gone: nothing may touch
// its heap.
func TestAClosedWorldHasFreedTheBuckets(t *testing.T) {
	onRanks(t, 1, func(w *dist.World) error {
		a, err := attach(w, mlp, 3, ddp.Config{}, 0)
		if err != nil {
			return err
		}
		if err := a.run(indices(0, 3)); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		if err := a.run(indices(0, 3)); !errors.Is(ops.Cause(err), dist.ErrClosed) {
			return fmt.Errorf("RunAll is %v, want ErrClosed", err)
		}
		if err := a.d.NoSync(func() error { return a.run(indices(0, 3)) }); !errors.Is(ops.Cause(err), dist.ErrClosed) {
			return fmt.Errorf("RunAll inside NoSync is %v, want ErrClosed", err)
		}
		if err := a.close(); err != nil {
			return err
		}
		if g := a.grads(); len(g) == 0 || slices.ContainsFunc(g, func(x float64) bool { return x != 0 }) {
			return fmt.Errorf("the gradients are %v, want zeros", g)
		}
		return nil
	})
}
