package metrics

import (
	"fmt"
	"strings"

	"github.com/symgrad/symgrad/dist"
)

// FileName is the name of the file of metrics in the folder of a run.
const FileName = "metrics.jsonl"

// CSVName is the name of the file of Config.CSV.
const CSVName = "metrics.csv"

// EventsFolder is the folder with the files of Config.TensorBoard.
const EventsFolder = "tensorboard"

// Names of metrics that package train writes. A program may write any other name.
const (
	Loss             = "loss"                 // of the step, a mean over the global batch, before the update
	LearningRate     = "learning_rate"        // of the step
	GradNorm         = "grad_norm"            // norm of the step's gradients before clipping
	Epoch            = "epoch"                // passes over the training set so far, with a fraction
	Samples          = "samples"              // used for training so far, over all ranks and resumed runs
	SamplesPerSecond = "samples_per_second"   // since the last record with samples, over all ranks
	TokensPerSecond  = "tokens_per_second"    // the same in tokens: see Config.TokensPerSample
	MFUPercent       = "mfu_percent"          // model FLOP utilization: see Config.FLOPPerSample
	ExposedPercent   = "exposed_comm_percent" // share of the time that a rank waited for communication, a mean over the ranks
	MemoryBytes      = "memory_bytes"         // allocated by rank 0 on its device
	ValLoss          = "val_loss"             // mean loss of the samples held out from training
	ValAccuracy      = "val_accuracy"         // share of right answers for them, 0 to 1
)

// Names of the fields that every line has.
const (
	Step    = "step"    // number of optimizer steps so far, from 1
	Seconds = "seconds" // of training so far; a program may set those since Open
	clock   = "time"    // seconds since 1970
)

// longestName is the maximum length of a name in bytes.
const longestName = 200

// checkName rejects names that are taken, or that a table or TensorBoard cannot show.
func checkName(name string) error {
	switch {
	case name == Step || name == clock:
		return fmt.Errorf("metrics: %w: %q is a field that the writer sets: use another name", dist.ErrInvalid, name)
	case name == "" || len(name) > longestName:
		return fmt.Errorf("metrics: %w: a name of %d bytes: want 1 to %d", dist.ErrInvalid, len(name), longestName)
	case strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(nameRunes, r) }):
		return fmt.Errorf("metrics: %w: name %q: want letters of ASCII, digits and any of _-./", dist.ErrInvalid, name)
	}
	return nil
}

const nameRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./"
