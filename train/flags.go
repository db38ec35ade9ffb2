package train

import (
	"os"

	"github.com/spf13/pflag"

	"github.com/symgrad/symgrad/internal/tool/cli"
)

// timingFlags are the flags for comparing step times.
type timingFlags struct {
	file     string // --json; "" for none
	warmup   int
	resident bool
	kept     bool
	tune     bool
}

func (f *timingFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.file, "json", "", "write step times to this JSON file")
	flags.IntVar(&f.warmup, "warmup", 5, "number of first steps that --json does not measure")
	flags.BoolVar(&f.resident, "resident", false, "train on the first batch only, so that step times do not include reading data")
	flags.BoolVar(&f.kept, "kept", false, "with --resident on a GPU, copy the batch to the device only once")
	flags.BoolVar(&f.tune, "tune", false, "on a GPU, time the variants of each matrix product at the start and use the fastest")
}

func (f *timingFlags) check() error {
	if f.warmup < 0 {
		return cli.Usage("--warmup %d: want 0 or more", f.warmup)
	}
	if info, err := os.Stat(f.file); err == nil && info.IsDir() {
		return cli.Usage("--json %s: is a folder: use a file name", f.file)
	}
	if f.kept && !f.resident {
		return cli.Usage("--kept: batches change with every step: add --resident")
	}
	return nil
}
