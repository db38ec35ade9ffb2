package train

import (
	"encoding/json"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/train/internal/report"
)

// Problem is a learning task: samples, and a graph for a batch of them. The ranks of a simulation
// share one Problem, so its methods change only the models that they are given.
type Problem interface {
	// Len is the number of training samples, at least 1.
	Len() int
	// Digest identifies the samples on one line. It must be equal on all ranks.
	Digest() string
	// Describe returns the samples in a few words, and the model as "mlp 784-512-512-10".
	Describe() (data, model string)
	// New returns the model for batches of so many rows, with initial weights, in float32. The same
	// settings give the same weights. The second and later models of a run get weights as values;
	// to spare the work of initial ones, New may use tensors over their memory. It is nil for the
	// first.
	New(rows int, weights []*gtensor.Dense) (*Model, error)
	// Fill sets the inputs to training samples, and gives the remaining rows weight zero.
	Fill(m *Model, indices []int) error
	// Tests returns the test samples; nil if there are none.
	Tests() Tests
}

// Annotated is implemented by a Problem or DatasetProblem whose checkpoints have further values for
// other programs, such as the configuration of the model.
type Annotated interface {
	// Annotations returns JSON texts by key, for Manifest.Extra of package checkpoint. The key
	// "train" is taken.
	Annotations() map[string]json.RawMessage
}

// Tests are samples to measure accuracy on. They are evaluated in batches that are the same for any
// number of ranks.
type Tests interface {
	// Len is the number of samples.
	Len() int
	// Rows is the number of samples in a batch.
	Rows() int
	// Fill sets the inputs to the n samples that start at first.
	Fill(m *Model, first, n int) error
	// Count returns how many of the model's answers for the samples of Fill are right, and their
	// number.
	Count(m *Model, first, n int) (right, all int)
}

// LossTests are Tests that have a loss: Fill also sets the targets, and weights of zero for the
// other rows, so that Model.Cost is the mean loss of the n samples. A run then records the loss of
// the test set too, often called validation loss.
type LossTests interface {
	Tests
	// HasLoss reports whether Fill does so.
	HasLoss() bool
}

// Tokens is implemented by a Problem, or a DatasetProblem, whose samples are sequences. A run then
// records tokens per second.
type Tokens interface {
	// TokensPerSample is the number of tokens of a sample that the model learns to predict.
	TokensPerSample() int
}

// Model is a graph for one batch.
type Model struct {
	Inputs gorgonia.Nodes // without parameters
	Params gorgonia.Nodes // in the order of the layers
	Cost   *gorgonia.Node // mean loss of the samples that Fill has set
	Output *gorgonia.Node // the node that Count reads

	rows int // of the batch
}

// Summary is the result of a run, as in the file config.SummaryName of run.output_dir.
type Summary = report.Summary

// Timing has the step times of a run, as in the file of --json.
type Timing = report.Timing
