// Command mlp trains a wide multilayer perceptron with any number of ranks, on generated samples.
// It shows the cost of steps that consist of large matrix products and the exchange of a large
// gradient.
//
//	go run ./examples/mlp --config configs/wide-mlp.yaml
//	go run ./examples/mlp --config configs/wide-mlp.yaml --set launch.nproc_per_node=4 --json s.json
//
// The inputs are as wide as the first hidden layer. A sample is the pattern of its class with
// strong noise: no single element shows the class, all together do. Nothing is downloaded.
// data.limit is the number of training samples, 2048 by default.
//
// samples.go defines the problem. Package train trains it.
package main

import (
	"io"
	"os"

	"github.com/symgrad/symgrad/train"
)

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute runs the program.
//
// Returns: the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	return train.Program{
		Name: "mlp", About: "Train a wide multilayer perceptron on generated samples, data-parallel over the ranks of a job.",
		Config: "configs/wide-mlp.yaml", Models: []string{"mlp"}, Find: checkSamples, Open: openSamples,
	}.Execute(args, stdout, stderr)
}
