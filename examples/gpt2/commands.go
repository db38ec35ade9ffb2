package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"
	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/tool/cli"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/train"
)

// command is a command on a trained model.
type command struct {
	about string
	flags func(f *use, flags *pflag.FlagSet)
	run   func(f *use, out io.Writer) error
}

// commands are the commands by name.
var commands = map[string]*command{
	"sample": {"Print text that a model continues from a prompt.", (*use).sampleFlags, (*use).sample},
	"eval":   {"Print the mean loss of a model on tokens.", (*use).evalFlags, (*use).eval},
	"export": {"Write a model to a folder that the transformers library loads.", (*use).exportFlags, (*use).export},
	"logits": {"Write the logits of tokens, for a comparison with other programs.", (*use).logitsFlags, (*use).logits},
}

// use is the flags of a command.
type use struct {
	from, device, compute string // of all commands

	encoding, prompt string // sample
	n, topK, window  int
	temperature      float64
	seed             int64
	data             string // eval
	all              bool
	limit, batch     int
	tokens, out      string // logits, export
}

// runCommand runs a command.
//
// Returns: the exit code.
func runCommand(name string, args []string, stdout, stderr io.Writer) int {
	c := commands[name]
	f := use{}
	flags := pflag.NewFlagSet("gpt2 "+name, pflag.ContinueOnError)
	flags.SortFlags = false
	flags.Usage = func() {}
	flags.StringVar(&f.from, "from", "", "folder of checkpoints, or of Hugging Face with config.json and safetensors")
	c.flags(&f, flags)
	err := flags.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprintf(stdout, "%s\n\n  gpt2 %s --from DIR [flags]\n\n%s", c.about, name, flags.FlagUsagesWrapped(max(launch.Columns(stdout), 80)))
		return 0
	case err != nil:
		err = cli.Usage("%w (--help lists the flags)", cli.FlagError(err))
	case flags.NArg() > 0:
		err = cli.Usage("unexpected argument %q (--help lists the flags)", flags.Arg(0))
	case f.from == "":
		err = cli.Usage("--from is missing: the folder of the model")
	default:
		err = c.run(&f, stdout)
	}
	if err == nil {
		return 0
	}
	fmt.Fprint(stderr, cli.ErrorText("gpt2 "+name, err, launch.Columns(stderr)))
	if errors.Is(err, train.ErrUsage) {
		return train.ExitUsage
	}
	return 1
}

// deviceFlags adds the flags of commands that compute.
func (f *use) deviceFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.device, "device", "cpu", "cpu or cuda")
	flags.StringVar(&f.compute, "precision", "f32", "arithmetic of products on a GPU: f32, tf32, bf16 or f16")
}

// machine compiles a graph for an output.
//
// Owns: the caller closes it.
func (f *use) machine(name string, out *gorgonia.Node) (*machine.Machine, error) {
	c := machine.Config{Name: name, Device: machine.Device(f.device), Compute: f.compute, Eval: true}
	if err := c.Validate(); err != nil {
		return nil, cli.AsUsage(err)
	}
	return machine.New(out.Graph(), c, out)
}
