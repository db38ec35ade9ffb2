package machinetest

import (
	"errors"
	"math"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
)

// pair returns two equal records of a model with one parameter.
func pair() (want, got *Record) {
	make := func() *Record {
		return &Record{
			Model: "m", Params: []string{"w"}, Losses: []float64{2, 1},
			Grads:   [][][]float64{{{1, -4}}, {{0.5, 2}}},
			Weights: [][]float64{{3, 4}}, Stats: [][]float64{{1}, {2}},
		}
	}
	return make(), make()
}

func TestDifferencesNameWhatDiffers(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r *Record)
		tol    float64
		want   string
	}{
		{"nothing", func(*Record) {}, 0, ""},
		{"loss", func(r *Record) { r.Losses[1] += 1e-9 }, 0, "model m: step 1: loss: 1 of 1 elements differ; [0] is 1"},
		{"loss within", func(r *Record) { r.Losses[1] += 1e-9 }, 1e-6, ""},
		{"gradient", func(r *Record) { r.Grads[0][0][1] = -4.1 }, 1e-2, "step 0: gradient of w: 1 of 2 elements differ; [1] is -4.1, want -4"},
		{"gradient within", func(r *Record) { r.Grads[0][0][0] += 0.03 }, 1e-2, ""},
		{"weights", func(r *Record) { r.Weights[0][0] = 2 }, 1e-2, "weights of w after the last step"},
		{"statistics", func(r *Record) { r.Stats[1][0] = 3 }, 1e-2, "running variance of batch normalization 0"},
		{"NaN", func(r *Record) { r.Losses[0] = math.NaN() }, 1, "[0] is NaN, want 2"},
		{"steps", func(r *Record) { r.Losses = r.Losses[:1] }, 1, "steps"},
		{"length", func(r *Record) { r.Weights[0] = r.Weights[0][:1] }, 1, "1 elements, want 2"},
	} {
		want, got := pair()
		c.change(got)
		text := strings.Join(Differences(want, got, c.tol, false), "\n")
		if c.want == "" && text != "" || !strings.Contains(text, c.want) {
			t.Errorf("%s: %q, want %q", c.name, text, c.want)
		}
	}
	want, got := pair()
	got.Stats[0][0] = 7
	if lines := Differences(want, got, 0, true); len(lines) > 0 {
		t.Errorf("statistics are compared though they are to be ignored: %v", lines)
	}
}

// TestOracleFindsWrongDropout uses a p other than 0.5, for which Gorgonia's backward pass is wrong
// and the oracle with masks is right.
func TestOracleFindsWrongDropout(t *testing.T) {
	f, err := Find("lenet-dropout")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Probability: 0.2, Steps: 1}
	m, err := f.New(o.config())
	if err != nil {
		t.Fatal(err)
	}
	got, err := Train(m, Tape, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Oracle(f, o, got.Masks)
	if err != nil {
		t.Fatal(err)
	}
	if want.Losses[0]-got.Losses[0] > 1e-5 || got.Losses[0]-want.Losses[0] > 1e-5 {
		t.Errorf("loss %v, with the same masks as an input %v", got.Losses[0], want.Losses[0])
	}
	text := strings.Join(Differences(want, got, 1e-3, false), "\n")
	if !strings.Contains(text, "gradient of conv1") || strings.Contains(text, "gradient of fc2.bias") {
		t.Errorf("want wrong gradients in front of the dropouts and right ones behind: %s", text)
	}
	if lines := judgeMasks(got, 0, 0.2, m.Rows()); len(lines) > 0 {
		t.Errorf("forward it keeps the right share: %v", lines)
	}
}

// TestOracleFindsWrongPooling: the op divides by the width of its input, here 8, and its window has
// 9 elements.
func TestOracleFindsWrongPooling(t *testing.T) {
	f, err := Find("avgpool")
	if err != nil {
		t.Fatal(err)
	}
	var records [2]*Record
	for i, right := range []bool{false, true} {
		if records[i], err = Oracle(f, Options{TruePooling: right, Steps: 1}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(Differences(records[0], records[1], 1e-3, false)) == 0 {
		t.Error("Gorgonia's average pooling is right: the second oracle can go")
	}
}

func TestJudgeMasks(t *testing.T) {
	half := [][]float64{{2, 0, 0, 2}}
	other := [][]float64{{0, 2, 2, 2}}
	for _, c := range []struct {
		name  string
		masks [][][]float64
		drawn Drawn
		want  string
	}{
		{"good", [][][]float64{half, other}, Drawn{50, 100}, ""},
		{"share", [][][]float64{half, other}, Drawn{80, 100}, "kept 80 of 100 elements, a share of 0.8000; want 0.5000 within 0.25"},
		{"steps", [][][]float64{half, half}, Drawn{50, 100}, "all steps had one mask"},
		{"rows", [][][]float64{{{2, 0, 2, 0}}, {{0, 2, 0, 2}}}, Drawn{50, 100}, "all samples had one mask"},
		{"zeros", [][][]float64{half}, Drawn{}, "every input is zero"},
	} {
		text := strings.Join(judgeMasks(&Record{Masks: c.masks, Drawn: []Drawn{c.drawn}}, 0, 0.5, 2), "; ")
		if c.want == "" && text != "" || !strings.Contains(text, c.want) {
			t.Errorf("%s: %q, want %q", c.name, text, c.want)
		}
	}
}

// broken is a machine that fails at its third run.
type broken struct {
	G.VM
	runs int
}

var errBroken = errors.New("it broke")

func (b *broken) RunAll() error {
	if b.runs++; b.runs == 3 {
		return errBroken
	}
	return b.VM.RunAll()
}

func TestTrainNamesModelAndStep(t *testing.T) {
	m, err := Models()[0].New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Train(m, func(m *Model) (G.VM, error) {
		vm, err := Tape(m)
		return &broken{VM: vm}, err
	}, Options{}, nil)
	if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "model mlp: step 2: ") {
		t.Errorf("%v", err)
	}
	_, err = Train(m, func(*Model) (G.VM, error) { return nil, errBroken }, Options{}, nil)
	if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "model mlp: new machine: ") {
		t.Errorf("%v", err)
	}
}

func TestHooksReplaceSolver(t *testing.T) {
	f := Models()[0]
	m, err := f.New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	synced, stepped := 0, 0
	r, err := Train(m, Tape, Options{
		Steps: 4,
		Sync:  func(G.VM, *Model) error { synced++; return nil },
		Step:  func(G.VM, *Model) error { stepped++; return nil },
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if synced != 4 || stepped != 4 {
		t.Errorf("synced %d times, stepped %d times, want 4", synced, stepped)
	}
	same, err := f.New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := elements(same.Learnables[0].Value())
	if err != nil {
		t.Fatal(err)
	}
	for i := range w {
		if r.Weights[0][i] != w[i] {
			t.Fatal("weights changed without a step")
		}
	}
}

func TestBatchesOfAnySizeHaveTheSameSamples(t *testing.T) {
	x := func(rows, step int) []float64 {
		m, err := Models()[0].New(Config{Rows: rows})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Feed(step); err != nil {
			t.Fatal(err)
		}
		v, err := elements(m.Inputs[0].Value())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	whole, second := x(8, 0), x(4, 1)
	for i, v := range second {
		if v != whole[len(second)+i] {
			t.Fatalf("element %d of the second half batch is %v, of the whole batch %v", i, v, whole[len(second)+i])
		}
	}
}

func TestFindNamesWhatThereIs(t *testing.T) {
	if f, err := Find("conv"); err != nil || f.Name != "conv" {
		t.Errorf("%v, %v", f.Name, err)
	}
	if _, err := Find("rnn"); err == nil || !strings.Contains(err.Error(), "lenet-batchnorm") {
		t.Errorf("%v", err)
	}
}
