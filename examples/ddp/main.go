// Command ddp trains a classifier on MNIST with any number of ranks, as set by a configuration
// file:
//
//	make data && go run ./examples/ddp --config configs/mnist-mlp.yaml
//	go run ./examples/ddp --config configs/mnist-mlp.yaml --set launch.nproc_per_node=4 --verify
//	symgrad run -n 4 -- ./ddp --config configs/mnist-cnn.yaml
//	go run ./examples/ddp --config configs/mnist-zero1.yaml    # after Ctrl-C, again: it resumes
//
// A step uses the same data.global_batch samples for any number of ranks, so the model learns the
// same. The run writes summary.json, metrics.jsonl, the effective config.yaml and an optional
// timeline to run.output_dir. With checkpoint.dir it saves checkpoints, from which a run on any
// number of ranks, with any shard.stage, can resume (run.resume).
//
// This package defines the problem: mnist reads the images, model builds the graphs, digits.go
// combines them. Package train trains it.
package main

import (
	"io"
	"os"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/examples/ddp/mnist"
	"github.com/symgrad/symgrad/train"
)

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute runs the program.
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
