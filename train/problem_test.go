package train

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/examples/ddp/model"
	"github.com/symgrad/symgrad/internal/gpu/cuda/cudatest"
)

func TestMain(m *testing.M) {
	cudatest.Hide()
	goleak.VerifyTestMain(m)
}

// patterns is a problem of the tests: made-up images of ten classes, each a pattern of its own with
// noise. Sample i is of class i mod 10; the last testSamples are the test set.
type patterns struct {
	cfg    *config.Config
	images [][]float32
}

const (
	side         = 8
	trainSamples = 230
	testSamples  = 130
	testClasses  = 10
)

func openPatterns(c *config.Config) (Problem, error) {
	p := &patterns{cfg: c}
	clean := rand.New(rand.NewPCG(1, 2))
	var of [testClasses][side * side]float32
	for c := range of {
		for i := range of[c] {
			of[c][i] = float32(clean.NormFloat64())
		}
	}
	for i := range trainSamples + testSamples {
		noise := rand.New(rand.NewPCG(3, uint64(i)))
		image := of[i%testClasses]
		for j := range image {
			image[j] += float32(0.3 * noise.NormFloat64())
		}
		p.images = append(p.images, image[:])
	}
	return p, nil
}

func (p *patterns) Len() int                   { return trainSamples }
func (p *patterns) Digest() string             { return "patterns" }
func (p *patterns) Describe() (string, string) { return "patterns", p.cfg.Model.Name }
func (p *patterns) Tests() Tests               { return patternTests{p} }

func (p *patterns) New(rows int, weights []*gtensor.Dense) (*Model, error) {
	c := p.cfg.Model
	m, err := model.New(model.Config{
		Name: c.Name, Hidden: c.Hidden, Channels: c.Channels, Kernel: c.Kernel, Rows: side, Cols: side,
		Classes: testClasses, Batch: rows, Seed: p.cfg.Run.Seed,
	}, weights)
	if err != nil {
		return nil, err
	}
	return &Model{Inputs: gorgonia.Nodes{m.X, m.Y, m.W}, Params: m.Params, Cost: m.Cost, Output: m.LogProb}, nil
}

func (p *patterns) Fill(m *Model, indices []int) error {
	x, y, w := m.Inputs[0].Value().Data().([]float32), m.Inputs[1].Value().Data().([]float32), m.Inputs[2].Value().Data().([]float32)
	if len(indices) > len(w) {
		return fmt.Errorf("%d samples for %d rows", len(indices), len(w))
	}
	clear(x)
	clear(y)
	clear(w)
	for row, i := range indices {
		copy(x[row*side*side:], p.images[i])
		y[row*testClasses+i%testClasses] = 1
		w[row] = 1 / float32(len(indices))
	}
	return nil
}

// patternTests is the test set.
type patternTests struct{ *patterns }

func (patternTests) Len() int  { return testSamples }
func (patternTests) Rows() int { return 100 }

func (patternTests) HasLoss() bool { return true }

func (p patternTests) Fill(m *Model, first, n int) error {
	indices := make([]int, n)
	for i := range indices {
		indices[i] = trainSamples + first + i
	}
	return p.patterns.Fill(m, indices)
}

func (p patternTests) Count(m *Model, first, n int) (right, all int) {
	answers := m.Output.Value().Data().([]float32)
	for row := range n {
		answer := answers[row*testClasses:][:testClasses]
		if slices.Index(answer, slices.Max(answer)) == (trainSamples+first+row)%testClasses {
			right++
		}
	}
	return right, n
}

// program is the one that learns patterns.
var program = Program{Name: "patterns", About: "Learn patterns.", Config: "c.yaml", Models: []string{"mlp", "cnn"}, Open: openPatterns}

// without is a problem that lacks samples or parameters.
type without struct {
	*patterns
	samples bool
}

func (w without) Len() int {
	if w.samples {
		return 0
	}
	return w.patterns.Len()
}

func (w without) New(rows int, weights []*gtensor.Dense) (*Model, error) {
	m, err := w.patterns.New(rows, weights)
	if err == nil {
		m.Params = nil
	}
	return m, err
}

func TestProblemsWithoutSamplesOrParametersAreNamed(t *testing.T) {
	for _, samples := range []bool{true, false} {
		want := map[bool]string{true: "Len must return 1", false: "New must set Params"}[samples]
		p := Program{Name: "own", Open: func(c *config.Config) (Problem, error) {
			p, err := openPatterns(c)
			return without{p.(*patterns), samples}, err
		}}
		var out, errs strings.Builder
		if code := p.Execute(smallRun(t.TempDir()), &out, &errs); code != 1 || !strings.Contains(errs.String(), want) {
			t.Errorf("exit code %d, %q: want 1 and %q", code, errs.String(), want)
		}
	}
}
