package train_test

import (
	"fmt"
	"io"
	"os"

	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/train"
)

// points is the data set of a line: sample i is a point of y = 3x. Each field is an input.
type points struct{ line }

func (points) Fields() []data.Field {
	return []data.Field{
		{Name: "x", DType: gtensor.Float32, Shape: []int{1}},
		{Name: "y", DType: gtensor.Float32, Shape: []int{1}},
	}
}

func (p points) Read(i, _ int, row []data.Values) error {
	row[0].Float32[0], row[1].Float32[0] = p.value(i), 3*p.value(i)
	return nil
}

// streamedLine is the problem of the line, with its samples read ahead.
type streamedLine struct{ line }

func (l streamedLine) Dataset() data.Dataset { return points(l) }

func (streamedLine) Set(m *train.Model, rows *data.Rows) error {
	weight := m.Inputs[2].Value().Data().([]float32)
	clear(weight)
	for i := range rows.Len() {
		weight[i] = 1 / float32(rows.Len())
	}
	return train.LetRows(m, rows) // the first two inputs
}

// A problem is a data set and a graph: the run reads the samples ahead.
func ExampleFromDataset() {
	p := train.Program{
		Name: "line", About: "Learn a line.",
		Open: func(*config.Config) (train.Problem, error) { return train.FromDataset(streamedLine{}), nil },
	}
	dir := must(os.MkdirTemp("", "line"))
	defer os.RemoveAll(dir)
	code := p.Execute([]string{
		"--set", "comm.backend=sim", "--set", "launch.nproc_per_node=2", "--set", "data.global_batch=16", "--set", "data.workers=2",
		"--set", "run.epochs=40", "--set", "optim.lr=0.1", "--set", "run.output_dir=" + dir, "--below", "0.001",
	}, io.Discard, os.Stderr)
	fmt.Println("exit code", code)
	// Output: exit code 0
}
