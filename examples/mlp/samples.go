package main

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/examples/ddp/model"
	"github.com/symgrad/symgrad/examples/internal/graph"
	"github.com/symgrad/symgrad/train"
)

const (
	classes      = 10
	trainSamples = 2048 // if data.limit is 0
	testSamples  = 256
)

// signal is the length of a class's pattern in the sample space, in which noise has deviation 1 per
// dimension. Two classes are 1.4 times this apart, so a perceptron can almost always separate them.
const signal = 6

// samples is the problem. Sample i is of class i mod 10, and its values depend only on i and the
// seed.
type samples struct {
	seed   int64
	model  model.Config // without a batch
	n      int          // training samples; the test samples follow them
	values []float32    // one sample after the other
}

// most is the maximum number of values of all samples: 4 TiB of them.
const most = 1 << 40

// checkSamples reports invalid settings of the samples.
func checkSamples(c *config.Config) error {
	if len(c.Model.Hidden) == 0 {
		return train.Usage("model.hidden is empty: the width of the inputs is that of the first hidden layer")
	}
	n, width := cmp.Or(c.Data.Limit, trainSamples), c.Model.Hidden[0]
	if n > most-testSamples || width > most/max(n+testSamples, classes) {
		return train.Usage("data.limit and model.hidden: %d samples of %d values, and %d for the test, do not fit into memory", n, width, testSamples)
	}
	return nil
}

func openSamples(c *config.Config) (train.Problem, error) {
	if err := checkSamples(c); err != nil {
		return nil, err
	}
	s := &samples{seed: c.Run.Seed, n: cmp.Or(c.Data.Limit, trainSamples)}
	width := c.Model.Hidden[0]
	s.model = model.Config{Name: "mlp", Hidden: c.Model.Hidden, Rows: 1, Cols: width, Classes: classes, Seed: c.Run.Seed}
	patterns := make([]float32, classes*width)
	rng := rand.New(rand.NewPCG(uint64(s.seed), 1))
	for i := range patterns {
		patterns[i] = float32(signal / math.Sqrt(float64(width)) * rng.NormFloat64())
	}
	s.values = make([]float32, (s.n+testSamples)*width)
	for i := range s.n + testSamples {
		noise := rand.New(rand.NewPCG(uint64(s.seed), 2+uint64(i)))
		row, pattern := s.values[i*width:][:width], patterns[i%classes*width:]
		for j := range row {
			row[j] = pattern[j] + float32(noise.NormFloat64())
		}
	}
	return s, nil
}

// Len returns the number of training samples.
func (s *samples) Len() int { return s.n }

// Digest returns the values that the samples depend on.
func (s *samples) Digest() string { return fmt.Sprintf("samples: %d of seed %d", s.n, s.seed) }

// Describe returns a summary of the samples, and "mlp 4096-4096-10".
func (s *samples) Describe() (data, name string) {
	data = fmt.Sprintf("generated: %d training and %d test samples of %d values", s.n, testSamples, s.model.Cols)
	widths := append([]int{s.model.Cols}, s.model.Hidden...)
	return data, "mlp " + graph.Widths(append(widths, classes)...)
}

// New returns the classifier.
func (s *samples) New(rows int, weights []*gtensor.Dense) (*train.Model, error) {
	c := s.model
	c.Batch = rows
	m, err := model.New(c, weights)
	if err != nil {
		return nil, err
	}
	return &train.Model{Inputs: gorgonia.Nodes{m.X, m.Y, m.W}, Params: m.Params, Cost: m.Cost, Output: m.LogProb}, nil
}

// Fill sets the inputs to samples.
func (s *samples) Fill(m *train.Model, indices []int) error {
	x, y, w := m.Inputs[0].Value().Data().([]float32), m.Inputs[1].Value().Data().([]float32), m.Inputs[2].Value().Data().([]float32)
	width := s.model.Cols
	if len(indices) > len(w) {
		return fmt.Errorf("%d samples for %d rows", len(indices), len(w))
	}
	clear(y)
	clear(w)
	clear(x[len(indices)*width:])
	for row, i := range indices {
		copy(x[row*width:][:width], s.values[i*width:])
		y[row*classes+i%classes] = 1
		w[row] = 1 / float32(len(indices))
	}
	return nil
}

// Tests returns samples that training does not see.
func (s *samples) Tests() train.Tests { return tests{s} }

// tests are the samples after the training samples.
type tests struct{ *samples }

// Len returns the number of test samples.
func (tests) Len() int { return testSamples }

// Rows is a small batch, for a processor.
func (tests) Rows() int { return 64 }

// HasLoss reports that Fill sets the targets too.
func (tests) HasLoss() bool { return true }

// Fill sets the inputs to n test samples.
func (t tests) Fill(m *train.Model, first, n int) error {
	indices := make([]int, n)
	for i := range indices {
		indices[i] = t.n + first + i
	}
	return t.samples.Fill(m, indices)
}

// Count compares the most likely class with the right one.
func (t tests) Count(m *train.Model, first, n int) (right, all int) {
	logProb := m.Output.Value().Data().([]float32)
	for row := range n {
		scores := logProb[row*classes:][:classes]
		if slices.Index(scores, slices.Max(scores)) == (t.n+first+row)%classes {
			right++
		}
	}
	return right, n
}
