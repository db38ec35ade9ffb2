// Command ddp trains a classifier on MNIST with any number of ranks, as a configuration file says:
//
//	make data && go run ./examples/ddp --config configs/mnist-mlp.yaml
//	go run ./examples/ddp --config configs/mnist-mlp.yaml --set launch.nproc_per_node=4 --verify
//	symgrad run -n 4 -- ./ddp --config configs/mnist-cnn.yaml
//	go run ./examples/ddp --config configs/mnist-zero1.yaml --plan # Ctrl-C, then again
//
// Whatever the number of ranks, a step is of the same samples (data.global_batch of them) and the
// model learns the same. The run leaves summary.json, the effective config.yaml and, if asked, a
// timeline in run.output_dir; with checkpoint.dir it leaves checkpoints that a run on any number of
// ranks, with any shard.stage, goes on from (run.resume).
//
// This folder has the problem: mnist reads the images, model builds the graphs, digits.go joins
// them. examples/internal/train has the training on any number of ranks: a program of your own
// copies setup.go from there, and train.go is the loop.
package main

import (
	"io"
	"os"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/examples/ddp/mnist"
	"github.com/symgrad/symgrad/examples/internal/train"
)

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute is the program.
//
// Returns: the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	return train.Program{
		Name: "ddp", About: "Train a classifier on MNIST, data-parallel over the ranks of a job.",
		Config: "configs/mnist-mlp.yaml", Models: []string{"mlp", "cnn"},
		Find: func(c *config.Config) error { return mnist.Find(c.Data.Path) },
		Open: openDigits,
	}.Execute(args, stdout, stderr)
}
