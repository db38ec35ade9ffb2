package train

import (
	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// Problem is the task of a program: samples, and a graph for a batch of them. The ranks of a
// simulation share one, so its methods change only the models that they are given.
type Problem interface {
	// Len is the number of training samples, at least 1.
	Len() int
	// Digest identifies the samples, on one line. It must be equal on all ranks.
	Digest() string
	// Describe is the samples in a few words, and the model as "mlp 784-512-512-10".
	Describe() (data, model string)
	// New is the model for batches of so many rows, its weights those given, as other headers over
	// the same memory, or its initial ones for nil. The same settings give the same weights. Ranks
	// call it at the same time.
	New(rows int, weights []*gtensor.Dense) (*Model, error)
	// Fill sets the inputs to training samples, and the weights of the remaining rows to zero.
	Fill(m *Model, indices []int) error
	// Tests is the test samples; nil if there are none.
	Tests() Tests
}

// Tests is samples to measure accuracy on. They are counted in batches that are the same for any
// number of ranks.
type Tests interface {
	// Len is the number of samples.
	Len() int
	// Rows is the number of samples in a batch.
	Rows() int
	// Fill sets the inputs to the n samples from first on.
	Fill(m *Model, first, n int) error
	// Count is how many answers of the model for the samples of Fill are right, of how many.
	Count(m *Model, first, n int) (right, all int)
}

// Model is a graph for a batch.
type Model struct {
	Inputs gorgonia.Nodes // without the parameters
	Params gorgonia.Nodes // in the order of the layers
	Cost   *gorgonia.Node // the mean of the losses of the samples that Fill has set
	Output *gorgonia.Node // read by Count
}
