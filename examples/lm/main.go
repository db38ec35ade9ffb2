// Command lm trains a small language model, a decoder-only transformer over characters, with any
// number of ranks:
//
//	go run ./examples/lm --config configs/lm.yaml
//	go run ./examples/lm --config configs/lm.yaml --set launch.nproc_per_node=4 --verify
//	go run ./examples/lm --config configs/lm.yaml --set data.path=my-own-text.txt
//
// It learns from one file of text, of which the last tenth is kept for the test: the accuracy that
// it reports is how often the likeliest next character is the right one. The text that comes with
// it, stories.txt, is by a grammar of our own (stories_test.go), so that what can be learned is
// known: spelling first, then who carries what, then how many are left.
//
// text.go is the problem and package model the network; how it is learned, by any number of ranks,
// is in examples/internal/train.
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
