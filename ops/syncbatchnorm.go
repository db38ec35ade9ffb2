package ops

import (
	"errors"
	"fmt"
	"math"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// BatchNormConfig is the settings of SyncBatchNorm. The zero value is the default. All but Rows
// must be the same on all ranks; ddp.Attach compares Momentum, Epsilon and SumOfCosts.
type BatchNormConfig struct {
	// Name is the layer's, in errors and traces; "" means that of its input.
	Name string
	// Momentum is the share of the new statistics in the running ones, as in PyTorch; 0 means 0.1.
	Momentum float64
	// Epsilon is added to the variance under the root; 0 means 1e-5.
	Epsilon float64
	// Rows is the weight of each row of the input, at least 0: an input of shape (N) and the
	// input's type; nil means 1 for all. A row of weight 0 does not count: its output is 0,
	// whatever it holds, and so is its gradient. A rank without data gives zeros.
	Rows *gorgonia.Node
	// SumOfCosts says that the loss is the sum of the costs of the ranks, as for the other ops of
	// this package. Without it the loss is what package ddp minimizes: the mean of the costs, in
	// which that of a rank weighs as much as its rows do together, and gradients are those of ddp,
	// which are multiplied by that weight later. Where all ranks have as many rows, both are the
	// same.
	SumOfCosts bool
}

const (
	defaultMomentum = 0.1
	defaultEpsilon  = 1e-5
)

// Validate checks c.
//
// Errors: dist.ErrInvalid for a momentum that is not between 0 and 1, or an epsilon that is
// negative or not finite.
func (c BatchNormConfig) Validate() error {
	switch {
	case !(c.Momentum >= 0 && c.Momentum <= 1):
		return fmt.Errorf("batch norm %q: %w: momentum %v is not between 0 and 1", c.Name, dist.ErrInvalid, c.Momentum)
	case !(c.Epsilon >= 0) || math.IsInf(c.Epsilon, 1):
		return fmt.Errorf("batch norm %q: %w: epsilon %v, want a small number above 0", c.Name, dist.ErrInvalid, c.Epsilon)
	}
	return nil
}

// BatchNorm is a layer of a graph that normalizes each channel over the whole batch, which is that
// of all ranks. It has the running statistics.
type BatchNorm struct {
	g        *dist.Group
	cfg      BatchNormConfig
	number   int // among the layers of the graph
	x        form
	rows     form // if there are any
	scale    form // if there is one
	bias     form
	has      [3]bool // rows, scale, bias
	grads    int     // how often it has been differentiated
	training bool

	mean, variance *gtensor.Dense // running
}

// SyncBatchNorm is, for each channel c of x,
//
//	y = (x - mean_c) / sqrt(variance_c + epsilon) * scale_c + bias_c
//
// where mean and variance are those of the batch of all ranks of g, as if one rank had it all: each
// row counts by its weight, and ranks may have batches of different length, or no row that counts.
// The variance is the biased one. Each run also moves the running statistics, which are the same on
// all ranks, toward these ones: running = (1-momentum)*running + momentum*new, with the unbiased
// variance, or the biased one where the elements of a channel weigh less than 2 together.
// SetTraining(false), gorgonia.EvalMode and machine.Config.Eval take the running statistics in
// their place; then no rank needs another.
//
// Forward, ranks exchange for each channel the weight of the rows, mean and sum of squared
// distances from it, in float64, and combine them in the order of the ranks as Chan, Golub and
// LeVeque do (1983), so that no large numbers are subtracted. Backward, they add the sums of dy and
// of dy times the normalized x. The gradients of scale and bias are the rank's own part, as those
// of other parameters; package ddp adds them up.
//
// Shapes: x is (N, C) or (N, C, H, W), of float32 or float64; N may differ between ranks. scale and
// bias have C elements and x's type; nil means 1 and 0. Collective: all ranks, same order; so is
// the gradient, and every run in NoSync of package ddp. The group may be on GPUs if package machine
// runs the graph there. Owns: the running statistics are the layer's. Errors: dist.ErrInvalid and
// its kinds.
func SyncBatchNorm(g *dist.Group, x, scale, bias *gorgonia.Node, c BatchNormConfig) (*gorgonia.Node, *BatchNorm, error) {
	b, err := newBatchNorm(g, x, scale, bias, c)
	if err != nil {
		return nil, nil, err
	}
	y, err := b.build(x, scale, bias)
	if err != nil {
		return nil, nil, err
	}
	return y, b, nil
}

// newBatchNorm checks what can be known before the graph runs.
func newBatchNorm(g *dist.Group, x, scale, bias *gorgonia.Node, c BatchNormConfig) (*BatchNorm, error) {
	if g == nil || x == nil || x.Graph() == nil {
		return nil, fmt.Errorf("batch norm %q: %w: no group, no input, or one without a graph", c.Name, dist.ErrInvalid)
	}
	if c.Name == "" {
		c.Name = called(x)
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Momentum == 0 {
		c.Momentum = defaultMomentum
	}
	if c.Epsilon == 0 {
		c.Epsilon = defaultEpsilon
	}
	b := &BatchNorm{g: g, cfg: c, number: layersIn(x.Graph()) + 1, training: true}
	var err error
	if b.x, err = formOf(x); err == nil {
		err = b.checkInputs(x.Graph(), scale, bias)
	}
	if err != nil {
		return nil, b.refuse(x, err)
	}
	n := b.Channels()
	b.mean = gtensor.New(gtensor.Of(b.x.gdt), gtensor.WithShape(n))
	b.variance = gtensor.New(gtensor.Of(b.x.gdt), gtensor.WithShape(n))
	return b, b.variance.Memset(one(b.x.gdt))
}

func one(dt gtensor.Dtype) any {
	if dt == gtensor.Float32 {
		return float32(1)
	}
	return float64(1)
}

// checkInputs wants inputs of the one graph; constants join it when they are used.
func (b *BatchNorm) checkInputs(g *gorgonia.ExprGraph, scale, bias *gorgonia.Node) error {
	switch dims := len(b.x.shape); {
	case b.x.dt != tensor.F32 && b.x.dt != tensor.F64:
		return fmt.Errorf("%w: the input is %v, want float32 or float64", dist.ErrDType, b.x.dt)
	case dims != 2 && dims != 4:
		return fmt.Errorf("%w: the input has shape %v, want (N, C) or (N, C, H, W)", dist.ErrCount, b.x.shape)
	}
	n, rows := b.Channels(), b.x.shape[0]
	for i, in := range [...]struct {
		what string
		node *gorgonia.Node
		form *form
		len  int
	}{{"rows", b.cfg.Rows, &b.rows, rows}, {"scale", scale, &b.scale, n}, {"bias", bias, &b.bias, n}} {
		if in.node == nil {
			continue
		}
		if other := in.node.Graph(); other != nil && other != g {
			return fmt.Errorf("%w: %s %q is in another graph", dist.ErrInvalid, in.what, called(in.node))
		}
		var err error
		if *in.form, err = formOf(in.node); err != nil {
			return fmt.Errorf("%s %q: %w", in.what, called(in.node), err)
		}
		var wrong error
		switch {
		case in.form.gdt != b.x.gdt:
			wrong = dist.ErrDType
		case in.form.scalar() || in.form.len() != in.len:
			wrong = dist.ErrCount
		}
		if wrong != nil {
			return fmt.Errorf("%w: %s %q is %v, want %d elements of %v", wrong, in.what, called(in.node), *in.form, in.len, b.x.dt)
		}
		b.has[i] = true
	}
	return nil
}

func (b *BatchNorm) refuse(x *gorgonia.Node, err error) error {
	return fmt.Errorf("batch norm of %q (%v, shape %v), rank %d/%d: %w", called(x), x.Type(), x.Shape(), b.g.Rank(), b.g.Size(), err)
}

// layersIn is the highest number of a layer in g. It depends on the graph alone, so that equal
// graphs hash alike on all ranks.
func layersIn(g *gorgonia.ExprGraph) int {
	last := 0
	for _, n := range g.AllNodes() {
		if o, ok := n.Op().(*batchNorm); ok {
			last = max(last, o.layer.number)
		}
	}
	return last
}

// Name is the layer's name in errors and traces.
func (b *BatchNorm) Name() string { return b.cfg.Name }

// Channels is the number of channels.
func (b *BatchNorm) Channels() int { return b.x.shape[1] }

// Rank is this rank's, of the group that the batch is divided over.
func (b *BatchNorm) Rank() int { return b.g.Rank() }

// Config is the settings, with what they mean in place of zeros.
func (b *BatchNorm) Config() BatchNormConfig { return b.cfg }

// Training reports whether the layer normalizes with the statistics of the batch.
func (b *BatchNorm) Training() bool { return b.training }

// SetTraining chooses between the statistics of the batch and the running ones, for the runs to
// come. Machines call it when they are made: gorgonia's does with what gorgonia.EvalMode says,
// package machine's with Config.Eval.
//
// Collective: all ranks, between the same runs, because only training communicates.
func (b *BatchNorm) SetTraining(training bool) { b.training = training }

// Stats is the running mean and the running variance, (C) each, as they are now: a checkpoint has
// copies. Where package machine updates parameters on a GPU they are as of its last Sync.
//
// Owns: the layer; SetStats changes them.
func (b *BatchNorm) Stats() (mean, variance *gtensor.Dense) { return b.mean, b.variance }

// SetStats copies a running mean and a running variance into the layer's. Where package machine
// updates parameters on a GPU, call it before the machine is made. All ranks give the same.
//
// Shapes: C elements each, of the input's type. Errors: dist.ErrDType, dist.ErrCount;
// dist.ErrInvalid for a variance below 0, and for NaN.
func (b *BatchNorm) SetStats(mean, variance *gtensor.Dense) error {
	want := form{gdt: b.x.gdt, dt: b.x.dt, shape: gtensor.Shape{b.Channels()}}
	from := [2]tensor.Buffer{}
	for i, t := range [...]*gtensor.Dense{mean, variance} {
		if t == nil {
			return fmt.Errorf("statistics of batch norm %q: %w: there is none", b.cfg.Name, dist.ErrInvalid)
		}
		var err error
		if from[i], err = want.read(t); err != nil {
			return fmt.Errorf("statistics of batch norm %q: %w", b.cfg.Name, err)
		}
	}
	if least, err := smallest(from[0]); err != nil || math.IsNaN(least) {
		return errors.Join(err, fmt.Errorf("statistics of batch norm %q: %w: a mean of %v", b.cfg.Name, dist.ErrInvalid, least))
	}
	if least, err := smallest(from[1]); err != nil || !(least >= 0) {
		return errors.Join(err, fmt.Errorf("statistics of batch norm %q: %w: a variance of %v", b.cfg.Name, dist.ErrInvalid, least))
	}
	for i, t := range [...]*gtensor.Dense{b.mean, b.variance} {
		to, err := tensor.BufferOf(t)
		if err != nil {
			return err
		}
		copy(to.Raw(), from[i].Raw())
	}
	return nil
}

// smallest is the smallest element, NaN if any is.
func smallest(b tensor.Buffer) (float64, error) {
	least := math.Inf(1)
	if d, err := tensor.Data[float64](b); err == nil {
		for _, v := range d {
			least = min(least, v)
		}
		return least, nil
	}
	d, err := tensor.Data[float32](b)
	for _, v := range d {
		least = min(least, float64(v))
	}
	return least, err
}
