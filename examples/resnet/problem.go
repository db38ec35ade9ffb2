package main

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/config"
	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/resnet/model"
	"github.com/symgrad/symgrad/examples/resnet/pictures"
	"github.com/symgrad/symgrad/train"
)

// problem is the classification of images.
type problem struct {
	pictures *pictures.Set
	model    model.Config // without a batch
	sync     bool         // ranks normalize together
	start    *weights     // of model.pretrained; nil for random ones
	n        int          // test images up to data.val_limit
	learns   data.Dataset // the training images up to data.limit
}

// testRows is the number of images in a batch of the test set.
const testRows = 100

// find reports settings and data that open cannot use.
func find(c *config.Config) error {
	p, err := newProblem(c)
	if err != nil {
		return err
	}
	return p.pictures.Close()
}

// open returns the problem.
func open(c *config.Config) (train.Problem, error) {
	p, err := newProblem(c)
	if err != nil {
		return nil, err
	}
	return train.FromDataset(p), nil
}

func newProblem(c *config.Config) (*problem, error) {
	if c.Run.Machine == "tape" {
		return nil, train.Usage("run.machine=tape: a batch normalization has wrong results there in the test; use run.machine=compiled")
	}
	all, err := pictures.Open(c) // open until the process ends
	if err != nil {
		return nil, err
	}
	p := &problem{pictures: all, sync: c.Model.SyncBN, learns: all.Train, n: all.Test.Len()}
	if n := c.Data.ValLimit; n > 0 {
		p.n = min(p.n, n)
	}
	if n := c.Data.Limit; n > 0 && n < all.Train.Len() {
		if p.learns, err = data.Subset(all.Train, 0, n); err != nil {
			return nil, err
		}
	}
	n, batch := p.learns.Len(), c.Data.GlobalBatch
	switch {
	case n < batch && c.Data.DropLast:
		return nil, train.Usage("data.global_batch=%d: there are only %d training images, and data.drop_last skips a smaller batch", batch, n)
	case !p.sync && !c.Data.DropLast && n%batch != 0:
		return nil, train.Usage("data.drop_last=false: the last batch of an epoch has %d of %d images, and a rank normalizes over whole batches only: set data.drop_last=true or model.sync_bn=true",
			n%batch, batch)
	}
	p.model = model.Config{
		Name: c.Model.Name, Width: c.Model.Width, Classes: all.Classes, Side: all.Side, Small: all.Small,
		Seed: c.Run.Seed, LabelSmoothing: c.Model.LabelSmoothing,
	}
	if c.Model.Pretrained != "" {
		if p.start, err = readWeights(c.Model.Pretrained); err != nil {
			return nil, fmt.Errorf("model.pretrained: %w", err)
		}
	}
	return p, nil
}

// Digest identifies the training images.
func (p *problem) Digest() string { return p.pictures.Digest }

// Describe returns the images and the network.
func (p *problem) Describe() (data, name string) {
	data = fmt.Sprintf("%s; %d training and %d test images", p.pictures.About, p.learns.Len(), p.n)
	name = fmt.Sprintf("%s, width %d, %d classes", p.model.Name, p.model.Width, p.model.Classes)
	if p.sync {
		name += ", batches normalized over all ranks"
	}
	return data, name
}

// Dataset returns the training images.
func (p *problem) Dataset() data.Dataset { return p.learns }

// New returns the network for one rank.
func (p *problem) New(rows int, weights []*gtensor.Dense) (*train.Model, error) {
	return p.network(nil, rows, weights)
}

// NewOver returns the network for training on the ranks of g.
func (p *problem) NewOver(g *dist.Group, rows int, weights []*gtensor.Dense) (*train.Model, error) {
	if !p.sync {
		g = nil
	}
	return p.network(g, rows, weights)
}

func (p *problem) network(g *dist.Group, rows int, given []*gtensor.Dense) (*train.Model, error) {
	c := p.model
	c.Batch, c.Group = rows, g
	made, err := model.New(c, given)
	if err != nil {
		return nil, err
	}
	m := &train.Model{Inputs: gorgonia.Nodes{made.Images, made.Labels}, Params: made.Params, Cost: made.Cost, Output: made.Logits}
	if made.Rows != nil {
		m.Inputs = append(m.Inputs, made.Rows)
	}
	for _, s := range made.Stats {
		m.Buffers = append(m.Buffers,
			train.Buffer{Name: s.Layer + ".running_mean", Value: s.Mean}, train.Buffer{Name: s.Layer + ".running_var", Value: s.Variance})
	}
	if p.start != nil && given == nil {
		if err := p.start.set(m); err != nil {
			return nil, fmt.Errorf("model.pretrained: %w", err)
		}
	}
	return m, nil
}

// Set sets the inputs to a batch of training images.
func (p *problem) Set(m *train.Model, rows *data.Rows) error {
	all := m.Inputs[1].Shape()[0]
	if n := rows.Len(); !p.sync && n < all {
		return fmt.Errorf("a rank has %d images for a batch of %d, and normalizes over whole batches only: choose a data.global_batch that the number of ranks times data.accum_steps divides, or set model.sync_bn=true",
			n, all)
	}
	return p.fill(m, rows)
}

// fill sets the inputs to a batch of images, some of whose rows may be empty.
func (p *problem) fill(m *train.Model, rows *data.Rows) error {
	n := rows.Len()
	if err := gorgonia.Let(m.Inputs[0], rows.Tensor(0)); err != nil {
		return err
	}
	labels := m.Inputs[1].Value().Data().([]int)
	for i := range labels {
		labels[i] = model.NoLabel
	}
	copy(labels, rows.Values(1).Int[:n])
	if len(m.Inputs) > 2 {
		counts := m.Inputs[2].Value().Data().([]float32)
		for i := range counts {
			if counts[i] = 0; i < n {
				counts[i] = 1
			}
		}
	}
	return nil
}

// Tests returns the test images.
func (p *problem) Tests() train.Tests { return tests{p} }

// tests are the test images.
type tests struct{ *problem }

// Len returns the number of test images.
func (t tests) Len() int { return t.n }

// Rows returns the number of images in a batch.
func (t tests) Rows() int { return min(testRows, t.n) }

// HasLoss is true: the loss is that of the training, with its label smoothing.
func (tests) HasLoss() bool { return true }

// Fill sets the inputs to n test images.
func (t tests) Fill(m *train.Model, first, n int) error {
	indices := make([]int, n)
	for i := range indices {
		indices[i] = first + i
	}
	rows, err := data.ReadRows(t.pictures.Test, indices, 0, t.Rows())
	if err != nil {
		return err
	}
	return t.fill(m, rows)
}

// Count returns how many images have their class as the most likely one.
func (t tests) Count(m *train.Model, _, n int) (right, all int) { return t.among(m, n, 1), n }

// CountTop5 returns how many images have their class among the five most likely ones.
func (t tests) CountTop5(m *train.Model, _, n int) int { return t.among(m, n, 5) }

// among returns how many of the first n images have their class among the most likely ones.
func (t tests) among(m *train.Model, n, first int) (right int) {
	logits, labels := m.Output.Value().Data().([]float32), m.Inputs[1].Value().Data().([]int)
	for i, label := range labels[:n] {
		scores := logits[i*t.pictures.Classes:][:t.pictures.Classes]
		if place(scores, label) < first {
			right++
		}
	}
	return right
}

// place returns the number of classes that are more likely than a class; of equal ones the first is
// the more likely one. With a NaN no class is likely.
func place(scores []float32, class int) (before int) {
	if slices.ContainsFunc(scores, func(s float32) bool { return s != s }) {
		return len(scores)
	}
	for i, s := range scores {
		if s > scores[class] || s == scores[class] && i < class {
			before++
		}
	}
	return before
}
