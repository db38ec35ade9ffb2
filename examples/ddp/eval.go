package main

import (
	"context"
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/symgrad/symgrad/examples/ddp/mnist"
	"github.com/symgrad/symgrad/examples/ddp/model"
)

// evalRows is the batch of the evaluation. It is the same for any number of ranks, and so is the content of each batch:
// then equal parameters get equal counts, whoever counts, even where a BLAS rounds by the shape of a matrix.
const evalRows = 100

// evaluate counts the test samples that the model gets right. Batch k is counted by rank k mod n.
//
// Collective: all ranks.
func (t *trainer) evaluate(ctx context.Context, s *summary) (err error) {
	weights, err := t.weights()
	if err != nil {
		return err
	}
	// A second graph, because a graph has one batch size, over the same weights.
	m, err := model.New(t.modelConfig(evalRows), weights)
	if err != nil {
		return err
	}
	vm, err := compile(append(gorgonia.Nodes{m.X}, m.Params...), gorgonia.Nodes{m.LogProb})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vm.Close()) }()
	counts := []int64{0, 0} // right, all
	set := t.job.data.Test
	for first := t.w.Rank() * evalRows; first < set.Len(); first += t.w.Size() * evalRows {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		n := min(evalRows, set.Len()-first)
		right, err := classify(vm, m, set, first, n)
		if err != nil {
			return fmt.Errorf("test samples %d to %d: %w", first, first+n-1, plain(err))
		}
		counts[0] += int64(right)
		counts[1] += int64(n)
	}
	if err := sum(t.w, "test samples", counts); err != nil {
		return err
	}
	s.tested(counts[0], counts[1])
	return nil
}

// classify is how many of the n samples from first on the model gets right.
func classify(vm gorgonia.VM, m *model.Model, set *mnist.Set, first, n int) (right int, err error) {
	indices := make([]int, n)
	for i := range indices {
		indices[i] = first + i
	}
	x, y, w := m.X.Value().Data().([]float32), m.Y.Value().Data().([]float32), m.W.Value().Data().([]float32)
	if err := set.Fill(x, y, w, indices); err != nil {
		return 0, err
	}
	defer vm.Reset()
	if err := vm.RunAll(); err != nil {
		return 0, err
	}
	logProb := m.LogProb.Value().Data().([]float32)
	for row, i := range indices {
		if argmax(logProb[row*mnist.Classes:][:mnist.Classes]) == set.Label(i) {
			right++
		}
	}
	return right, nil
}

// argmax is the index of the first of the largest.
func argmax(v []float32) int {
	best := 0
	for i := range v {
		if v[i] > v[best] {
			best = i
		}
	}
	return best
}
