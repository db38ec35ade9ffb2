package train

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/data"
)

// DatasetProblem is a learning task whose training samples are a data set, such as token shards or
// a folder of images. FromDataset makes a Problem of it.
type DatasetProblem interface {
	// Digest identifies the samples on one line. It must be equal on all ranks.
	Digest() string
	// Describe is that of Problem.
	Describe() (data, model string)
	// New is that of Problem.
	New(rows int, weights []*gtensor.Dense) (*Model, error)
	// Dataset returns the training samples. Goroutines of all ranks of this process read it.
	Dataset() data.Dataset
	// Set sets the inputs of m to the samples of a batch, and gives the remaining rows weight zero.
	// The batch's tensors have the rows of m; those after its Len samples are zero. Their memory is
	// valid until the graph has run, so gorgonia.Let of a node and a tensor needs no copy.
	Set(m *Model, rows *data.Rows) error
	// Tests is that of Problem.
	Tests() Tests
}

// FromDataset returns the Problem of p. A run reads its samples ahead, with the goroutines of
// data.workers, and never calls Fill, except for --verify and --resident. A sample that cannot be
// read ends the run on all ranks, with the sample, its file and the place in the error.
func FromDataset(p DatasetProblem) Problem { return &fromDataset{p} }

// own returns the program's value of a Problem, for the interfaces that it may have.
func own(p Problem) any {
	if f, ok := p.(*fromDataset); ok {
		return f.DatasetProblem
	}
	return p
}

// fromDataset is the Problem of a DatasetProblem.
type fromDataset struct{ DatasetProblem }

// Len returns the number of samples.
func (p *fromDataset) Len() int { return p.Dataset().Len() }

// Fill reads the samples at once, as those of epoch 0.
func (p *fromDataset) Fill(m *Model, indices []int) error {
	rows, err := data.ReadRows(p.Dataset(), indices, 0, m.rows)
	if err != nil {
		return err
	}
	return p.Set(m, rows)
}

// LetRows sets inputs of m to the fields of a batch, in their order: input i gets a tensor over the
// memory of field i, without a copy. An input has the shape of the batch, such as rows x context
// for tokens, or another one of equally many elements, such as rows*context.
//
// Errors: an input of another size or dtype, naming it; those of gorgonia.Let.
func LetRows(m *Model, rows *data.Rows) error {
	fields := rows.Fields()
	if len(m.Inputs) < len(fields) {
		return fmt.Errorf("%d inputs for a data set of %d fields", len(m.Inputs), len(fields))
	}
	for i, f := range fields {
		n := m.Inputs[i]
		t, err := rows.TensorAs(i, n.Shape()...)
		if err == nil && n.Dtype() != f.DType {
			err = fmt.Errorf("its dtype is %v, that of field %q %v", n.Dtype(), f.Name, f.DType)
		}
		if err != nil {
			return fmt.Errorf("input %q: %w", n.Name(), err)
		}
		if err := gorgonia.Let(n, t); err != nil {
			return fmt.Errorf("input %q: %w", n.Name(), err)
		}
	}
	return nil
}

// inputs fills the inputs of a learner's model.
type inputs struct {
	loader *data.Loader // reads the samples of the next runs; nil if the problem fills the inputs
	filled bool         // with --resident: the inputs are filled and stay
}

// start begins to read the samples from a position on, if the problem has a data set.
//
// Owns: close ends it.
func (in *inputs) start(l *learner, at data.Cursor) error {
	p, ok := l.job.problem.(*fromDataset)
	if !ok || l.job.timing.resident {
		return nil
	}
	order, err := l.job.newSampler(l.w.Rank(), l.w.Size())
	if err == nil {
		err = order.Seek(at)
	}
	if err != nil {
		return err
	}
	c := l.job.cfg.Data
	in.loader, err = data.NewLoader(data.LoaderConfig{
		Dataset: p.Dataset(), Order: &pieces{Sampler: order, cut: l.cut}, Rows: l.rows,
		Workers: cmp.Or(c.Workers, l.job.threads), Ahead: c.Ahead,
	})
	return err
}

// fill sets the inputs to training samples: the next ones of the loader, if there is one.
func (in *inputs) fill(j *job, m *Model, indices []int) error {
	if in.filled {
		return nil
	}
	in.filled = j.timing.resident
	if in.loader == nil {
		return j.problem.Fill(m, indices)
	}
	rows, err := in.loader.Next()
	if err != nil {
		return err
	}
	if !slices.Equal(rows.Indices, indices) {
		return errors.New("BUG: the loader has other samples than the step")
	}
	return j.problem.(*fromDataset).Set(m, rows)
}

// close ends the goroutines that read.
func (in *inputs) close() {
	if in.loader != nil {
		_ = in.loader.Close() // it has no errors
	}
}

// pieces is the order of the pieces of a rank's part of each batch, one for each run of the graph.
type pieces struct {
	*data.Sampler
	cut   func(have, global int) cuts
	batch data.Batch
	cuts  cuts
	next  int // piece
}

// Next returns the samples of the next piece.
func (p *pieces) Next() data.Batch {
	if p.next == p.cuts.n {
		p.batch, p.next = p.Sampler.Next(), 0
		p.cuts = p.cut(len(p.batch.Indices), p.batch.Global)
	}
	lo, hi := p.cuts.at(p.next), p.cuts.at(p.next+1)
	p.next++
	b := p.batch
	b.Indices, b.Weight = b.Indices[lo:hi:hi], float64(hi-lo)
	return b
}
