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

// BatchNormConfig holds the settings of SyncBatchNorm. The zero value is the default. All fields
// except Rows must be equal on all ranks; ddp.Attach compares Momentum, Epsilon and SumOfCosts.
type BatchNormConfig struct {
	// Name is the layer's name in errors and traces; "" means the name of its input.
	Name string
	// Momentum is the weight of the new statistics in the running ones, as in PyTorch; 0 means 0.1.
	Momentum float64
	// Epsilon is added to the variance under the root; 0 means 1e-5.
	Epsilon float64
	// Rows holds the weight of each row of the input, at least 0: shape (N), the input's type; nil
	// means 1 for all. A row of weight 0 does not count: its output is 0, whatever its values, and
	// so is its gradient. A rank without data passes zeros.
	Rows *gorgonia.Node
	// SumOfCosts sets the loss to the sum of the ranks' costs, as for the other ops of this
	// package. Otherwise the loss is the mean that package ddp minimizes. In this mean the cost of
	// a rank has the total weight of the rank's rows, and ddp multiplies the gradients by that
	// weight later. Both agree if all ranks have equal numbers of rows.
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

// BatchNorm is a layer of a graph that normalizes each channel over the batch of all ranks. It owns
// the running statistics.
type BatchNorm struct {
	g        *dist.Group
	cfg      BatchNormConfig
	number   int // in the graph, from 1
	x        form
	rows     form // if cfg.Rows is set
	scale    form // if the layer has a scale
	bias     form
	has      [3]bool // rows, scale, bias
	grads    int     // number of times it was differentiated
	training bool

	mean, variance *gtensor.Dense // running
}

// SyncBatchNorm returns, for each channel c of x,
//
//	y = (x - mean_c) / sqrt(variance_c + epsilon) * scale_c + bias_c
//
// where mean and variance are those of the batch of all ranks of g, as if one rank had it all. Each
// row counts by its weight. Ranks may have batches of different length, or no row that counts. The
// variance is the biased one.
//
// Each run also moves the running statistics, which are equal on all ranks: running =
// (1-momentum)*running + momentum*new. The new variance is the unbiased one, or the biased one if
// the elements of a channel have a total weight below 2. SetTraining(false), gorgonia.EvalMode and
// machine.Config.Eval normalize with the running statistics instead, without communication.
//
// In the forward pass ranks exchange, for each channel, the weight of the rows, the mean and the
// sum of squared distances from it, in float64. They combine them in rank order by the formula of
// Chan, Golub and LeVeque (1983), which subtracts no large numbers. In the backward pass they add
// the sums of dy and of dy times the normalized x. The gradients of scale and bias are this rank's
// part, like those of other parameters; package ddp adds the parts.
//
// Shapes: x is (N, C) or (N, C, H, W), of float32 or float64; N may differ between ranks. scale and
// bias have C elements and x's type; nil means 1 and 0. Collective: all ranks, same order; so is
// the gradient, and every run in NoSync of package ddp. The group may be on GPUs if package machine
// runs the graph there. Owns: the layer owns the running statistics. Errors: dist.ErrInvalid and
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

// newBatchNorm checks everything that is known before the graph runs.
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

// checkInputs checks dtypes and shapes, and that all inputs are in graph g. Constants join the
// graph when they are used.
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

// layersIn returns the highest number of a layer in g. It depends on the graph alone, so that equal
// graphs have equal hashes on all ranks.
func layersIn(g *gorgonia.ExprGraph) int {
	last := 0
	for _, n := range g.AllNodes() {
		if o, ok := n.Op().(*batchNorm); ok {
			last = max(last, o.layer.number)
		}
	}
	return last
}

// Name returns the layer's name in errors and traces.
func (b *BatchNorm) Name() string { return b.cfg.Name }

// Channels returns the number of channels.
func (b *BatchNorm) Channels() int { return b.x.shape[1] }

// Rank returns this rank of the group that shares the batch.
func (b *BatchNorm) Rank() int { return b.g.Rank() }

// Config returns the settings, with defaults for zeros.
func (b *BatchNorm) Config() BatchNormConfig { return b.cfg }

// Training reports whether the layer normalizes with the statistics of the batch.
func (b *BatchNorm) Training() bool { return b.training }

// SetTraining chooses the batch's statistics (true) or the running ones (false) for later runs. A
// new machine calls it: gorgonia's with the mode of gorgonia.EvalMode, package machine's with
// Config.Eval.
//
// Collective: all ranks, between the same runs, because only training communicates.
func (b *BatchNorm) SetTraining(training bool) { b.training = training }

// Stats returns the running mean and the running variance, (C) each, at this moment: a checkpoint
// needs copies. Where package machine updates parameters on a GPU, they are as of its last Sync.
//
// Owns: the layer; SetStats changes them.
func (b *BatchNorm) Stats() (mean, variance *gtensor.Dense) { return b.mean, b.variance }

// SetStats copies a running mean and a running variance into the layer. Where package machine
// updates parameters on a GPU, call it before the machine is made. All ranks must pass equal
// values.
//
// Shapes: C elements each, of the input's type. Errors: dist.ErrDType, dist.ErrCount;
// dist.ErrInvalid for a variance below 0, and for NaN.
func (b *BatchNorm) SetStats(mean, variance *gtensor.Dense) error {
	want := form{gdt: b.x.gdt, dt: b.x.dt, shape: gtensor.Shape{b.Channels()}}
	from := [2]tensor.Buffer{}
	for i, t := range [...]*gtensor.Dense{mean, variance} {
		if t == nil {
			return fmt.Errorf("statistics of batch norm %q: %w: no tensor", b.cfg.Name, dist.ErrInvalid)
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

// smallest returns the smallest element, or NaN if any element is.
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
