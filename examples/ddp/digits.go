package main

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/examples/ddp/mnist"
	"github.com/symgrad/symgrad/examples/ddp/model"
	"github.com/symgrad/symgrad/examples/internal/graph"
	"github.com/symgrad/symgrad/train"
)

// digits is the problem of classifying images of digits.
type digits struct {
	path   string
	model  model.Config // without a batch
	train  *mnist.Set   // up to data.limit
	test   *mnist.Set
	digest string
}

func openDigits(c *config.Config) (train.Problem, error) {
	data, err := mnist.Load(c.Data.Path)
	if err != nil {
		return nil, err
	}
	d := &digits{path: c.Data.Path, train: data.Train, test: data.Test}
	d.digest = fmt.Sprintf("SHA-256 of the data: %x", data.SHA256())
	if limit := c.Data.Limit; limit > 0 {
		d.train = d.train.First(limit)
	}
	d.model = model.Config{
		Name: c.Model.Name, Hidden: c.Model.Hidden, Rows: d.train.Rows, Cols: d.train.Cols,
		Classes: mnist.Classes, Seed: c.Run.Seed,
	}
	if c.Model.Name == "cnn" {
		d.model.Channels, d.model.Kernel = c.Model.Channels, c.Model.Kernel
	}
	return d, nil
}

// Len returns the number of training images.
func (d *digits) Len() int { return d.train.Len() }

// Digest returns the hash of all images and labels.
func (d *digits) Digest() string { return d.digest }

// Describe returns the source of the images, and "mlp 784-512-512-10" or "cnn 28x28, conv 6-16, fc
// 120-84-10".
func (d *digits) Describe() (data, name string) {
	data = fmt.Sprintf("%s: %d training and %d test images of %dx%d", d.path, d.train.Len(), d.test.Len(), d.train.Rows, d.train.Cols)
	widths := append(append([]int(nil), d.model.Hidden...), d.model.Classes)
	if d.model.Name == "cnn" {
		return data, fmt.Sprintf("cnn %dx%d, conv %s, fc %s", d.train.Rows, d.train.Cols, graph.Widths(d.model.Channels...), graph.Widths(widths...))
	}
	return data, "mlp " + graph.Widths(append([]int{d.train.Pixels()}, widths...)...)
}

// New returns the classifier.
func (d *digits) New(rows int, weights []*gtensor.Dense) (*train.Model, error) {
	c := d.model
	c.Batch = rows
	m, err := model.New(c, weights)
	if err != nil {
		return nil, err
	}
	return &train.Model{Inputs: gorgonia.Nodes{m.X, m.Y, m.W}, Params: m.Params, Cost: m.Cost, Output: m.LogProb}, nil
}

// Fill sets the inputs to training images.
func (d *digits) Fill(m *train.Model, indices []int) error { return fill(d.train, m, indices) }

// fill sets the inputs to images of a set.
func fill(s *mnist.Set, m *train.Model, indices []int) error {
	x, y, w := m.Inputs[0].Value().Data().([]float32), m.Inputs[1].Value().Data().([]float32), m.Inputs[2].Value().Data().([]float32)
	return s.Fill(x, y, w, indices)
}

// Tests returns the test images.
func (d *digits) Tests() train.Tests { return tests{d.test} }

// tests are images for measuring accuracy.
type tests struct{ *mnist.Set }

// Rows is a divisor of the ten thousand test images of MNIST.
func (tests) Rows() int { return 100 }

// HasLoss reports that Fill sets the labels too.
func (tests) HasLoss() bool { return true }

// Fill sets the inputs to n images.
func (t tests) Fill(m *train.Model, first, n int) error {
	indices := make([]int, n)
	for i := range indices {
		indices[i] = first + i
	}
	return fill(t.Set, m, indices)
}

// Count compares the most likely class of each image with its label.
func (t tests) Count(m *train.Model, first, n int) (right, all int) {
	logProb := m.Output.Value().Data().([]float32)
	for row := range n {
		scores := logProb[row*mnist.Classes:][:mnist.Classes]
		if slices.Index(scores, slices.Max(scores)) == t.Label(first+row) {
			right++
		}
	}
	return right, n
}
