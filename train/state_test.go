package train_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/dist/backend"
	"github.com/symgrad/symgrad/dist/ddp"
	"github.com/symgrad/symgrad/dist/ddp/compress"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/optim"
	"github.com/symgrad/symgrad/tensor"
	"github.com/symgrad/symgrad/train"
)

// script is a training of the tests with a loop of its own: a linear map of 6 to 5 values, batches
// of 12 of 60 samples.
type script struct {
	exchange ddp.Config
	rule     optim.Config
	scaled   bool // with a dynamic loss scale
	compiled bool // by package machine
	forgets  bool // saves without the sampler
	loads    bool // reads samples ahead
}

// train trains up to a step, from the newest checkpoint in dir, and saves after step 4.
//
// Returns: the bits of the weights of each rank.
func (s script) train(t *testing.T, dir string, ranks, steps int) ([][]float32, error) {
	t.Helper()
	all := make([][]float32, ranks)
	var mu sync.Mutex
	err := backend.Simulate(ranks, backend.Config{}, func(world *dist.World) error {
		weights, err := s.rank(world, dir, steps)
		mu.Lock()
		defer mu.Unlock()
		all[world.Rank()] = weights
		return err
	})
	return all, err
}

// building is held while a graph is built: Gorgonia has counters without locks.
var building sync.Mutex

// graph returns inputs, parameters and cost for so many rows.
func graph(rows int) (x, y, w, b, cost *G.Node) {
	building.Lock()
	defer building.Unlock()
	g := G.NewGraph()
	x = G.NewMatrix(g, G.Float32, G.WithName("x"), G.WithShape(rows, 6))
	y = G.NewMatrix(g, G.Float32, G.WithName("y"), G.WithShape(rows, 5))
	w = G.NewMatrix(g, G.Float32, G.WithName("w"), G.WithShape(6, 5), G.WithInit(G.Zeroes()))
	b = G.NewMatrix(g, G.Float32, G.WithName("b"), G.WithShape(1, 5), G.WithInit(G.Zeroes()))
	sum := G.Must(G.BroadcastAdd(G.Must(G.Mul(x, w)), b, nil, []byte{0}))
	return x, y, w, b, G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(sum, y))))))
}

func (s script) rank(world *dist.World, dir string, steps int) (weights []float32, err error) {
	x, y, w, b, cost := graph(12 / world.Size())
	g := cost.Graph()
	d, err := ddp.Attach(world, cost, G.Nodes{w, b}, s.exchange)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	solver, err := d.NewSolver(s.rule)
	if err != nil {
		return nil, err
	}
	state := train.State{World: world, DDP: d, Solver: solver}
	var vm G.VM = G.NewTapeMachine(g, G.BindDualValues(w, b))
	if s.compiled {
		m, err := machine.New(g, machine.Config{}, append(G.Nodes{cost}, d.Grads()...)...)
		if err != nil {
			return nil, err
		}
		vm, state.Machine = m, m
	}
	defer vm.Close()
	if s.scaled {
		if state.Scaler, err = optim.NewLossScaler(optim.LossScalerConfig{Scale: 8}); err != nil {
			return nil, err
		}
	}
	if err = s.order(&state); err != nil {
		return nil, err
	} else if s.loads {
		defer func() { err = errors.Join(err, state.Loader.Close()) }()
	}
	first, err := train.Resume(dir, state)
	for step := first + 1; err == nil && step <= steps; step++ {
		err = let(state, x, y)
		if err == nil {
			err = vm.RunAll()
		}
		if err == nil {
			err = solver.Step(d.Model())
		}
		vm.Reset()
		if state.Scaler != nil {
			state.Scaler.Update(step == 3)
		}
		if err == nil && step == 4 {
			err = s.save(dir, step, state)
		}
	}
	if err == nil {
		err = d.Consolidate()
	}
	for _, n := range []*G.Node{w, b} {
		weights = append(weights, n.Value().Data().([]float32)...)
	}
	if state.Scaler != nil {
		weights = append(weights, float32(state.Scaler.Scale()))
	}
	return weights, err
}

// order sets the order of the samples.
func (s script) order(state *train.State) (err error) {
	state.Sampler, err = data.NewSampler(data.SamplerConfig{
		Samples: 60, GlobalBatch: 12, Rank: state.World.Rank(), Size: state.World.Size(), Seed: 3, Shuffle: true,
	})
	if err == nil && s.loads {
		state.Loader, err = data.NewLoader(data.LoaderConfig{Dataset: lines{}, Order: state.Sampler, Workers: 2})
		state.Sampler = nil
	}
	return err
}

// let sets the inputs to the next batch.
func let(state train.State, x, y *G.Node) error {
	if state.Loader == nil {
		samples := state.Sampler.Next().Indices
		return errors.Join(G.Let(x, values(samples, 6)), G.Let(y, values(samples, 5)))
	}
	rows, err := state.Loader.Next()
	if err != nil {
		return err
	}
	return errors.Join(G.Let(x, rows.Tensor(0)), G.Let(y, rows.Tensor(1)))
}

func (s script) save(dir string, step int, state train.State) error {
	if s.forgets {
		state.Sampler = nil
	}
	state.Extra = map[string]json.RawMessage{"model": json.RawMessage(`{"width": 6}`), "train": json.RawMessage(`"taken"`)}
	return train.Save(dir, step, state)
}

// values are the values of samples, so many each.
func values(samples []int, width int) *gtensor.Dense {
	data := make([]float32, len(samples)*width)
	for i := range data {
		data[i] = float32((samples[i/width]*width+i%width)*37%101) / 101
	}
	return gtensor.New(gtensor.WithShape(len(samples), width), gtensor.WithBacking(data))
}

// lines is the data set of the values.
type lines struct{}

func (lines) Len() int { return 60 }

func (lines) Fields() []data.Field {
	return []data.Field{{Name: "x", DType: gtensor.Float32, Shape: []int{6}}, {Name: "y", DType: gtensor.Float32, Shape: []int{5}}}
}

func (lines) Read(i, _ int, row []data.Values) error {
	for _, v := range row {
		copy(v.Float32, values([]int{i}, len(v.Float32)).Float32s())
	}
	return nil
}

// A script that reads its samples ahead has the bits of one that does not, and so when it resumes.
func TestScriptResumesItsLoader(t *testing.T) {
	s := script{rule: optim.Config{Name: optim.Adam, LearningRate: 0.01}}
	want, err := s.train(t, t.TempDir(), 2, 8)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, loads := range []bool{true, true, false} { // the last one resumes from the loader's position
		s.loads = loads
		if got, err := s.train(t, dir, 2, 8); err != nil || !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("loads %v: %v, or other bits", loads, err)
		}
	}
}

// A script that resumes has the bits of one that did not stop, with all that ddp and optim keep.
func TestScriptResumesWithTheSameBits(t *testing.T) {
	for _, rule := range []string{optim.SGD, optim.Momentum, optim.Adam, optim.AdamW, optim.LAMB, optim.Lion} {
		for _, decay := range []float64{0, 0.9} {
			r := optim.Config{Name: rule, LearningRate: 0.01, EMADecay: decay}
			if rule == optim.Momentum {
				r.Momentum = 0.9
			}
			resumes(t, fmt.Sprintf("%s, EMA %v", rule, decay), script{rule: r})
		}
	}
	adam := optim.Config{Name: optim.Adam, LearningRate: 0.01}
	for stage := range 4 {
		resumes(t, fmt.Sprintf("stage %d", stage), script{rule: adam, exchange: ddp.Config{Stage: stage}})
	}
	resumes(t, "bf16", script{rule: adam, exchange: ddp.Config{WireDType: tensor.BF16, ErrorFeedback: true}})
	resumes(t, "powersgd", script{rule: adam, exchange: ddp.Config{Hook: compress.PowerSGD{Rank: 2, Seed: 1}}})
	resumes(t, "local steps", script{rule: adam, exchange: ddp.Config{LocalSteps: 2}})
	resumes(t, "loss scale", script{rule: adam, scaled: true})
	resumes(t, "compiled", script{rule: adam, compiled: true})
}

func resumes(t *testing.T, name string, s script) {
	t.Helper()
	dir := t.TempDir()
	want, err := s.train(t, dir, 2, 8)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	got, err := s.train(t, dir, 2, 8)
	if err != nil || !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%s: %v, or other bits after resuming at step 4: %.8v, want %.8v", name, err, got[0], want[0])
	}
	if _, err := s.train(t, dir, 3, 8); err != nil { // on another number of ranks
		t.Errorf("%s: on 3 ranks: %v", name, err)
	}
}

// All ranks get the error, and the folder does not change.
func TestScriptSaysWhyItCannotResume(t *testing.T) {
	dir := t.TempDir()
	s := script{rule: optim.Config{Name: optim.Adam, LearningRate: 0.01}}
	if _, err := s.train(t, dir, 2, 4); err != nil {
		t.Fatal(err)
	}
	s.rule.Name = optim.SGD
	if _, err := s.train(t, dir, 2, 8); err == nil || !strings.Contains(err.Error(), `the state is of "adam"`) {
		t.Errorf("another rule: %v", err)
	}
	s = script{rule: optim.Config{Name: optim.Adam, LearningRate: 0.01}, forgets: true}
	unordered, unfinished := t.TempDir(), t.TempDir()
	if _, err := s.train(t, unordered, 2, 4); err != nil {
		t.Fatal(err)
	}
	s.forgets = false
	if _, err := s.train(t, unordered, 2, 8); err == nil || !strings.Contains(err.Error(), "saved without a sampler") {
		t.Errorf("with a sampler: %v", err)
	}
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.train(t, broken, 2, 8); err == nil {
		t.Error("a file is no folder of checkpoints")
	}
	paths, err := checkpoint.List(dir)
	if err != nil || len(paths) != 1 {
		t.Fatalf("%v, %v", paths, err)
	}
	if err := os.Mkdir(filepath.Join(unfinished, "step-00000004.tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.train(t, unfinished, 2, 2); err != nil {
		t.Errorf("a first checkpoint that was not finished: %v", err)
	}
	if err := os.Truncate(filepath.Join(paths[0], "manifest.json"), 10); err != nil {
		t.Fatal(err)
	}
	if _, err := s.train(t, dir, 2, 8); err == nil || !strings.Contains(err.Error(), "move them away to begin a new training") {
		t.Errorf("a damaged checkpoint: %v", err)
	}
}

// A run with settings cannot know whether a script trained the same problem.
func TestRunRefusesTheCheckpointOfAScript(t *testing.T) {
	dir := t.TempDir()
	s := script{rule: optim.Config{Name: optim.Adam, LearningRate: 0.01}}
	if _, err := s.train(t, dir, 2, 4); err != nil {
		t.Fatal(err)
	}
	p := train.Program{Name: "line", Open: func(*config.Config) (train.Problem, error) { return line{}, nil }}
	var errs strings.Builder
	code := p.Execute([]string{
		"--set", "comm.backend=sim", "--set", "run.output_dir=" + t.TempDir(), "--set", "checkpoint.dir=" + dir, "--set", "data.global_batch=16",
	}, io.Discard, &errs)
	if code != train.ExitUsage || !strings.Contains(errs.String(), "a script wrote it, by train.Save") {
		t.Errorf("code %d, %s", code, errs.String())
	}
}

// noSolver is a solver that is not used.
type noSolver struct{ optim.Solver }

func TestStatesWithoutARequiredFieldAreRefused(t *testing.T) {
	both := train.State{World: new(dist.World), DDP: new(ddp.DDP), Solver: noSolver{}, Sampler: new(data.Sampler), Loader: new(data.Loader)}
	if err := train.Save(t.TempDir(), 1, both); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "leave out Sampler") {
		t.Errorf("a sampler and a loader: %v", err)
	}
	err := train.Save(t.TempDir(), 1, train.State{})
	_, resumed := train.Resume(t.TempDir(), train.State{})
	for _, err := range []error{err, resumed} {
		if !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "State.World is nil") {
			t.Errorf("error %v, want ErrInvalid and State.World", err)
		}
	}
}

// A checkpoint has the values of a script for other programs, in addition to those of this package.
func TestExtraIsInTheCheckpoint(t *testing.T) {
	dir := t.TempDir()
	if _, err := (script{rule: optim.Config{Name: optim.SGD, LearningRate: 0.1}}).train(t, dir, 2, 4); err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	extra := c.Manifest().Extra
	var model struct{ Width int }
	if err := json.Unmarshal(extra["model"], &model); err != nil || model.Width != 6 {
		t.Errorf("%s, %v", extra["model"], err)
	}
	if text := string(extra["train"]); !strings.HasPrefix(text, "{") {
		t.Errorf("a script has replaced the state of the run: %s", text)
	}
}
