package train

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
)

// streamed is the problem patterns as a data set: its fields are the image and the one-hot label.
type streamed struct {
	*patterns
	broken int // sample that cannot be read; 0 for none
}

func (s streamed) Dataset() data.Dataset { return patternSet{s} }

func (s streamed) Set(m *Model, rows *data.Rows) error {
	w := m.Inputs[2].Value().Data().([]float32)
	clear(w)
	for i := range rows.Len() {
		w[i] = 1 / float32(rows.Len())
	}
	return LetRows(m, rows)
}

// patternSet is the data set.
type patternSet struct{ streamed }

func (patternSet) Fields() []data.Field {
	return []data.Field{
		{Name: "image", DType: gtensor.Float32, Shape: []int{side * side}},
		{Name: "class", DType: gtensor.Float32, Shape: []int{testClasses}},
	}
}

func (s patternSet) Read(i, _ int, row []data.Values) error {
	if s.broken > 0 && i == s.broken {
		return errors.New("images.bin: damaged at byte 7")
	}
	copy(row[0].Float32, s.images[i])
	return data.OneHot(row[1].Float32, []int{i % testClasses}, testClasses)
}

// streaming is the program that learns patterns from a data set.
func streaming(broken int) Program {
	p := program
	p.Open = func(c *config.Config) (Problem, error) {
		p, err := openPatterns(c)
		return FromDataset(streamed{p.(*patterns), broken}), err
	}
	return p
}

// TestDatasetsTrainAsTheirProblemDoes, bit by bit, for any number of ranks, parts and workers, with
// both machines, and after resuming.
func TestDatasetsTrainAsTheirProblemDoes(t *testing.T) {
	for _, how := range [][]string{
		{"launch.nproc_per_node=1", "--verify", "run.max_steps=25"}, // three epochs
		{"launch.nproc_per_node=3", "data.workers=1"},
		{"launch.nproc_per_node=2", "data.accum_steps=5", "data.workers=4", "data.ahead=1"},
		{"launch.nproc_per_node=2", "ddp.virtual_ranks=4", "data.drop_last=true"},
		{"launch.nproc_per_node=3", "data.global_batch=2"}, // a rank without samples
		{"launch.nproc_per_node=2", "run.machine=tape"},
		{"launch.nproc_per_node=2", "shard.stage=3", "--verify"},
	} {
		want := summarized(t, how...)
		got := summary(t, streaming(0), t.TempDir(), how...)
		if got.ParamsSHA256 != want.ParamsSHA256 || !slices.Equal(got.Losses, want.Losses) || *got.TestAccuracy != *want.TestAccuracy {
			t.Errorf("%v: losses %v, want %v", how, got.Losses, want.Losses)
		}
	}
	ck := "checkpoint.dir=" + filepath.Join(t.TempDir(), "ck")
	how := []string{"launch.nproc_per_node=2", "run.max_steps=14"}
	want := summarized(t, how...)
	summary(t, streaming(0), t.TempDir(), append(how, ck, "run.max_steps=9")...)
	got := summary(t, streaming(0), t.TempDir(), append(how, ck)...)
	if got.ResumedStep != 9 || got.ParamsSHA256 != want.ParamsSHA256 {
		t.Errorf("from step %d to losses %v, want 9 and %v", got.ResumedStep, got.Losses, want.Losses)
	}
}

// On a GPU, the memory of a batch is used again while earlier runs are in flight: inputs are copied
// when RunAll returns.
func TestDatasetsTrainOnAGPU(t *testing.T) {
	cudatest.Devices(t, 1)
	for _, more := range [][]string{nil, {"data.accum_steps=3"}} {
		how := append([]string{"comm.backend=auto", "run.device=cuda", "run.max_steps=40", "data.ahead=1"}, more...)
		want, got := summarized(t, how...), summary(t, streaming(0), t.TempDir(), how...)
		for i, loss := range want.Losses { // another batch changes the loss by far more
			if d := math.Abs(got.Losses[i]-loss) / loss; !(d < 1e-3) || got.Device == "cpu" {
				t.Fatalf("%v: on %s the loss of step %d is %v, want %v", more, got.Device, i, got.Losses[i], loss)
			}
		}
	}
}

// TestSampleThatCannotBeReadEndsTheRun at its step, with the place and without a summary.
func TestSampleThatCannotBeReadEndsTheRun(t *testing.T) {
	var out, errs bytes.Buffer
	code := streaming(50).Execute(smallRun(t.TempDir(), "launch.nproc_per_node=2", "data.shuffle=false"), &out, &errs)
	if want := "step 2: loader: batch 2 of epoch 0: sample 50: images.bin: damaged at byte 7"; code != 1 || !strings.Contains(errs.String(), want) {
		t.Errorf("code %d, %s; want %s", code, errs.String(), want)
	}
}

func TestLetRowsRefusesOtherInputs(t *testing.T) {
	rows, err := data.ReadRows(patternSet{streamed{&patterns{images: [][]float32{make([]float32, side*side)}}, 0}}, []int{0}, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	g := gorgonia.NewGraph()
	node := func(dt gtensor.Dtype, shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, dt, len(shape), gorgonia.WithName(fmt.Sprint(dt, shape)), gorgonia.WithShape(shape...))
	}
	class := node(gtensor.Float32, 2, testClasses)
	for want, inputs := range map[string]gorgonia.Nodes{
		"":                             {node(gtensor.Float32, 2, side*side), class},
		" ":                            {node(gtensor.Float32, 2, side, side), class},
		"1 inputs for a data set of 2": {class},
		`input "float32 [3 64]": rows: invalid argument: field "image" has 2 rows of [64], not [3 64]`: {node(gtensor.Float32, 3, side*side), class},
		`input "int [2 64]": its dtype is int, that of field "image" float32`:                          {node(gtensor.Int, 2, side*side), class},
	} {
		err := LetRows(&Model{Inputs: inputs}, rows)
		if (err == nil) != (strings.TrimSpace(want) == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v: %v, want %s", inputs, err, want)
		}
	}
}
