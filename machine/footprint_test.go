package machine_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/machine/machinetest"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
)

// TestForeseeIsWhatAMachineHas compares the prediction with a machine that was made and run.
func TestForeseeIsWhatAMachineHas(t *testing.T) {
	for _, rows := range []int{2, 8} {
		host := plain
		host.Device = machine.CPU
		foreseen, err := machine.Foresee(small(rows).g, host)
		if err != nil {
			t.Fatal(err)
		}
		if made, err := machine.Foresee(small(rows).g, plain); err != nil || !reflect.DeepEqual(made, foreseen) { // by a machine
			t.Errorf("%d rows: %+v (%v), foreseen %+v", rows, made, err, foreseen)
		}
		n := small(rows)
		m := newMachine(t, n.g, plain)
		if err := m.RunAll(); err != nil {
			t.Fatal(err)
		}
		got := m.Footprint()
		if got.Total() != foreseen.Total() || got.Arena != foreseen.Arena || got.Scratch != foreseen.Scratch || len(got.Moments) != 0 {
			t.Errorf("%d rows: %+v, foreseen %+v", rows, got, foreseen)
		}
		if got.Outputs < 4*int64(n.params[0].Shape().TotalSize()) { // gradients are outputs here
			t.Errorf("%d rows: outputs of %d B", rows, got.Outputs)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		if f := m.Footprint(); f.Total() != 0 {
			t.Errorf("a closed machine has %+v", f)
		}
	}
}

// TestForeseeForAGPUNeedsNone compiles training for a GPU, with the update in it, on a rank of the
// host.
func TestForeseeForAGPUNeedsNone(t *testing.T) {
	rule := optim.Config{Name: optim.Adam, ClipNorm: 1}
	for _, r := range []*optim.Config{nil, &rule} {
		onRanks(t, 1, func(w *dist.World) error {
			n, _, _ := share(bare, 4, 0, 1)
			d, err := ddp.Attach(w, n.cost, n.params, ddp.Config{})
			if err != nil {
				return err
			}
			f, err := machine.Foresee(n.g, machine.Config{Device: machine.CUDA, Solver: r}, append(gorgonia.Nodes{n.cost}, d.Grads()...)...)
			if err != nil {
				return err
			}
			var names []string
			for _, m := range f.Moments {
				names = append(names, m.Kind.String()+" "+m.Name)
			}
			if got, want := strings.Join(names, ", "), "allreduce sum of weights, allreduce bucket 0"; got != want {
				t.Errorf("communicates %s, want %s", got, want)
			}
			want := int64(0) // inputs twice, since one is copied while the other is read
			for _, in := range n.g.Inputs() {
				if in.IsVar() && !n.params.Contains(in) {
					want += 2 * int64(in.Value().MemSize())
				}
			}
			if f.Inputs != want || f.Arena <= 0 || f.Arena%256 != 0 || f.Scratch <= 0 || f.Gradients != 0 {
				t.Errorf("%+v, want inputs of %d B", f, want)
			}
			if f.Outputs < 4 || f.Outputs > 64 { // the cost, and what the update measures: gradients are in the bucket
				t.Errorf("outputs of %d B", f.Outputs)
			}
			return d.Close()
		})
	}
}

// TestForeseeChoosesTraining: with Eval a program drops nothing, on the host and on a GPU. Then it
// needs no memory for the result.
func TestForeseeChoosesTraining(t *testing.T) {
	for _, on := range []machine.Device{machine.CPU, machine.CUDA} {
		foreseen := func(eval, drops bool) machine.Footprint {
			g := gorgonia.NewGraph()
			x := gorgonia.NewMatrix(g, gorgonia.Float32, gorgonia.WithName("x"), gorgonia.WithShape(4, 300))
			w := gorgonia.NewMatrix(g, gorgonia.Float32, gorgonia.WithName("w"), gorgonia.WithShape(300, 2))
			h := x
			if drops {
				h = gorgonia.Must(gorgonia.Dropout(x, 0.5))
			}
			f, err := machine.Foresee(g, machine.Config{Device: on, Eval: eval}, gorgonia.Must(gorgonia.Mul(h, w)))
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		without := foreseen(true, false)
		if f := foreseen(true, true); !reflect.DeepEqual(f, without) {
			t.Errorf("%s: evaluation with dropout has %+v, want %+v as without", on, f, without)
		}
		if f := foreseen(false, true); f.Arena <= without.Arena {
			t.Errorf("%s: training has an arena of %d B, evaluation of %d B", on, f.Arena, without.Arena)
		}
	}
}

// TestForeseenInputsOnAGPU compares with the inputs of models: updates and random numbers have
// none.
func TestForeseenInputsOnAGPU(t *testing.T) {
	rule := optim.Config{Name: optim.Momentum, Momentum: 0.9}
	for _, builder := range machinetest.Models() {
		model, err := builder.New(machinetest.Config{})
		if err != nil {
			t.Fatal(err)
		}
		want := int64(0)
		for _, n := range model.Inputs {
			want += 2 * int64(n.Value().MemSize())
		}
		f, err := machine.Foresee(model.Graph, machine.Config{Device: machine.CUDA, Solver: &rule}, model.Outputs()...)
		if err != nil {
			t.Fatal(err)
		}
		if f.Inputs != want {
			t.Errorf("%s: inputs of %d B, want %d", builder.Name, f.Inputs, want)
		}
	}
}

func TestForeseeRefuses(t *testing.T) {
	if _, err := machine.Foresee(nil, machine.Config{Device: machine.CUDA}); err == nil || !strings.Contains(err.Error(), "no graph") {
		t.Errorf("no graph: %v", err)
	}
	if _, err := machine.Foresee(small(2).g, machine.Config{Device: "moon"}); !errors.Is(err, machine.ErrDevice) {
		t.Errorf("another device: %v", err)
	}
	alone := gorgonia.NewGraph() // of an input: nothing is computed
	gorgonia.NewScalar(alone, gorgonia.Float32, gorgonia.WithName("x"), gorgonia.WithValue(float32(1)))
	if f, err := machine.Foresee(alone, machine.Config{Device: machine.CUDA}); err != nil || f.Arena+f.Outputs != 0 {
		t.Errorf("an input alone: %+v, %v", f, err)
	}
	empty := gorgonia.NewGraph()
	if _, err := machine.Foresee(empty, machine.Config{Device: machine.CUDA}); err == nil || !strings.Contains(err.Error(), "no outputs") {
		t.Errorf("no outputs: %v", err)
	}
}

// TestModelForesees checks the inputs of the model and the plan for all ranks.
func TestModelForesees(t *testing.T) {
	onRanks(t, 2, func(w *dist.World) error {
		n, _, _ := share(bare, 4, w.Rank(), 2)
		want := int64(0)
		for _, in := range n.g.Inputs() {
			if in.IsVar() && !n.params.Contains(in) {
				want += int64(in.Value().MemSize())
			}
		}
		f, err := machine.Model{Cost: n.cost, Params: n.params}.Foresee(w, ddp.Config{Stage: 2}, plain)
		if err != nil {
			return err
		}
		if f.Inputs != want || f.Plan.Stage != 2 || f.Footprint.Arena == 0 || len(f.Footprint.Moments) == 0 || f.Footprint.Moments[0].Name != "begin" {
			t.Errorf("%+v, want inputs of %d B", f, want)
		}
		return nil
	})
}

// TestForeseenTrainingIsWhatRuns attaches and compiles the same model with memory, at every stage,
// and with outputs, accumulation and dual values.
func TestForeseenTrainingIsWhatRuns(t *testing.T) {
	for stage := range 4 {
		for _, dual := range []bool{false, true}[:max(1, 2-stage)] { // sharded gradients have none
			onRanks(t, 2, func(w *dist.World) error {
				cfg, exchange := plain, ddp.Config{Stage: stage}
				cfg.DualValues = dual
				n, _, _ := share(bare, 4, w.Rank(), 2)
				f, err := machine.Model{Cost: n.cost, Params: n.params}.Foresee(w, exchange, cfg)
				if err != nil {
					return err
				}
				n, _, _ = share(bare, 4, w.Rank(), 2)
				d, err := ddp.Attach(w, n.cost, n.params, exchange)
				if err != nil {
					return err
				}
				m, err := machine.New(n.g, cfg, append(gorgonia.Nodes{n.cost}, d.Grads()...)...)
				if err != nil {
					return err
				}
				if got := m.Footprint(); !reflect.DeepEqual(got, f.Footprint) {
					t.Errorf("stage %d, dual values %v: %+v, foreseen %+v", stage, dual, got, f.Footprint)
				}
				return errors.Join(m.Close(), d.Close())
			})
		}
	}
}

// TestForeseenMessagesAreNotInTheArena compiles training for a GPU with narrow gradients: their
// messages are in ddp's memory, which its plan counts, and not in the arena.
func TestForeseenMessagesAreNotInTheArena(t *testing.T) {
	rule := optim.Config{Name: optim.Adam}
	for stage := range 4 {
		var arenas []int64
		for _, wire := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16} {
			onRanks(t, 1, func(w *dist.World) error {
				n, _, _ := share(bare, 4, 0, 1)
				exchange := ddp.Config{Stage: stage, WireDType: wire, BucketMB: 1.0 / 1024, FirstBucketMB: 1.0 / 1024}
				f, err := machine.Model{Cost: n.cost, Params: n.params}.Foresee(w, exchange, machine.Config{Device: machine.CUDA, Solver: &rule})
				arenas = append(arenas, f.Footprint.Arena)
				return err
			})
		}
		if arenas[0] <= 0 || arenas[1] != arenas[0] || arenas[2] != arenas[0] {
			t.Errorf("stage %d: arenas of %d B with gradients of f32, bf16 and f16", stage, arenas)
		}
	}
}
