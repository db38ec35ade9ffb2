package machine_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/internal/gpu/cuda"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/machine/machinetest"
	"github.com/symgrad/symgrad/optim"
)

// gpuTolerance bounds the difference of a GPU's losses, gradients and weights from the tape
// machine's, in float32.
const gpuTolerance = 1e-4

// gpuMomentum has the settings of machinetest.Momentum.
func gpuMomentum() optim.Config {
	return optim.Config{Name: optim.Momentum, LearningRate: 0.02, Momentum: 0.9, KeepGradients: true}
}

// gpuWay is a solver for a machine on a GPU: one of the host, the machine's own, or Config.Solver.
type gpuWay struct {
	cfg    machine.Config
	own    bool
	solver optim.Solver
}

func (h *gpuWay) new(m *machinetest.Model) (gorgonia.VM, error) {
	cfg := h.cfg
	cfg.Name, cfg.Device = m.Name, machine.CUDA
	vm, err := machine.New(m.Graph, cfg, m.Outputs()...)
	if err != nil || !h.own && cfg.Solver == nil {
		return vm, err
	}
	h.solver, err = vm.NewSolver(gpuMomentum())
	return vm, err
}

func (h *gpuWay) options() machinetest.Options {
	o := machinetest.Options{Tolerance: gpuTolerance, TruePooling: true}
	if h.own || h.cfg.Solver != nil {
		o.Sync = func(vm gorgonia.VM, _ *machinetest.Model) error { return vm.(*machine.Machine).Sync() }
		o.Step = func(vm gorgonia.VM, m *machinetest.Model) error {
			if err := h.solver.Step(gorgonia.NodesToValueGrads(m.Learnables)); err != nil {
				return err
			}
			return vm.(*machine.Machine).Sync()
		}
	}
	return o
}

// TestModelsOnAGPUAreThoseOfTheTapeMachine trains ten models for 20 steps.
func TestModelsOnAGPUAreThoseOfTheTapeMachine(t *testing.T) {
	cudatest.Devices(t, 1)
	rule := gpuMomentum()
	for _, way := range []struct {
		name   string
		gpuWay gpuWay
		only   []string // models; nil means all
	}{
		{"solver of the host", gpuWay{}, nil},
		{"solver within", gpuWay{cfg: machine.Config{Solver: &rule}}, nil},
		{"solver of its own", gpuWay{own: true}, []string{"mlp", "lenet"}},
		{"plain", gpuWay{cfg: machine.Config{NoOptimize: true, NoGraph: true}}, []string{"mlp", "lenet"}},
		{"without libraries", gpuWay{cfg: machine.Config{CUBLAS: "none", CUDNN: "none"}}, []string{"mlp", "lenet"}},
	} {
		t.Run(way.name, func(t *testing.T) {
			for _, f := range machinetest.Models() {
				if way.only != nil && !slices.Contains(way.only, f.Name) {
					continue
				}
				t.Run(f.Name, func(t *testing.T) { machinetest.RunModel(t, f, way.gpuWay.new, way.gpuWay.options()) })
			}
		})
	}
}

// gpuNet is a graph with a cost: the mean over rows of the squared error of two layers.
type gpuNet struct {
	g          *gorgonia.ExprGraph
	x, y, cost *gorgonia.Node
	out        *gorgonia.Node
	params     gorgonia.Nodes
}

// Sizes of a gpuNet.
const gpuInputs, gpuHidden, gpuOutputs = 12, 17, 5

func newGPUNet(t testing.TB, rows int) *gpuNet {
	t.Helper()
	p, err := makeGPUNet(rows)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func makeGPUNet(rows int) (p *gpuNet, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("gorgonia: %v", v)
		}
	}()
	g := gorgonia.NewGraph()
	p = &gpuNet{g: g}
	seed := 0.0
	param := func(name string, shape ...int) *gorgonia.Node {
		v := make([]float32, gtensor.Shape(shape).TotalSize())
		for i := range v {
			seed++
			v[i] = float32(math.Sin(seed) / 2)
		}
		n := gorgonia.NewTensor(g, gtensor.Float32, len(shape), gorgonia.WithName(name), gorgonia.WithShape(shape...),
			gorgonia.WithValue(gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(v))))
		p.params = append(p.params, n)
		return n
	}
	p.x = gorgonia.NewMatrix(g, gtensor.Float32, gorgonia.WithName("x"), gorgonia.WithShape(rows, gpuInputs))
	p.y = gorgonia.NewMatrix(g, gtensor.Float32, gorgonia.WithName("y"), gorgonia.WithShape(rows, gpuOutputs))
	h := gorgonia.Must(gorgonia.BroadcastAdd(gorgonia.Must(gorgonia.Mul(p.x, param("w0", gpuInputs, gpuHidden))), param("b0", 1, gpuHidden), nil, []byte{0}))
	h = gorgonia.Must(gorgonia.Rectify(h))
	p.out = gorgonia.Must(gorgonia.BroadcastAdd(gorgonia.Must(gorgonia.Mul(h, param("w1", gpuHidden, gpuOutputs))), param("b1", 1, gpuOutputs), nil, []byte{0}))
	p.cost = gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Sub(p.out, p.y))))))
	return p, nil
}

// feed sets the inputs to the samples of a step, starting at first.
func (p *gpuNet) feed(step, first int) error {
	for i, n := range []*gorgonia.Node{p.x, p.y} {
		rows, width := n.Shape()[0], n.Shape()[1]
		v := make([]float32, rows*width)
		for k := range v {
			v[k] = float32(math.Sin(float64(1+i) * float64(1000*step+(first+k/width)*width+k%width)))
		}
		if err := gorgonia.Let(n, gtensor.New(gtensor.WithShape(rows, width), gtensor.WithBacking(v))); err != nil {
			return err
		}
	}
	return nil
}

// weights returns copies of the parameters.
func (p *gpuNet) weights() [][]float32 {
	var all [][]float32
	for _, n := range p.params {
		all = append(all, slices.Clone(n.Value().Data().([]float32)))
	}
	return all
}

// gpuWorst returns the largest difference of two sets of weights, relative to the largest of a
// tensor.
func gpuWorst(got, want [][]float32) float64 {
	off := 0.0
	for i := range want {
		most, size := 0.0, 0.0
		for k := range want[i] {
			most = math.Max(most, math.Abs(float64(got[i][k])-float64(want[i][k])))
			size = math.Max(size, math.Abs(float64(want[i][k])))
		}
		off = math.Max(off, most/size)
	}
	return off
}

// gpuAlone trains a gpuNet on rows samples with the tape machine and a solver of the host, and
// returns weights and last loss.
func gpuAlone(rows, steps int, c optim.Config) (weights [][]float32, loss float64, err error) {
	p, err := makeGPUNet(rows)
	if err != nil {
		return nil, 0, err
	}
	if _, err := gorgonia.Grad(p.cost, p.params...); err != nil {
		return nil, 0, err
	}
	vm := gorgonia.NewTapeMachine(p.g)
	defer func() { err = errors.Join(err, vm.Close()) }()
	c.KeepGradients = true
	s, err := optim.New(c)
	if err != nil {
		return nil, 0, err
	}
	for step := range steps {
		if err := p.feed(step, 0); err != nil {
			return nil, 0, err
		}
		if err := vm.RunAll(); err != nil {
			return nil, 0, err
		}
		loss = float64(p.cost.Value().Data().(float32))
		if err := s.Step(gorgonia.NodesToValueGrads(p.params)); err != nil {
			return nil, 0, err
		}
		vm.Reset()
	}
	return p.weights(), loss, nil
}

// gpuRules has optimizers with optional settings.
func gpuRules() map[string]optim.Config {
	return map[string]optim.Config{
		"sgd":      {Name: optim.SGD, LearningRate: 0.1, WeightDecay: 0.01},
		"nesterov": {Name: optim.Momentum, LearningRate: 0.05, Nesterov: true, ClipNorm: 0.5},
		"damped":   {Name: optim.Momentum, LearningRate: 0.05, Dampening: 0.5},
		"adam":     {Name: optim.Adam, LearningRate: 0.01},
		"amsgrad":  {Name: optim.Adam, LearningRate: 0.01, AMSGrad: true, ClipNorm: 1},
		"adamw": {Name: optim.AdamW, LearningRate: 0.01, WeightDecay: 0.1, Schedule: optim.Schedule{
			Name: optim.Cosine, WarmupSteps: 5, Steps: 15, MinLearningRate: 1e-4,
		}},
	}
}

// TestSolversOnAGPU compares each rule, in the run and separate, with that of the host over 20
// steps.
func TestSolversOnAGPU(t *testing.T) {
	cudatest.Devices(t, 1)
	const rows, steps = 8, 20
	for name, c := range gpuRules() {
		want, loss, err := gpuAlone(rows, steps, c)
		if err != nil {
			t.Fatal(err)
		}
		for _, within := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/within=%t", name, within), func(t *testing.T) {
				p := newGPUNet(t, rows)
				if _, err := gorgonia.Grad(p.cost, p.params...); err != nil {
					t.Fatal(err)
				}
				cfg := machine.Config{Device: machine.CUDA}
				if within {
					cfg.Solver = &c
				}
				vm, err := machine.New(p.g, cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer vm.Close()
				s, err := vm.NewSolver(c)
				if err != nil {
					t.Fatal(err)
				}
				got := 0.0
				for step := range steps {
					if err := p.feed(step, 0); err != nil {
						t.Fatal(err)
					}
					if err := vm.RunAll(); err != nil {
						t.Fatal(err)
					}
					if got, err = vm.Scalar(p.cost); err != nil {
						t.Fatal(err)
					}
					if err := s.Step(gorgonia.NodesToValueGrads(p.params)); err != nil {
						t.Fatal(err)
					}
				}
				if err := vm.Sync(); err != nil {
					t.Fatal(err)
				}
				if d := gpuWorst(p.weights(), want); !(d <= gpuTolerance) {
					t.Errorf("weights differ by %v", d)
				}
				if !(math.Abs(got-loss) <= gpuTolerance*math.Max(1, loss)) {
					t.Errorf("the last loss is %v, want %v", got, loss)
				}
				if s.Steps() != steps {
					t.Errorf("%d steps, want %d", s.Steps(), steps)
				}
			})
		}
	}
}

// gpuTrain makes steps, starting at first.
func gpuTrain(t *testing.T, p *gpuNet, vm *machine.Machine, s optim.Solver, first, n int) {
	t.Helper()
	for step := first; step < first+n; step++ {
		if err := p.feed(step, 0); err != nil {
			t.Fatal(err)
		}
		if err := vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		if err := s.Step(gorgonia.NodesToValueGrads(p.params)); err != nil {
			t.Fatal(err)
		}
	}
	if err := vm.Sync(); err != nil {
		t.Fatal(err)
	}
}

// TestAStateOfAGPUGoesOnOnTheHost saves after ten steps on the device and makes ten more on the
// host, and the reverse.
func TestAStateOfAGPUGoesOnOnTheHost(t *testing.T) {
	cudatest.Devices(t, 1)
	c := optim.Config{Name: optim.Adam, LearningRate: 0.01, KeepGradients: true}
	want, _, err := gpuAlone(8, 20, c)
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range [][2]machine.Device{{machine.CUDA, machine.CPU}, {machine.CPU, machine.CUDA}} {
		t.Run(fmt.Sprintf("%s then %s", order[0], order[1]), func(t *testing.T) {
			var state optim.State
			var weights [][]float32
			for half, device := range order {
				p := newGPUNet(t, 8)
				for i, w := range weights {
					copy(p.params[i].Value().Data().([]float32), w)
				}
				if _, err := gorgonia.Grad(p.cost, p.params...); err != nil {
					t.Fatal(err)
				}
				vm, err := machine.New(p.g, machine.Config{Device: device, BLAS: "none"})
				if err != nil {
					t.Fatal(err)
				}
				s, err := vm.NewSolver(c)
				if err == nil && half == 1 {
					err = s.SetState(state)
				}
				if err != nil {
					t.Fatal(err)
				}
				gpuTrain(t, p, vm, s, 10*half, 10)
				state, weights = s.State(), p.weights()
				if err := vm.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if d := gpuWorst(weights, want); !(d <= gpuTolerance) || state.Steps != 20 {
				t.Errorf("weights differ by %v after %d steps", d, state.Steps)
			}
		})
	}
}

// gpuTrainer returns a machine whose runs update p's parameters by c, and its solver.
func gpuTrainer(t *testing.T, p *gpuNet, c optim.Config) (*machine.Machine, optim.Solver) {
	t.Helper()
	if _, err := gorgonia.Grad(p.cost, p.params...); err != nil {
		t.Fatal(err)
	}
	vm, err := machine.New(p.g, machine.Config{Device: machine.CUDA, Solver: &c})
	if err != nil {
		t.Fatal(err)
	}
	s, err := vm.NewSolver(c)
	if err != nil {
		t.Fatal(errors.Join(err, vm.Close()))
	}
	return vm, s
}

// TestASecondMachineSharesParameters evaluates with the first machine's parameters on the device.
func TestASecondMachineSharesParameters(t *testing.T) {
	cudatest.Devices(t, 1)
	c := optim.Config{Name: optim.SGD, LearningRate: 0.1}
	p, q := newGPUNet(t, 8), newGPUNet(t, 3)
	vm, s := gpuTrainer(t, p, c)
	defer vm.Close()
	eval, err := machine.New(q.g, machine.Config{Share: vm, Eval: true}, q.out)
	if err != nil {
		t.Fatal(err)
	}
	defer eval.Close()
	gpuTrain(t, p, vm, s, 0, 5)
	if err := q.feed(77, 0); err != nil {
		t.Fatal(err)
	}
	if err := eval.RunAll(); err != nil {
		t.Fatal(err)
	}
	got := slices.Clone(q.out.Value().Data().([]float32))
	want := newGPUNet(t, 3)
	var out gorgonia.Value
	gorgonia.Read(want.out, &out) // the tape machine overwrites the value of the node itself
	if err := want.feed(77, 0); err != nil {
		t.Fatal(err)
	}
	for i, w := range p.weights() {
		copy(want.params[i].Value().Data().([]float32), w)
	}
	tape := gorgonia.NewTapeMachine(want.g)
	defer tape.Close()
	if err := tape.RunAll(); err != nil {
		t.Fatal(err)
	}
	if d := gpuWorst([][]float32{got}, [][]float32{out.Data().([]float32)}); !(d <= gpuTolerance) {
		t.Errorf("outputs differ by %v", d)
	}
}

// TestAGraphThatIsTooLargeForAGPU is rejected, with the bytes that it needs.
func TestAGraphThatIsTooLargeForAGPU(t *testing.T) {
	cudatest.Devices(t, 1)
	const n = 1 << 18 // a product of 256 GiB
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, gtensor.Float32, gorgonia.WithName("x"), gorgonia.WithShape(n, 2))
	y := gorgonia.NewMatrix(g, gtensor.Float32, gorgonia.WithName("y"), gorgonia.WithShape(2, n))
	sum := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Tanh(gorgonia.Must(gorgonia.Mul(x, y))))))
	vm, err := machine.New(g, machine.Config{Device: machine.CUDA, Name: "vast"}, sum)
	if err == nil {
		err = errors.Join(errors.New("it was loaded"), vm.Close())
	}
	if !errors.Is(err, cuda.ErrMemory) || !strings.Contains(err.Error(), "vast") {
		t.Errorf("got %v", err)
	}
}

// TestAProfileOfAGPU measures the runs of a machine, and then continues to train.
func TestAProfileOfAGPU(t *testing.T) {
	cudatest.Devices(t, 1)
	p := newGPUNet(t, 4)
	if _, err := gorgonia.Grad(p.cost, p.params...); err != nil {
		t.Fatal(err)
	}
	c := optim.Config{Name: optim.Adam}
	vm, err := machine.New(p.g, machine.Config{Device: machine.CUDA, Solver: &c})
	if err != nil {
		t.Fatal(err)
	}
	solver, err := vm.NewSolver(c)
	if err == nil {
		_, err = vm.Profile(5)
	}
	if !errors.Is(err, machine.ErrNoValue) {
		t.Errorf("before the first run: got %v, want %v", err, machine.ErrNoValue)
	}
	if err := vm.Mark(); !errors.Is(err, machine.ErrNoValue) {
		t.Errorf("a mark before the first run: got %v, want %v", err, machine.ErrNoValue)
	}
	if err := p.feed(0, 0); err != nil {
		t.Fatal(err)
	}
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	times, err := vm.Profile(5)
	if err != nil {
		t.Fatal(err)
	}
	steps := solver.Steps()
	if times.Run <= 0 || times.Runs != 5 || len(times.Steps) == 0 || times.Compute <= 0 || times.Comm != 0 || times.Exposed != 0 || steps < 16 {
		t.Errorf("after %d steps: %v", steps, &times)
	}
	for range 3 {
		if err := vm.Mark(); err != nil {
			t.Fatal(err)
		}
		if err := vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		steps++
	}
	if intervals, err := vm.Intervals(); err != nil || len(intervals) != 2 || intervals[0] <= 0 || intervals[1] <= 0 {
		t.Errorf("intervals %v, %v, of runs of %v", intervals, err, times.Run)
	}
	if err := vm.Sync(); err != nil {
		t.Fatal(err)
	}
	if st := solver.State(); st.Steps != steps || len(st.Params) != len(p.params) {
		t.Errorf("the state has %d steps of %d parameters, want %d of %d", st.Steps, len(st.Params), steps, len(p.params))
	}
	if err := vm.Close(); err != nil {
		t.Error(err)
	}
}

// TestMachinesOnAGPULeaveNothing compiles, runs and closes a thousand machines.
func TestMachinesOnAGPULeaveNothing(t *testing.T) {
	v := cudatest.Devices(t, 1)[0]
	cycle := func() {
		p := newGPUNet(t, 4)
		if _, err := gorgonia.Grad(p.cost, p.params...); err != nil {
			t.Fatal(err)
		}
		c := optim.Config{Name: optim.Adam}
		vm, err := machine.New(p.g, machine.Config{Device: machine.CUDA, Solver: &c})
		if err != nil {
			t.Fatal(err)
		}
		for step := range 3 {
			if err := p.feed(step, 0); err != nil {
				t.Fatal(err)
			}
			if err := vm.RunAll(); err != nil {
				t.Fatal(err)
			}
		}
		if err := vm.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		cycle()
	}
	before, _, err := v.Memory()
	if err != nil {
		t.Fatal(err)
	}
	goroutines := runtime.NumGoroutine()
	for range 1000 {
		cycle()
	}
	after, _, err := v.Memory()
	if err != nil {
		t.Fatal(err)
	}
	if before-after > 32<<20 {
		t.Errorf("%d B of the device's memory are gone", before-after)
	}
	if now := runtime.NumGoroutine(); now > goroutines+2 {
		t.Errorf("%d goroutines, %d before", now, goroutines)
	}
}
