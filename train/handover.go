package train

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/internal/tool/cli"
	"github.com/symgrad/symgrad/train/internal/output"
)

// handover passes the sources of the settings from the program to the ranks that it starts. They
// cannot read the sources themselves: only one process can read a pipe, and a file may change
// before the last rank reads it.
type handover struct {
	Source config.Source
	Hash   string        // of the settings
	Claim  *output.Claim // of the output folder
}

// handed returns the handover of o.
func (o *options) handed() ([]byte, error) {
	text, err := json.Marshal(handover{Source: o.source, Hash: o.cfg.Hash(), Claim: o.claimed})
	if err != nil {
		return nil, fmt.Errorf("hand the settings to the ranks: %w", err)
	}
	return text, nil
}

// load reads the settings: those handed over by the starter of this rank, else those of the command
// line, source.
//
// Errors: cli.ErrUsage.
func (o *options) load(source config.Source) error {
	text, err := o.env.Handover()
	if err != nil {
		return cli.AsUsage(err)
	}
	var from handover
	if text != nil {
		if err := json.Unmarshal(text, &from); err != nil {
			return fmt.Errorf("settings of the program that started this rank: %w", err)
		}
		source, o.claimed = from.Source, from.Claim
	} else if err := o.checkFile(source.File); err != nil {
		return err
	}
	o.source = source.Read()
	if o.cfg, o.origins, err = config.Load(o.source); err != nil {
		return cli.AsUsage(err)
	}
	if now := o.cfg.Hash(); text != nil && now != from.Hash {
		return cli.Usage("the settings of this rank have hash %.12s, those of the program that started it %.12s: was %s rebuilt meanwhile?",
			now, from.Hash, o.program.Name)
	}
	return nil
}

// checkFile rejects a --config that not every rank of another launcher can read. There, each rank
// opens the file itself.
func (o *options) checkFile(file string) error {
	if o.env.Size == 1 || file == "" || file == os.DevNull {
		return nil
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().IsRegular() || info.IsDir() { // config.Load reports the other problems
		return nil //nolint:nilerr // likewise
	}
	return cli.Usage("--config %s: not a regular file, and each of the %d ranks started by %s reads it: write the settings to a file, or start the program without a launcher, with launch.nproc_per_node=%d",
		file, o.env.Size, o.env.Launcher, o.env.Size)
}
