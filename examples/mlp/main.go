// Command mlp trains a wide multilayer perceptron with any number of ranks, on made-up samples. Its
// steps are nearly all large matrix products and exchange of large gradients.
//
//	go run ./examples/mlp --config configs/wide-mlp.yaml
//	go run ./examples/mlp --config configs/wide-mlp.yaml --set launch.nproc_per_node=4 --json s.json
//
// The inputs are as wide as the first hidden layer. A sample is the pattern of its class, drowned
// in noise: no element tells the class, all of them together do. Nothing is downloaded. data.limit
// is the number of training samples, 2048 unless it is set.
//
// samples.go is the problem; how it is learned, by any number of ranks, is in
// examples/internal/train.
package main

import (
	"io"
	"os"

	"github.com/symgrad/symgrad/examples/internal/train"
)

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute is the program.
//
// Returns: the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	return train.Program{
		Name: "mlp", About: "Train a wide multilayer perceptron on made-up samples, data-parallel over the ranks of a job.",
		Config: "configs/wide-mlp.yaml", Models: []string{"mlp"}, Find: checkSamples, Open: openSamples,
	}.Execute(args, stdout, stderr)
}
