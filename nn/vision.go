package nn

import (
	"slices"
	"sync"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
)

// Conv2DConfig holds the settings of Conv2D, each for height and width.
type Conv2DConfig struct {
	Stride   [2]int // 0 means 1
	Padding  [2]int // zeros before and after
	Dilation [2]int // distance of the filter's elements; 0 means 1
}

// numbering is held while a convolution is built: Gorgonia numbers them in a variable without a
// lock, and ranks may be goroutines of one process.
var numbering sync.Mutex

// Conv2D returns the images x correlated with filters, plus a bias for each filter:
//
//	y[n, k, i, j] = b[k] + sum over c, r, s of x[n, c, h, w] * filter[k, c, r, s]
//
// at h = i*stride + r*dilation - padding and w = j*stride + s*dilation - padding, with zeros
// outside of the image. That is torch.nn.Conv2d with groups=1. It is gorgonia.Conv2d, which package
// machine turns into one step, for cuDNN or our kernels on a GPU.
//
// Shapes: x is (n, channels, height, width), filter (filters, channels, r, s), b has an element for
// each filter, or is nil; the result is (n, filters, (height + 2*padding - dilation*(r-1) - 1) /
// stride + 1, ...). Errors: as for Linear; dist.ErrInvalid for settings out of range.
func Conv2D(x, filter, b *G.Node, c Conv2DConfig) (*G.Node, error) {
	l := start("Conv2D", x, 4, 4)
	l.joins("filter", filter, l.dt)
	if l.err != nil {
		return nil, l.err
	}
	in, of := x.Shape(), filter.Shape()
	if len(of) != 4 || of[1] != in[1] {
		l.fail(dist.ErrCount, "filter %q has shape %v, want (filters, %d, r, s) for input %q of shape %v", called(filter), of, in[1], called(x), in)
		return nil, l.err
	}
	for axis := range 2 {
		if c.Stride[axis] == 0 {
			c.Stride[axis] = 1
		}
		if c.Dilation[axis] == 0 {
			c.Dilation[axis] = 1
		}
		room := in[2+axis] + 2*c.Padding[axis] - c.Dilation[axis]*(of[2+axis]-1)
		switch {
		case c.Stride[axis] < 1 || c.Dilation[axis] < 1 || c.Padding[axis] < 0:
			l.fail(dist.ErrInvalid, "stride %v, padding %v, dilation %v", c.Stride, c.Padding, c.Dilation)
		case room < 1:
			l.fail(dist.ErrCount, "filter %q of shape %v does not fit into input %q of shape %v with padding %v", called(filter), of, called(x), in, c.Padding)
		}
	}
	if c.Dilation != [2]int{1, 1} {
		x = l.tagged(x, "convolution of dilation %v", c.Dilation)
	}
	y := l.do(func() (*G.Node, error) {
		numbering.Lock()
		defer numbering.Unlock()
		return G.Conv2d(x, filter, gtensor.Shape(slices.Clone(of[2:])), c.Padding[:], c.Stride[:], c.Dilation[:])
	})
	if b != nil {
		y = l.over(G.BroadcastAdd, y, l.channels("bias", b, of[0]), 0, 2, 3)
	}
	return y, l.err
}

// BatchNormConfig holds the settings of BatchNorm2D. The zero value is the default.
type BatchNormConfig struct {
	Momentum float64 // share of the new statistics in the running ones; 0 means 0.1
	Epsilon  float64 // added to the variance under the root; 0 means 1e-5
}

// BatchNorm2D normalizes each channel of x over the batch:
//
//	y = (x - mean) / sqrt(variance + epsilon) * gain + offset
//
// with the biased variance. That is torch.nn.BatchNorm2d. Each run in training mode moves the
// running statistics, which start at 0 and 1: running = (1-momentum)*running + momentum*new, with
// the unbiased variance. In evaluation mode (gorgonia.EvalMode, machine.Config.Eval) they replace
// those of the batch.
//
// It is gorgonia.BatchNorm. Ranks normalize over their own part of the batch; ops.SyncBatchNorm
// normalizes over all ranks.
//
// Shapes: x is (n, channels, height, width); gain and offset have an element for each channel.
// Returns: also Gorgonia's op, whose Stats are the running statistics and belong in a checkpoint.
// Errors: as for Linear; dist.ErrInvalid for settings out of range.
func BatchNorm2D(x, gain, offset *G.Node, c BatchNormConfig) (*G.Node, *G.BatchNormOp, error) {
	l := start("BatchNorm2D", x, 4, 4)
	if c.Momentum == 0 {
		c.Momentum = 0.1
	}
	if c.Epsilon == 0 {
		c.Epsilon = 1e-5
	}
	l.epsilon(c.Epsilon)
	if l.err == nil && !(c.Momentum > 0 && c.Momentum <= 1) {
		l.fail(dist.ErrInvalid, "momentum %v is not between 0 and 1", c.Momentum)
	}
	if l.err != nil {
		return nil, nil, l.err
	}
	channels := x.Shape()[1]
	x = l.tagged(x, "batch normalization of momentum %v, epsilon %v", c.Momentum, c.Epsilon)
	scale, bias := l.channels("gain", gain, channels), l.channels("offset", offset, channels)
	var op *G.BatchNormOp
	y := l.do(func() (y *G.Node, err error) {
		y, _, _, op, err = G.BatchNorm(x, scale, bias, c.Momentum, c.Epsilon)
		return y, err
	})
	if l.err != nil {
		return nil, nil, l.err
	}
	if !slices.ContainsFunc(y.Graph().AllNodes(), func(n *G.Node) bool { return n.Op() == G.Op(op) }) {
		l.fail(dist.ErrInvalid, "input %q has a batch normalization of these settings already, which a graph takes for this one: use its result", called(x))
		return nil, nil, l.err
	}
	_, variance := op.Stats()
	if l.dt == gtensor.Float32 {
		return y, op, variance.Memset(float32(1))
	}
	return y, op, variance.Memset(float64(1))
}

// GlobalAvgPool returns the mean of each channel: torch.nn.AdaptiveAvgPool2d(1), flattened.
//
// Shapes: x is (n, channels, height, width), the result (n, channels). Errors: as for Linear.
func GlobalAvgPool(x *G.Node) (*G.Node, error) {
	l := start("GlobalAvgPool", x, 4, 4)
	if l.err != nil {
		return nil, l.err
	}
	s := x.Shape()
	flat := l.reshape(x, s[0]*s[1], s[2]*s[3])
	return l.reshape(l.mean(flat), s[0], s[1]), l.err
}
