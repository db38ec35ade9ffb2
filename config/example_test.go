package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/symgrad/symgrad/config"
)

func ExampleLoad() {
	cfg, origins, err := config.Load(config.Source{
		Env: []string{"SYMGRAD_RUN_SEED=7", "SYMGRAD_OPTIM_LR=0.01"},
		Set: []string{"optim.lr=0.002", "model.hidden=256,128"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(cfg.Run.Seed, "from", origins.Origin("run.seed"))
	fmt.Println(cfg.Optim.LR, "from", origins.Origin("optim.lr"))
	fmt.Println(cfg.Model.Hidden, "from", origins.Origin("model.hidden"))
	fmt.Println(cfg.Data.GlobalBatch, "from", origins.Origin("data.global_batch"))
	// Output:
	// 7 from $SYMGRAD_RUN_SEED
	// 0.002 from --set
	// [256 128] from --set
	// 128 from default
}

// Everything that is wrong is reported at once.
func ExampleLoad_errors() {
	dir, err := os.MkdirTemp("", "config")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "mnist.yaml")
	text := "run:\n  epochs: -1\n  max_step: 100\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	_, _, err = config.Load(config.Source{
		File: path,
		Env:  []string{"SYMGRAD_DDP_BUCKET_MB=big"},
		Set:  []string{"optim.lr=-1"},
	})
	fmt.Println(strings.ReplaceAll(err.Error(), dir+"/", ""))
	// Output:
	// 4 problems in the configuration:
	//   mnist.yaml:2:11: run.epochs: -1 is out of range: at least 0
	//   mnist.yaml:3:3: unknown key "run.max_step": did you mean run.max_steps?
	//   $SYMGRAD_DDP_BUCKET_MB: ddp.bucket_mb: "big" is not a number
	//   --set: optim.lr: -1 is out of range: more than 0
}

// The folder of the results does not change the computation.
func ExampleConfig_Hash() {
	a := config.Default()
	b := config.Default()
	b.Run.OutputDir = "elsewhere"
	c := config.Default()
	c.Data.GlobalBatch = 256
	fmt.Println(a.Hash() == b.Hash(), a.Hash() == c.Hash())
	// Output: true false
}

// Settings that a training has as before when it is taken up again.
func ExampleKeys() {
	for _, k := range config.Keys() {
		if strings.HasPrefix(k.Name, "data.") && k.Fixed {
			fmt.Printf("%s (%s, %s): %s\n", k.Name, k.Type, k.Default, k.Help)
		}
	}
	// Output:
	// data.drop_last (bool, false): skip the last batch of an epoch if it is smaller
	// data.encoding (string, r50k_base): encoding of the tokens; r50k_base is that of GPT-2
	// data.global_batch (int, 128): samples of one optimizer step, over all ranks
	// data.limit (int, 0): number of training samples to use, from the first; 0 means all
	// data.shuffle (bool, true): shuffle samples in each epoch, equally for any number of ranks
}
