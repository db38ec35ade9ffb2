package train

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/train/internal/exchange"
	"github.com/symgrad/symgrad/train/internal/save"
)

// Buffer is a part of a model that runs in training change without a gradient, such as the running
// mean of a batch normalization. Its Value is the float32 memory that the graph's op changes.
//
// Ranks may have different values, where each normalizes over its own rows. Tests and checkpoints
// use those of rank 0, as PyTorch's DistributedDataParallel does.
type Buffer = save.Buffer

// GroupProblem is implemented by a Problem or DatasetProblem whose ranks communicate in the graph,
// for example in ops.SyncBatchNorm.
type GroupProblem interface {
	// NewOver is New for a training graph that the ranks of g run together. New then makes the
	// graphs that one rank runs alone: for tests, and for all rows of a batch in --verify.
	NewOver(g *dist.Group, rows int, weights []*gtensor.Dense) (*Model, error)
}

// newModelOver returns the model for training on the ranks of g.
func (j *job) newModelOver(g *dist.Group, rows int) (*Model, error) {
	var p any = j.problem
	if from, ok := p.(*fromDataset); ok {
		p = from.DatasetProblem
	}
	over, ok := p.(GroupProblem)
	if !ok {
		return j.newModel(rows, nil)
	}
	return j.checkedModel(rows, nil, func() (*Model, error) { return over.NewOver(g, rows, nil) })
}

// elementsOf returns copies of the elements of buffers.
func elementsOf(buffers []Buffer) [][]float32 {
	all := make([][]float32, len(buffers))
	for i, b := range buffers {
		all[i] = slices.Clone(b.Value.Float32s())
	}
	return all
}

// lend copies elements into the buffers of m, which may be another model for the same problem.
func (m *Model) lend(elements [][]float32) error {
	if len(m.Buffers) != len(elements) {
		return fmt.Errorf("a model of %d buffers, that for training has %d: Problem.New must return the same ones", len(m.Buffers), len(elements))
	}
	for i, b := range m.Buffers {
		to := b.Value.Float32s()
		if len(to) != len(elements[i]) {
			return fmt.Errorf("buffer %s has %d elements, in the model for training %d", b.Name, len(to), len(elements[i]))
		}
		copy(to, elements[i])
	}
	return nil
}

// ofRank0 returns copies of buffers with rank 0's elements.
//
// Collective: all ranks.
func ofRank0(k *exchange.Values, buffers []Buffer) ([]Buffer, error) {
	all := slices.Clone(buffers)
	for i, elements := range elementsOf(buffers) {
		if err := exchange.FromFirst(k, all[i].Name, elements); err != nil {
			return nil, err
		}
		all[i].Value = gtensor.New(gtensor.WithShape(all[i].Value.Shape()...), gtensor.WithBacking(elements))
	}
	return all, nil
}

// running is the buffers of a learner's model.
type running struct{ *learner }

// kept returns a function that sets this rank's buffers to their current elements.
func (l running) kept() (restore func() error, err error) {
	if err := l.vm.sync(); err != nil {
		return nil, err
	}
	before := elementsOf(l.model.Buffers)
	return func() error {
		if err := l.vm.sync(); err != nil {
			return err
		}
		err := l.model.lend(before)
		l.vm.load()
		return err
	}, nil
}

// checkBuffers rejects buffers that checkpoints cannot hold.
func checkBuffers(params gorgonia.Nodes, buffers []Buffer) error {
	names := map[string]bool{}
	for _, p := range params {
		names[p.Name()] = true
	}
	for i, b := range buffers {
		switch {
		case b.Name == "" || names[b.Name]:
			return fmt.Errorf("buffer %d is named %q: want a name that no parameter and no other buffer has", i, b.Name)
		case b.Value == nil || b.Value.Dtype() != gorgonia.Float32:
			return fmt.Errorf("buffer %s: want a tensor of float32", b.Name)
		}
		names[b.Name] = true
	}
	return nil
}
