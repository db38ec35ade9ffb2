// Package model builds residual networks for images as plain Gorgonia graphs. Parameters and
// running statistics have the names and shapes of torchvision's state_dict, such as
// layer1.0.conv1.weight and layer1.0.bn1.running_mean, so weights can be exchanged as safetensors.
//
// Source: He et al., Deep Residual Learning for Image Recognition, 2015. As in torchvision, the
// bottleneck has its stride in the 3x3 convolution ("v1.5").
package model

import (
	"fmt"
	"math"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/graph"
	"github.com/symgrad/symgrad/nn"
	"github.com/symgrad/symgrad/ops"
)

// Config defines the network to build.
type Config struct {
	Name    string // resnet18, resnet34, resnet50 or resnet101
	Width   int    // channels of the first stage, doubled in each later one; 64 in the paper
	Classes int
	Side    int  // rows and columns of an image
	Small   bool // for images of about 32x32: the first convolution is 3x3 with stride 1, without pooling
	Batch   int  // images; fixed in the graph
	Seed    int64
	Shapes  bool // parameters without values, for a plan

	LabelSmoothing float64 // share of the loss that all classes get equally

	// Group is the ranks whose batches are normalized together, by ops.SyncBatchNorm; nil means
	// that each rank normalizes over its own rows, by nn.BatchNorm2D. Rows without a sample
	// count as well then, so all rows of a training batch must be samples.
	Group *dist.Group
}

// Model is a network with its loss. Inputs are set with gorgonia.Let.
type Model struct {
	Images *G.Node // (Batch, 3, Side, Side)
	Labels *G.Node // (Batch), int; NoLabel in rows without a sample
	Rows   *G.Node // (Batch), with Config.Group: 1 in rows with a sample, else 0; otherwise nil
	Logits *G.Node // (Batch, Classes)
	Cost   *G.Node // mean cross-entropy of the samples
	Params G.Nodes // in the order of torchvision's state_dict
	Stats  []Stats // of the batch normalizations, in order
}

// Stats are the running statistics of a batch normalization, which runs in training update.
type Stats struct {
	Layer          string         // bn1, layer1.0.bn1
	Mean, Variance *gtensor.Dense // float32 (channels); the layer's own memory
}

// NoLabel is the label of a row without a sample.
const NoLabel = -100

// plans has the number of blocks of each stage, and whether they are bottlenecks (He et al., table
// 1).
var plans = map[string]struct {
	blocks     []int
	bottleneck bool
}{
	"resnet18":  {[]int{2, 2, 2, 2}, false},
	"resnet34":  {[]int{3, 4, 6, 3}, false},
	"resnet50":  {[]int{3, 4, 6, 3}, true},
	"resnet101": {[]int{3, 4, 23, 3}, true},
}

// Names returns the names of the networks.
func Names() []string { return []string{"resnet18", "resnet34", "resnet50", "resnet101"} }

// expansion is the ratio of the output channels of a bottleneck to those of its 3x3 convolution.
const expansion = 4

// leastSide is the smallest image: five halvings leave one pixel.
const leastSide = 32

// New returns the network of cfg. With weights, one per parameter in the order of Params,
// parameters are new tensors over the same memory. Without, convolutions are normally distributed
// with the variance 2/(kernel*kernel*output channels), scales are 1, offsets and the last bias 0.
//
// Source: He et al., Delving Deep into Rectifiers, 2015, equation 14 (mode fan_out of torchvision).
//
// Errors: an unknown name, sizes that are not positive, images that are too small, weights of the
// wrong shape.
func New(cfg Config, weights []*gtensor.Dense) (*Model, error) {
	plan, known := plans[cfg.Name]
	if !known {
		return nil, fmt.Errorf("unknown residual network %q: use one of %v", cfg.Name, Names())
	}
	if least := cfg.leastSide(); cfg.Side < least {
		return nil, fmt.Errorf("%s: images of %dx%d pixels, want at least %dx%d", cfg.Name, cfg.Side, cfg.Side, least, least)
	}
	b := &builder{Builder: graph.New(cfg.Seed, weights), cfg: cfg, m: &Model{}}
	if cfg.Shapes {
		b.WithoutValues()
	}
	block := b.basic
	if plan.bottleneck {
		block = b.bottleneck
	}
	b.m.Images = b.Input("images", gtensor.Float32, cfg.Batch, 3, cfg.Side, cfg.Side)
	if cfg.Group != nil {
		b.m.Rows = b.Input("rows", gtensor.Float32, cfg.Batch)
	}
	h := b.stem(b.m.Images)
	for i, n := range plan.blocks {
		for k := range n {
			stride := 1
			if i > 0 && k == 0 {
				stride = 2
			}
			h = block(fmt.Sprintf("layer%d.%d.", i+1, k), h, cfg.Width<<i, stride)
		}
	}
	b.loss(h)
	if err := b.Done(); err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Name, err)
	}
	return b.m, nil
}

// leastSide returns the smallest size of an image: the stages halve it three times, a large stem
// twice before.
func (c Config) leastSide() int {
	if c.Small {
		return leastSide / 4
	}
	return leastSide
}

// builder is a graph.Builder of the network.
type builder struct {
	*graph.Builder
	cfg Config
	m   *Model
}

// stem returns the layers before the first stage.
func (b *builder) stem(x *G.Node) *G.Node {
	if b.cfg.Small {
		return b.rectify(b.norm("bn1", b.conv("conv1", x, b.cfg.Width, 3, 1)))
	}
	h := b.rectify(b.norm("bn1", b.conv("conv1", x, b.cfg.Width, 7, 2)))
	return b.Do(func() (*G.Node, error) { return G.MaxPool2D(h, gtensor.Shape{3, 3}, []int{1, 1}, []int{2, 2}) })
}

// basic returns two 3x3 convolutions with their shortcut.
func (b *builder) basic(name string, x *G.Node, width, stride int) *G.Node {
	h := b.rectify(b.norm(name+"bn1", b.conv(name+"conv1", x, width, 3, stride)))
	h = b.norm(name+"bn2", b.conv(name+"conv2", h, width, 3, 1))
	return b.rectify(b.Both(G.Add, h, b.shortcut(name, x, width, stride)))
}

// bottleneck returns a 1x1, a 3x3 and a 1x1 convolution with their shortcut.
func (b *builder) bottleneck(name string, x *G.Node, width, stride int) *G.Node {
	h := b.rectify(b.norm(name+"bn1", b.conv(name+"conv1", x, width, 1, 1)))
	h = b.rectify(b.norm(name+"bn2", b.conv(name+"conv2", h, width, 3, stride)))
	h = b.norm(name+"bn3", b.conv(name+"conv3", h, expansion*width, 1, 1))
	return b.rectify(b.Both(G.Add, h, b.shortcut(name, x, expansion*width, stride)))
}

// shortcut returns x, projected if the block changes its shape.
func (b *builder) shortcut(name string, x *G.Node, out, stride int) *G.Node {
	if stride == 1 && channelsOf(x) == out {
		return x
	}
	return b.norm(name+"downsample.1", b.conv(name+"downsample.0", x, out, 1, stride))
}

// channelsOf returns the channels of x, 0 after an error.
func channelsOf(x *G.Node) int {
	if x == nil {
		return 0
	}
	return x.Shape()[1]
}

// conv returns a convolution without bias. Its padding keeps the size of the image at stride 1.
func (b *builder) conv(name string, x *G.Node, out, kernel, stride int) *G.Node {
	if x == nil {
		return nil
	}
	pad, in := kernel/2, channelsOf(x)
	w := b.Param(name+".weight", 0, math.Sqrt(2/float64(kernel*kernel*out)), out, in, kernel, kernel)
	return b.Do(func() (*G.Node, error) {
		return nn.Conv2D(x, w, nil, nn.Conv2DConfig{Stride: [2]int{stride, stride}, Padding: [2]int{pad, pad}})
	})
}

// norm returns x normalized over the batch, with a scale and an offset for each channel.
func (b *builder) norm(name string, x *G.Node) *G.Node {
	if x == nil {
		return nil
	}
	n := channelsOf(x)
	scale, offset := b.Param(name+".weight", 1, 0, n), b.Param(name+".bias", 0, 0, n)
	if b.cfg.Group != nil {
		return b.Do(func() (*G.Node, error) {
			y, layer, err := ops.SyncBatchNorm(b.cfg.Group, x, scale, offset, ops.BatchNormConfig{Name: name, Rows: b.m.Rows})
			if err == nil {
				mean, variance := layer.Stats()
				b.m.Stats = append(b.m.Stats, Stats{name, mean, variance})
			}
			return y, err
		})
	}
	return b.Do(func() (*G.Node, error) {
		y, op, err := nn.BatchNorm2D(x, scale, offset, nn.BatchNormConfig{})
		if err == nil {
			mean, variance := op.Stats()
			b.m.Stats = append(b.m.Stats, Stats{name, mean.(*gtensor.Dense), variance.(*gtensor.Dense)})
		}
		return y, err
	})
}

func (b *builder) rectify(x *G.Node) *G.Node { return b.Apply(G.Rectify, x) }

// loss adds the last layer, on the means of all channels, and the cost.
func (b *builder) loss(h *G.Node) {
	if h == nil {
		return
	}
	n := channelsOf(h)
	h = b.Apply(nn.GlobalAvgPool, h)
	w := b.Param("fc.weight", 0, 1/math.Sqrt(3*float64(n)), b.cfg.Classes, n) // the variance of torch.nn.Linear
	offset := b.Param("fc.bias", 0, 0, b.cfg.Classes)
	w = b.Do(func() (*G.Node, error) { return G.Transpose(w, 1, 0) })
	b.m.Logits = b.Do(func() (*G.Node, error) { return nn.Linear(h, w, offset) })
	b.m.Labels = b.Input("labels", gtensor.Int, b.cfg.Batch)
	b.m.Cost = b.Do(func() (*G.Node, error) {
		return nn.SparseCrossEntropy(b.m.Logits, b.m.Labels, nn.CrossEntropyConfig{LabelSmoothing: b.cfg.LabelSmoothing})
	})
	b.m.Params = b.Params
}
