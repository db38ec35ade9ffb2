package nn

import (
	"slices"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/nnop"
)

// CrossEntropyConfig holds the settings of SparseCrossEntropy and LinearCrossEntropy. The zero
// value is the default.
type CrossEntropyConfig struct {
	// IgnoreIndex is the target of rows that do not count; nil means -100, as in PyTorch. At most
	// 2^24 from 0.
	IgnoreIndex *int
	// LabelSmoothing is the share of the loss that all classes get equally, 0 to 1.
	LabelSmoothing float64
	// ChunkRows is the most rows of LinearCrossEntropy whose logits exist at a time; 0 means as
	// many as make 2^27 logits, at least 64. SparseCrossEntropy ignores it.
	ChunkRows int
}

// chunkLogits is the number of logits of a default chunk. As bf16 they take 256 MiB; with fewer,
// sums of the weight's gradient take longer: each chunk reads and writes it once.
const chunkLogits = 1 << 27

// defaultIgnore is the ignore_index of torch.nn.CrossEntropyLoss.
const defaultIgnore = -100

func (c CrossEntropyConfig) ignore() int {
	if c.IgnoreIndex == nil {
		return defaultIgnore
	}
	return *c.IgnoreIndex
}

func (c CrossEntropyConfig) loss() nnop.Loss {
	return nnop.Loss{Ignore: c.ignore(), Smoothing: c.LabelSmoothing}
}

// SparseCrossEntropy returns the mean, over the rows whose target is not IgnoreIndex, of
//
//	(1-s)*(lse(x) - x[target]) + s*(lse(x) - mean(x))
//
// where x are the logits of the row, lse(x) = log sum exp(x), and s is LabelSmoothing. That is
// torch.nn.functional.cross_entropy with reduction="mean". If no row counts, the loss and its
// gradient are 0, where PyTorch has NaN.
//
// Neither one-hot rows nor probabilities are stored. Package machine computes the loss and the
// gradient in one step; the gradient takes the memory of the logits if no other step reads them.
//
// With several ranks the mean is over the rows of one rank. Give ddp the number of rows that count
// as the rank's weight, d.SetWeight(float64(n)) with n from Counted, before each run. Then the
// gradient is that of the mean over the rows of all ranks.
//
// Shapes: logits are (..., classes) of 2 to 4 axes, targets of int have the shape before the last
// axis, or are a vector of as many elements; the result is a scalar. Errors: as for Linear;
// dist.ErrInvalid for settings out of range. A target that is neither a class nor IgnoreIndex is an
// error of the run that names its row and value.
func SparseCrossEntropy(logits, targets *G.Node, c CrossEntropyConfig) (*G.Node, error) {
	l := start("SparseCrossEntropy", logits, 2, maxAxes)
	if l.err != nil {
		return nil, l.err
	}
	shape := logits.Shape()
	targets = targetsOf(l, targets, shape, c)
	x := l.reshape(logits, rows(shape), last(shape))
	return l.do(func() (*G.Node, error) {
		return nnop.NewSparseCrossEntropy(x, targets, c.loss())
	}), l.err
}

// LinearCrossEntropy returns SparseCrossEntropy of the logits x times w, without the memory for the
// logits of all rows. They exist for ChunkRows rows at a time, in the forward pass, which also
// computes the gradients of x and w; the backward pass computes nothing again. That is the fused
// linear cross-entropy of Liger Kernel (Hsu et al., 2024), or torch.nn.functional.cross_entropy of
// torch.nn.functional.linear(x, wᵀ).
//
// A tape machine computes the logits again for each of the two gradients.
//
// Shapes: x is (..., in) of 2 to 4 axes, w (in, classes), targets of int as in SparseCrossEntropy;
// the result is a scalar. A tied output layer passes the transposed embedding. Errors: those of
// Linear and SparseCrossEntropy.
func LinearCrossEntropy(x, w, targets *G.Node, c CrossEntropyConfig) (*G.Node, error) {
	l := start("LinearCrossEntropy", x, 2, maxAxes)
	l.joins("weight", w, l.dt)
	if l.err != nil {
		return nil, l.err
	}
	shape := x.Shape()
	in := last(shape)
	if len(w.Shape()) != 2 || w.Shape()[0] != in {
		l.fail(dist.ErrCount, "weight %q has shape %v, want (%d, classes) for input %q of shape %v", called(w), w.Shape(), in, called(x), shape)
		return nil, l.err
	}
	targets = targetsOf(l, targets, shape, c)
	if c.ChunkRows == 0 {
		c.ChunkRows = max(64, chunkLogits/w.Shape()[1])
	}
	x = l.reshape(x, rows(shape), in)
	return l.do(func() (*G.Node, error) {
		return nnop.NewLinearCrossEntropy(x, w, targets, c.loss(), c.ChunkRows)
	}), l.err
}

// targetsOf checks the targets of logits or features of a shape, and returns them as a vector.
func targetsOf(l *layer, targets *G.Node, shape gtensor.Shape, c CrossEntropyConfig) *G.Node {
	const most = 1 << 24 // float32 holds integers up to it
	l.joins("targets", targets, gtensor.Int)
	switch {
	case l.err != nil:
		return nil
	case targets.IsScalar() || targets.Shape().TotalSize() != rows(shape) ||
		len(targets.Shape()) > 1 && !slices.Equal(targets.Shape(), shape[:len(shape)-1]):
		l.fail(dist.ErrCount, "targets %q have shape %v, want %v", called(targets), targets.Shape(), shape[:len(shape)-1])
	case !(c.LabelSmoothing >= 0 && c.LabelSmoothing <= 1):
		l.fail(dist.ErrInvalid, "label smoothing %v is not between 0 and 1", c.LabelSmoothing)
	case c.ChunkRows < 0:
		l.fail(dist.ErrInvalid, "chunks of %d rows", c.ChunkRows)
	case c.ignore() < -most || c.ignore() > most:
		l.fail(dist.ErrInvalid, "ignore index %d, want at most 2^24 from 0", c.ignore())
	}
	return l.reshape(targets, rows(shape))
}

// Counted returns the number of targets that count in a loss of classes: the weight of the rank's
// gradient in ddp.
//
// Errors: dist.ErrInvalid for a target that is neither a class nor IgnoreIndex, with its row.
func Counted(targets []int, classes int, c CrossEntropyConfig) (int, error) {
	return nnop.Counted(targets, c.ignore(), classes)
}
