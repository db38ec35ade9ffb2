package train

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/ops"
	"github.com/symgrad/symgrad/tensor"
)

// normalized is the problem patterns with a linear layer, a batch normalization over its features,
// and a linear layer. Each rank normalizes over its own rows.
type normalized struct {
	*patterns
	rename func(*Model) // may damage a model; nil for none
}

// features is the width between the layers.
const features = 12

func (p normalized) New(rows int, weights []*gtensor.Dense) (*Model, error) {
	return p.model(nil, rows, weights)
}

func (p normalized) model(over *dist.Group, rows int, weights []*gtensor.Dense) (*Model, error) {
	g := gorgonia.NewGraph()
	node := func(name string, value *gtensor.Dense) *gorgonia.Node {
		return gorgonia.NewTensor(g, gorgonia.Float32, value.Dims(), gorgonia.WithName(name), gorgonia.WithShape(value.Shape()...), gorgonia.WithValue(value))
	}
	zeros := func(shape ...int) *gtensor.Dense {
		return gtensor.New(gtensor.Of(gorgonia.Float32), gtensor.WithShape(shape...))
	}
	m := &Model{Inputs: gorgonia.Nodes{node("x", zeros(rows, side*side)), node("y", zeros(rows, testClasses)), node("w", zeros(rows))}}
	random := rand.New(rand.NewPCG(5, uint64(p.cfg.Run.Seed)))
	for i, shape := range [][]int{{side * side, features}, {1, features}, {1, features}, {features, testClasses}} {
		value := zeros(shape...)
		for k := range value.Float32s() {
			value.Float32s()[k] = float32(0.3*random.NormFloat64()) + []float32{0, 1, 0, 0}[i]
		}
		if weights != nil {
			value = gtensor.New(gtensor.WithShape(shape...), gtensor.WithBacking(weights[i].Float32s()))
		}
		m.Params = append(m.Params, node([]string{"in", "scale", "offset", "out"}[i], value))
	}
	h, err := m.norm(over, gorgonia.Must(gorgonia.Mul(m.Inputs[0], m.Params[0])))
	if err != nil {
		return nil, err
	}
	m.Output = gorgonia.Must(gorgonia.Mul(gorgonia.Must(gorgonia.Tanh(h)), m.Params[3]))
	chosen := gorgonia.Must(gorgonia.HadamardProd(m.Inputs[1], gorgonia.Must(gorgonia.LogSoftMax(m.Output, 1))))
	weighted := gorgonia.Must(gorgonia.HadamardProd(m.Inputs[2], gorgonia.Must(gorgonia.Sum(chosen, 1))))
	m.Cost = gorgonia.Must(gorgonia.Neg(gorgonia.Must(gorgonia.Sum(weighted))))
	if p.rename != nil {
		p.rename(m)
	}
	return m, nil
}

// norm returns h normalized over the rows of all ranks of over, or over this rank's.
func (m *Model) norm(over *dist.Group, h *gorgonia.Node) (*gorgonia.Node, error) {
	if over != nil {
		y, n, err := ops.SyncBatchNorm(over, h, m.Params[1], m.Params[2], ops.BatchNormConfig{})
		if err != nil {
			return nil, err
		}
		mean, variance := n.Stats()
		m.Buffers = []Buffer{{Name: "mean", Value: mean}, {Name: "variance", Value: variance}}
		return y, nil
	}
	y, _, _, op, err := gorgonia.BatchNorm(h, m.Params[1], m.Params[2], 0.1, 1e-5)
	if err != nil {
		return nil, err
	}
	mean, variance := op.Stats()
	m.Buffers = []Buffer{{Name: "mean", Value: mean.(*gtensor.Dense)}, {Name: "variance", Value: variance.(*gtensor.Dense)}}
	return y, variance.Memset(float32(1))
}

// synchronized normalizes over the rows of all ranks.
type synchronized struct{ normalized }

func (p synchronized) NewOver(g *dist.Group, rows int, weights []*gtensor.Dense) (*Model, error) {
	return p.model(g, rows, weights)
}

func openNormalized(c *config.Config) (Problem, error) {
	p, err := openPatterns(c)
	return normalized{patterns: p.(*patterns)}, err
}

func openSynchronized(c *config.Config) (Problem, error) {
	p, err := openPatterns(c)
	return synchronized{normalized{patterns: p.(*patterns)}}, err
}

func learns(open func(c *config.Config) (Problem, error)) Program {
	return Program{Name: "normalized", Open: open}
}

// stored returns the tensors of the newest checkpoint in a folder.
func stored(t *testing.T, dir string) map[string][]float32 {
	t.Helper()
	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]float32{}
	for _, x := range c.Tensors() {
		if x.Role == checkpoint.Param || x.Role == checkpoint.Buffer {
			all[x.Name] = make([]float32, x.Len())
			err = c.Read(x.Name, 0, tensor.Of(all[x.Name]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

// full has steps of whole batches on 1 and 2 ranks.
func full(dir string, more ...string) []string {
	return append([]string{"data.drop_last=true", "checkpoint.dir=" + dir}, more...)
}

// A run that stops and resumes has the running statistics of one that did not stop, bit by bit; and
// so has one that verifies its gradient first. They are those of rank 0 on all ranks.
func TestResumedRunsHaveTheSameBuffers(t *testing.T) {
	for _, n := range []int{1, 2} {
		whole, parts := t.TempDir(), t.TempDir()
		want := run(t, learns(openNormalized), full(whole, ranks(n), steps(8))...).summary(t)
		run(t, learns(openNormalized), full(parts, ranks(n), steps(3))...).summary(t)
		got := run(t, learns(openNormalized), full(parts, ranks(n), steps(8))...).summary(t)
		sameBits(t, fmt.Sprint(n, " ranks"), got, want)
		if *got.TestAccuracy != *want.TestAccuracy {
			t.Errorf("%d ranks: accuracy %v, want %v", n, *got.TestAccuracy, *want.TestAccuracy)
		}
		a, b := stored(t, parts), stored(t, whole)
		for _, name := range []string{"mean", "variance"} {
			if len(a[name]) != features || !slices.Equal(a[name], b[name]) || slices.Contains(a[name], 0) || slices.Contains(a[name], 1) {
				t.Errorf("%d ranks: %s is %v, of the whole run %v", n, name, a[name], b[name])
			}
		}
	}
	plain, verified := t.TempDir(), t.TempDir()
	run(t, learns(openNormalized), full(plain)...).summary(t)
	run(t, learns(openNormalized), full(verified, "--verify")...).summary(t)
	if a, b := stored(t, plain), stored(t, verified); !slices.Equal(a["mean"], b["mean"]) {
		t.Errorf("with --verify the mean is %v, without %v", b["mean"], a["mean"])
	}
}

// The test accuracy is that of the saved weights and running statistics, in plain loops.
func TestAccuracyUsesTheBuffers(t *testing.T) {
	dir := t.TempDir()
	s := run(t, learns(openNormalized), full(dir, ranks(2), steps(6))...).summary(t)
	v := stored(t, dir)
	p, err := openPatterns(&config.Config{})
	if err != nil {
		t.Fatal(err)
	}
	right := int64(0)
	for i, image := range p.(*patterns).images[trainSamples:] {
		var scores [testClasses]float64
		for f := range features {
			h := 0.0
			for j, x := range image {
				h += float64(x) * float64(v["in"][j*features+f])
			}
			h = (h-float64(v["mean"][f]))/math.Sqrt(float64(v["variance"][f])+1e-5)*float64(v["scale"][f]) + float64(v["offset"][f])
			for c := range scores {
				scores[c] += math.Tanh(h) * float64(v["out"][f*testClasses+c])
			}
		}
		if slices.Index(scores[:], slices.Max(scores[:])) == (trainSamples+i)%testClasses {
			right++
		}
	}
	if s.TestCorrect != right {
		t.Errorf("%d right, in plain loops %d", s.TestCorrect, right)
	}
}

// Ranks that normalize together learn what one rank learns, which --verify confirms.
func TestRanksNormalizeTogether(t *testing.T) {
	one := run(t, learns(openSynchronized), full(t.TempDir(), ranks(1))...).summary(t)
	two := run(t, learns(openSynchronized), full(t.TempDir(), ranks(2), "--verify")...).summary(t)
	for i := range one.Losses {
		if d := math.Abs(two.Losses[i] - one.Losses[i]); !(d < 1e-5) {
			t.Errorf("step %d: loss %v, of one rank %v", i, two.Losses[i], one.Losses[i])
		}
	}
	if r := run(t, learns(openNormalized), full(t.TempDir(), ranks(2), "--verify")...); r.code != 1 || !strings.Contains(r.err, "verify") {
		t.Errorf("ranks that normalize alone: code %d, %s", r.code, r.err)
	}
}

func TestBuffersThatCannotBeSavedAreRefused(t *testing.T) {
	for want, rename := range map[string]func(*Model){
		`buffer 0 is named "scale"`:             func(m *Model) { m.Buffers[0].Name = "scale" },
		`buffer 1 is named "mean"`:              func(m *Model) { m.Buffers[1].Name = "mean" },
		"buffer mean: want a tensor of float32": func(m *Model) { m.Buffers[0].Value = gtensor.New(gtensor.Of(gtensor.Float64), gtensor.WithShape(2)) },
	} {
		p := learns(func(c *config.Config) (Problem, error) {
			p, err := openPatterns(c)
			return normalized{p.(*patterns), rename}, err
		})
		if r := run(t, p, full("")...); r.code != 1 || !strings.Contains(r.err, want) {
			t.Errorf("code %d, %s; want %s", r.code, r.err, want)
		}
	}
	dir := t.TempDir()
	without := learns(func(c *config.Config) (Problem, error) {
		p, err := openPatterns(c)
		return normalized{p.(*patterns), func(m *Model) { m.Buffers = nil }}, err
	})
	run(t, without, full(dir, steps(2))...).summary(t)
	if r := run(t, learns(openNormalized), full(dir, steps(4))...); r.code != 1 || !strings.Contains(r.err, "has no buffer mean: it is of another model") {
		t.Errorf("a checkpoint without buffers: code %d, %s", r.code, r.err)
	}
}
