// Command lm trains a small language model, a decoder-only transformer over characters, with any
// number of ranks:
//
//	go run ./examples/lm --config configs/lm.yaml
//	go run ./examples/lm --config configs/lm.yaml --set launch.nproc_per_node=4 --verify
//	go run ./examples/lm --config configs/lm.yaml --set data.path=my-own-text.txt
//
// It learns from one file of text. The last tenth is kept for the test: the reported accuracy is
// the share of characters whose likeliest prediction is right. The included text, stories.txt,
// follows a grammar of our own (stories_test.go). So its regularities are known: spelling, then the
// owners of things, then the numbers that are left.
//
// text.go has the problem, package model the network, and examples/internal/train the training on
// any number of ranks.
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
		Name: "lm", About: "Train a character-level transformer on a text, data-parallel over the ranks of a job.",
		Config: "configs/lm.yaml", Models: []string{"transformer"}, Find: findText, Open: openText,
	}.Execute(args, stdout, stderr)
}
