package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/graph"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/machine"
	"github.com/symgrad/symgrad/ops"
)

func TestMain(m *testing.M) {
	cudatest.Hide()
	m.Run()
}

// The sizes of a block of the tests.
const (
	blockBatch, blockSide, blockWidth = 3, 6, 4
)

// block is a block of the network with a cost, and the reference of both.
type block struct {
	x, out, cost *G.Node
	params       G.Nodes
	stats        []Stats
	pull         []float32 // the cost is the sum of the output times pull
	ref          blockRef
	norms        []*normRef
	wanted       map[string]func() []float64 // gradients by parameter, after the reference has run
}

// newBlock returns a block of in channels.
func newBlock(t *testing.T, bottleneck bool, in, stride int, over *dist.Group) *block {
	t.Helper()
	b := &builder{Builder: graph.New(7, nil), cfg: Config{Group: over}, m: &Model{}}
	k := &block{wanted: map[string]func() []float64{}}
	k.x = b.Input("x", gtensor.Float32, blockBatch, in, blockSide, blockSide)
	if over != nil {
		b.m.Rows = b.Input("rows", gtensor.Float32, blockBatch)
		fill(b.m.Rows, func() float64 { return 1 })
	}
	build := b.basic
	if bottleneck {
		build = b.bottleneck
	}
	k.out = build("layer1.0.", k.x, blockWidth, stride)
	pull := b.Input("pull", gtensor.Float32, []int(k.out.Shape().Clone())...)
	k.cost = b.Do(func() (*G.Node, error) { return G.Sum(G.Must(G.HadamardProd(k.out, pull))) })
	if err := b.Done(); err != nil {
		t.Fatal(err)
	}
	k.params, k.stats = b.Params, b.m.Stats
	random := rand.New(rand.NewPCG(1, 2))
	for _, p := range k.params { // scales and offsets that matter
		if len(p.Shape()) == 1 {
			fill(p, func() float64 { return 0.5 + random.Float64() })
		}
	}
	fill(k.x, random.NormFloat64)
	fill(pull, random.NormFloat64)
	k.pull = pull.Value().Data().([]float32)
	k.reference(bottleneck, stride)
	return k
}

func fill(n *G.Node, next func() float64) {
	data := n.Value().Data().([]float32)
	for i := range data {
		data[i] = float32(next())
	}
}

func wide(v any) []float64 {
	var all []float64
	for _, x := range v.([]float32) {
		all = append(all, float64(x))
	}
	return all
}

// reference makes the reference of the block's parameters, in the order of its layers.
func (k *block) reference(bottleneck bool, stride int) {
	left := k.params
	next := func() (*G.Node, []float64) {
		p := left[0]
		left = left[1:]
		return p, wide(p.Value().Data())
	}
	unit := func(stride int) []layer {
		p, w := next()
		c := &convRef{out: p.Shape()[0], kernel: p.Shape()[2], stride: stride, w: w}
		k.wanted[p.Name()] = func() []float64 { return c.dw }
		scale, s := next()
		offset, o := next()
		n := &normRef{scale: s, offset: o}
		k.norms = append(k.norms, n)
		k.wanted[scale.Name()], k.wanted[offset.Name()] = func() []float64 { return n.dscale }, func() []float64 { return n.doffset }
		return []layer{c, n}
	}
	strides := []int{stride, 1}
	if bottleneck {
		strides = []int{1, stride, 1}
	}
	for i, s := range strides {
		if k.ref.main = append(k.ref.main, unit(s)...); i+1 < len(strides) {
			k.ref.main = append(k.ref.main, &rectifyRef{})
		}
	}
	if len(left) > 0 {
		k.ref.shortcut = unit(stride)
	}
}

// The blocks compute what plain loops of float64 compute: results, gradients of all parameters and
// of the input, and running statistics. No step calls back to Gorgonia.
func TestBlocksAgreeWithPlainLoops(t *testing.T) {
	for _, c := range []struct {
		name       string
		bottleneck bool
		in, stride int
		sync       bool
	}{
		{"basic", false, blockWidth, 1, false},
		{"basic that changes the shape", false, 3, 2, false},
		{"bottleneck", true, 4 * blockWidth, 1, false},
		{"bottleneck that changes the shape", true, 5, 2, false},
		{"bottleneck over ranks", true, 5, 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var over *dist.Group
			if c.sync {
				worlds, err := sim.New(1, sim.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer worlds[0].Close()
				over = worlds[0].Group
			}
			newBlock(t, c.bottleneck, c.in, c.stride, over).compare(t)
		})
	}
}

// compare runs the block and its reference.
func (k *block) compare(t *testing.T) {
	t.Helper()
	inputs := append(G.Nodes{k.x}, k.params...)
	grads, err := ops.Grad(k.cost, inputs...)
	if err != nil {
		t.Fatal(err)
	}
	vm, err := machine.New(k.cost.Graph(), machine.Config{Name: "block"}, append(G.Nodes{k.out}, grads...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	if text := vm.Explain(); strings.Contains(text, " call ") {
		t.Errorf("a step calls Gorgonia:\n%s", text)
	}
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	s := k.x.Shape()
	y := k.ref.forward(volume{s[0], s[1], s[2], wide(k.x.Value().Data())})
	near(t, "output", k.out.Value(), y.v)
	dy := y
	dy.v = wide(k.pull)
	near(t, "gradient of x", grads[0].Value(), k.ref.backward(dy).v)
	for i, p := range k.params {
		near(t, "gradient of "+p.Name(), grads[i+1].Value(), k.wanted[p.Name()]())
	}
	for i, n := range k.norms {
		near(t, k.stats[i].Layer+" mean", k.stats[i].Mean, n.mean)
		near(t, k.stats[i].Layer+" variance", k.stats[i].Variance, n.variance)
	}
}

// near compares with an error relative to the largest element. Sums have at most some hundred
// products of float32.
func near(t *testing.T, what string, got G.Value, want []float64) {
	t.Helper()
	v := wide(got.Data())
	if len(v) != len(want) {
		t.Fatalf("%s has %d elements, want %d", what, len(v), len(want))
	}
	most, worst := 0.0, 0.0
	for i := range v {
		most, worst = math.Max(most, math.Abs(want[i])), math.Max(worst, math.Abs(v[i]-want[i]))
	}
	if !(worst <= 1e-5*most) {
		t.Errorf("%s differs by %v, the largest element is %v", what, worst, most)
	}
}

// A whole step of training is compiled: no step calls back to Gorgonia.
func TestStepsAreCompiled(t *testing.T) {
	for _, c := range []Config{
		{Name: "resnet18", Width: 2, Classes: 3, Side: 16, Small: true, Batch: 2},
		{Name: "resnet50", Width: 1, Classes: 3, Side: 32, Batch: 3, LabelSmoothing: 0.1},
	} {
		m, err := New(c, nil)
		if err != nil {
			t.Fatal(err)
		}
		grads, err := ops.Grad(m.Cost, m.Params...)
		if err != nil {
			t.Fatal(err)
		}
		for _, config := range []machine.Config{{Name: "training"}, {Name: "test", Eval: true}} {
			outputs := append(G.Nodes{m.Cost}, grads...)
			if config.Eval {
				outputs = G.Nodes{m.Logits}
			}
			vm, err := machine.New(m.Cost.Graph(), config, outputs...)
			if err != nil {
				t.Fatal(err)
			}
			if text := vm.Explain(); strings.Contains(text, " call ") || !strings.Contains(text, " conv ") {
				t.Errorf("%s, %s: a step calls Gorgonia:\n%s", c.Name, config.Name, text)
			}
			if err := vm.RunAll(); err != nil {
				t.Errorf("%s, %s: %v", c.Name, config.Name, err)
			}
			if err := vm.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Names and shapes are those of torchvision's state_dict, and the number of parameters that of its
// documentation.
func TestParametersAreTorchvisions(t *testing.T) {
	for name, want := range map[string]int{"resnet18": 11689512, "resnet34": 21797672, "resnet50": 25557032, "resnet101": 44549160} {
		m, err := New(Config{Name: name, Width: 64, Classes: 1000, Side: 224, Batch: 1, Shapes: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		shapes := map[string]string{}
		for _, p := range m.Params {
			n += p.Shape().TotalSize()
			shapes[p.Name()] = fmt.Sprint([]int(p.Shape()))
		}
		if n != want {
			t.Errorf("%s has %d parameters, want %d", name, n, want)
		}
		if name != "resnet50" {
			continue
		}
		for param, shape := range map[string]string{
			"conv1.weight": "[64 3 7 7]", "bn1.bias": "[64]", "layer1.0.conv3.weight": "[256 64 1 1]", "layer1.0.downsample.0.weight": "[256 64 1 1]",
			"layer1.0.downsample.1.weight": "[256]", "layer4.2.conv2.weight": "[512 512 3 3]", "fc.weight": "[1000 2048]", "fc.bias": "[1000]",
		} {
			if shapes[param] != shape {
				t.Errorf("%s has shape %s, want %s", param, shapes[param], shape)
			}
		}
		if last := m.Stats[len(m.Stats)-1]; len(m.Stats) != 53 || last.Layer != "layer4.2.bn3" || last.Mean.Shape()[0] != 2048 {
			t.Errorf("%d normalizations, the last is %s of %v", len(m.Stats), last.Layer, last.Mean.Shape())
		}
	}
}

func TestNetworksThatCannotBeBuiltAreRefused(t *testing.T) {
	small := Config{Name: "resnet18", Width: 1, Classes: 3, Side: 32, Small: true, Batch: 1}
	change := func(f func(c *Config)) Config {
		c := small
		f(&c)
		return c
	}
	for want, c := range map[string]Config{
		`unknown residual network "resnet19": use one of [resnet18`: change(func(c *Config) { c.Name = "resnet19" }),
		"resnet18: images of 7x7 pixels, want at least 8x8":         change(func(c *Config) { c.Side = 7 }),
		"resnet18: images of 16x16 pixels, want at least 32x32":     change(func(c *Config) { c.Side, c.Small = 16, false }),
		"resnet18: conv1.weight has shape (0, 3, 3, 3)":             change(func(c *Config) { c.Width = 0 }),
		"resnet18: images has shape (0, 3, 32, 32)":                 change(func(c *Config) { c.Batch = 0 }),
		"resnet18: fc.weight has shape (0, 8)":                      change(func(c *Config) { c.Classes = 0 }),
		"resnet18: nn.SparseCrossEntropy: invalid argument: label":  change(func(c *Config) { c.LabelSmoothing = 2 }),
	} {
		if _, err := New(c, nil); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := New(small, []*gtensor.Dense{gtensor.New(gtensor.WithShape(1, 3, 3, 3), gtensor.Of(gtensor.Float32))}); err == nil {
		t.Error("one weight for 62 parameters is accepted")
	}
}
