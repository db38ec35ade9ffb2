// Command gpt2 trains GPT-2 and Llama models on files of tokens, with any number of ranks, and
// samples text from them:
//
//	go run ./examples/gpt2 --config configs/gpt2.yaml
//	go run ./examples/gpt2 --config configs/gpt2.yaml --set launch.nproc_per_node=8
//	go run ./examples/gpt2 sample --from runs/gpt2/checkpoints --prompt "Once upon a time"
//	go run ./examples/gpt2 eval --from runs/gpt2/checkpoints --data data/tokens/val
//
// symgrad data tokenize makes the files. configs/gpt2.yaml is GPT-2 with 124 million parameters;
// configs/gpt2-demo.yaml is a small one that learns the stories of examples/lm in minutes on two
// cores. --from is a folder of checkpoints, or one of Hugging Face with config.json and
// model.safetensors; a training starts from the latter with model.pretrained.
//
// problem.go opens the tokens, and package language has the problem of predicting the next one.
// Package train trains it. commands.go has the commands for trained models.
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
	if len(args) > 0 && commands[args[0]] != nil {
		return runCommand(args[0], args[1:], stdout, stderr)
	}
	return train.Program{
		Name: "gpt2", About: "Train a GPT-2 or Llama model on tokens, data-parallel over the ranks of a job.\n\n" +
			"  gpt2 sample|eval|export|logits --help   use a trained model",
		Config: "configs/gpt2.yaml", Models: []string{"gpt2", "llama"}, Find: findTokens, Open: openTokens,
	}.Execute(args, stdout, stderr)
}
