package train_test

import (
	"fmt"
	"io"
	"os"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/train"
)

// line is a Problem: learn a in y = a x from samples of y = 3x.
type line struct{}

func (line) Len() int                { return 64 }
func (line) Digest() string          { return "y = 3x" }
func (line) Describe() (_, _ string) { return "64 points of a line", "1 parameter" }
func (line) Tests() train.Tests      { return nil }
func (line) value(i int) (x float32) { return float32(i) / 64 }

func (line) New(rows int, _ []*gtensor.Dense) (*train.Model, error) {
	g := G.NewGraph()
	node := func(name string, rows int) *G.Node {
		return G.NewMatrix(g, G.Float32, G.WithName(name), G.WithShape(rows, 1), G.WithInit(G.Zeroes()))
	}
	x, y, weight, a := node("x", rows), node("y", rows), node("weight", rows), node("a", 1)
	square := G.Must(G.Square(G.Must(G.Sub(G.Must(G.Mul(x, a)), y))))
	cost := G.Must(G.Sum(G.Must(G.HadamardProd(square, weight))))
	return &train.Model{Inputs: G.Nodes{x, y, weight}, Params: G.Nodes{a}, Cost: cost}, nil
}

func (l line) Fill(m *train.Model, samples []int) error {
	input := func(i int) []float32 { return m.Inputs[i].Value().Data().([]float32) }
	x, y, weight := input(0), input(1), input(2)
	clear(weight)
	for row, i := range samples {
		x[row], y[row], weight[row] = l.value(i), 3*l.value(i), 1/float32(len(samples))
	}
	return nil
}

// The command line starts two ranks as goroutines, and bounds the loss of the last step. A main
// function passes os.Args[1:] to Execute, and its result to os.Exit.
func ExampleProgram() {
	p := train.Program{
		Name: "line", About: "Learn a line.",
		Open: func(*config.Config) (train.Problem, error) { return line{}, nil },
	}
	dir := must(os.MkdirTemp("", "line"))
	defer os.RemoveAll(dir)
	code := p.Execute([]string{
		"--set", "comm.backend=sim", "--set", "launch.nproc_per_node=2", "--set", "data.global_batch=16",
		"--set", "run.epochs=40", "--set", "optim.lr=0.1", "--set", "run.output_dir=" + dir, "--below", "0.001",
	}, io.Discard, os.Stderr)
	fmt.Println("exit code", code)
	// Output: exit code 0
}
