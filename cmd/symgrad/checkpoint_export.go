package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/nn/transformer"
)

// exporting are the flags of symgrad checkpoint export.
type exporting struct {
	format, out, config string
}

func newCheckpointExportCommand() *cobra.Command {
	var f exporting
	cmd := &cobra.Command{
		Use:   "export --out FOLDER [flags] DIR",
		Short: "Write a language model to a folder of Hugging Face",
		Long: `Write the weights of a GPT-2 or Llama model to a folder that the transformers library loads:
config.json, and model.safetensors in float32. The names and layouts of the parameters are
those of that library. The checkpoint has the configuration of models that examples/gpt2 trains,
and of scripts that set train.State.Extra; for others --config names a config.json. In a folder
with several checkpoints it takes the newest complete one. The checkpoint is verified first.`,
		Example: `  symgrad checkpoint export --format hf --out my-model runs/gpt2/checkpoints
  python3 -c 'from transformers import AutoModelForCausalLM as M; print(M.from_pretrained("my-model"))'`,
		Args:              usageArgs(oneFolder),
		ValidArgsFunction: completeFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := f.run(args[0])
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), []byte(text))
		},
	}
	cmd.Flags().StringVar(&f.format, "format", "hf", "hf: a folder of Hugging Face's transformers library")
	cmd.Flags().StringVarP(&f.out, "out", "o", "", "folder to write")
	cmd.Flags().StringVar(&f.config, "config", "", "config.json of the model; empty means that in the checkpoint")
	return cmd
}

// run writes the folder.
//
// Returns: a line about it.
func (f exporting) run(dir string) (text string, err error) {
	if f.format != "hf" {
		return "", usageError{fmt.Errorf("--format %s: unknown format: use hf", f.format)}
	}
	if f.out == "" {
		return "", usageError{errors.New("--out is missing: add --out FOLDER")}
	}
	c, err := checkpoint.Open(dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	var cfg transformer.Config
	if f.config != "" {
		cfg, err = transformer.ReadConfig(f.config)
	} else if cfg, err = transformer.ConfigOf(c); err != nil {
		err = fmt.Errorf("%w: name a config.json with --config", err)
	}
	if err != nil {
		return "", err
	}
	w, err := transformer.FromCheckpoint(c, cfg)
	if err != nil {
		return "", err
	}
	if err := w.Save(f.out); err != nil {
		return "", fmt.Errorf("--out: %w", err)
	}
	return fmt.Sprintf("%s: %s of %d parameters, of %s\n", f.out, cfg.Family, cfg.Parameters(), c.Path()), nil
}
